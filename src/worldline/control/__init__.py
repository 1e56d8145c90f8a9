"""The decisions, pure: verbs and lifecycle, ownership, admission, planning, placement. Never how bytes move."""
