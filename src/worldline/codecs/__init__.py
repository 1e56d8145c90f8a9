"""Lossless codecs over stretches of bytes: what crosses a slow link is smaller, what lands is the same.

A codec decides nothing about exactness. What it decodes is digested where it lies like every other byte, so a wrong
decode is refused by the receipt as any corruption is.
"""
