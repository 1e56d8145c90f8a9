"""Instruments: what an engine's state is, how it changes, and what is lost when a part of it is. In one process."""
