"""PSNR of readouts."""

from __future__ import annotations

import numpy as np
import pytest

from worldline.lab.psnr import EQUAL_DB, psnr_db


def test_equal_pictures_have_the_value_that_stands_for_infinity() -> None:
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    assert psnr_db(picture, picture.copy()) == EQUAL_DB


def test_an_error_of_one_everywhere_is_48_13_db() -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    assert psnr_db(picture, picture + 1) == pytest.approx(20 * np.log10(255), abs=1e-9)


def test_the_difference_does_not_wrap_around() -> None:
    black, white = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)
    assert psnr_db(black, white) == pytest.approx(0.0)


def test_pictures_of_other_shapes_have_none() -> None:
    with pytest.raises(ValueError, match="shapes"):
        psnr_db(np.zeros((2, 2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8))
