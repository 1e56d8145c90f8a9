"""The course of bench codec, with little to send: what it sends is verified, and counted."""

from __future__ import annotations

import numpy as np
import pytest

from worldline.clock import SystemClock
from worldline.errors import Corrupt, MissingExtra, Unsupported
from worldline.lab.bench.codec import Course, leaves
from worldline.lab.fabric import Fabric
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.testing.codecs import values
from worldline.verify.digests import leaf_digests

NBYTES = 2 * 1024 * 1024


def test_what_was_sent_is_verified_and_another_byte_is_seen() -> None:
    try:
        fabric = Fabric(2, "200Mbit")
    except (Unsupported, MissingExtra) as error:
        pytest.skip(error.sentence)
    with fabric, Arena.create(NBYTES, "source") as source, Arena.create(NBYTES, "target") as target:
        octets = np.frombuffer(source.bytes_at(Extent(0, NBYTES)), np.uint8)
        octets[:] = values(NBYTES // 2)
        course = Course(fabric, source, target, NBYTES, tuple(leaf_digests(source, leaves(0, NBYTES))), SystemClock())
        assert course.run("window") > 0
        assert NBYTES / 2 < course.crossed_bytes < NBYTES
        octets[5] ^= 1
        with pytest.raises(Corrupt):
            course.run("none")
        del octets
