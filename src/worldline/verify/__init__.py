"""Leaf digests, byte comparison and the offline check of receipts and images. Knows nothing of how bytes
travelled.
"""
