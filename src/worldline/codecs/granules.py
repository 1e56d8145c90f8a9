"""The codecs of the kernel's granule code: zero granules left out, and bf16 as 12 bits an element."""

from __future__ import annotations

import numpy as np

from worldline.codecs.protocol import check_stretch
from worldline.errors import Malformed
from worldline.kernel import kernel


class Raw:
    """The bytes themselves."""

    name = "raw"
    number = 1

    def encode(self, stretch: memoryview) -> memoryview:
        check_stretch(stretch.nbytes)
        return stretch

    def decode_into(self, encoded: memoryview, into: memoryview) -> None:
        if encoded.nbytes != into.nbytes:
            raise Malformed(f"{encoded.nbytes} raw bytes are not {into.nbytes}")
        into[:] = encoded


class Zeros:
    """Granules of 4096 zero bytes cost four bytes, all others go as they are."""

    name = "zeros"
    number = 2
    _window = False

    def encode(self, stretch: memoryview) -> memoryview:
        check_stretch(stretch.nbytes)
        return kernel().encode_granules(np.frombuffer(stretch, np.uint8), self._window).data

    def decode_into(self, encoded: memoryview, into: memoryview) -> None:
        if not kernel().decode_granules(np.frombuffer(encoded, np.uint8), np.frombuffer(into, np.uint8)):
            raise Malformed(f"{encoded.nbytes} bytes are no granule code of {into.nbytes}")


class Window(Zeros):
    """`Zeros`, and granules of bf16 whose exponents lie near one another shrink to three quarters and a little.

    bf16 of any bits; what is not bf16, or too wild, goes raw granule by granule.
    """

    name = "window"
    number = 3
    _window = True
