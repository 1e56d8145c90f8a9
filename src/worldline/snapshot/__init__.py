"""A live session's torch state to canonical bytes and back: arena, capture at a boundary, rebuild."""
