"""A public kit for those who add parts: tiny worlds, faults, simulation, conformance suites."""
