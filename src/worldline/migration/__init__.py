"""The protocol of one move as pure machines: events in, commands out. No I/O, no clock, no torch."""
