"""Moves a running interactive world from one machine to another and proves that nothing changed."""

__version__ = "0.1.0"
