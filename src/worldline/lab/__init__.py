"""Instruments and proofs over real fleets: what they print can be traced to what they ran."""
