"""The decisions, pure: verbs and lifecycle, admission, the change of an owner, the order of play. Never how bytes
move.
"""
