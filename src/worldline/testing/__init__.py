"""A public kit for those who add parts: manual clock, faults, simulation, conformance suites."""
