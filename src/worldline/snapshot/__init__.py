"""A live session's torch state to canonical bytes and back: arena, binding by path, capture, restore, dirty
tracking.
"""
