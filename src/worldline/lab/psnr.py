"""Peak signal-to-noise ratio of a readout, in dB. A measure of pictures; state is never measured, only compared."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EQUAL_DB = 100.0
"""Stands for infinity: above what any two 8-bit pictures of up to 100 megapixels that differ can reach."""
PEAK = 255.0


def psnr_db(picture: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> float:
    """10 log10(255^2 / mean squared error) of two uint8 arrays of one shape; `EQUAL_DB` where they are equal."""
    if picture.shape != other.shape:
        raise ValueError(f"pictures of shapes {picture.shape} and {other.shape} have no PSNR")
    error = float(np.mean((picture.astype(np.float64) - other.astype(np.float64)) ** 2))
    return EQUAL_DB if error == 0.0 else min(10.0 * float(np.log10(PEAK**2 / error)), EQUAL_DB)
