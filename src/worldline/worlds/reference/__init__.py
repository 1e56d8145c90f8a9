"""The reference world: a small trained video model of a walk on a torus (see docs/reference-world.md)."""
