"""Instruments and experiments over a running fleet: twins, proofs, reports."""
