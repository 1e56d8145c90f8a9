"""Readouts as they are shown."""

import io

import blake3
import numpy as np
import pytest
from PIL import Image

from worldline.errors import Internal, Malformed
from worldline.runtime.frames import show, split_frames
from worldline.worlds.protocol import Readout

IMAGE = Readout("image", 2, 16, 24)


def picture():
    rows = np.linspace(0, 255, 16, dtype=np.uint8)[None, :, None, None]
    return np.broadcast_to(rows, (2, 16, 24, 3)).copy()


def test_each_frame_becomes_a_jpeg_close_to_its_picture_and_the_digest_is_of_the_raw_bytes():
    frames = picture()
    shown = show(frames, IMAGE)
    assert (shown.encoding, shown.frames, shown.height, shown.width) == ("jpeg", 2, 16, 24)
    assert shown.raw == frames.tobytes()
    assert shown.digest == blake3.blake3(frames.tobytes()).hexdigest()
    for jpeg, frame in zip(split_frames(shown.payload), frames, strict=True):
        decoded = np.asarray(Image.open(io.BytesIO(jpeg)))
        assert decoded.shape == frame.shape
        assert np.abs(decoded.astype(int) - frame).max() < 8


def test_a_view_with_odd_strides_is_shown_as_what_it_shows():
    assert show(picture()[:, :, ::-1], IMAGE).raw == np.ascontiguousarray(picture()[:, :, ::-1]).tobytes()


def test_text_passes_as_it_is():
    shown = show(np.frombuffer("für".encode(), np.uint8), Readout("text", 1))
    assert (shown.encoding, shown.payload.decode(), shown.frames) == ("text", "für", 1)


@pytest.mark.parametrize("readout", [picture()[:, :8], picture().astype(np.float32), picture()[0]])
def test_a_readout_that_the_world_did_not_announce_is_refused(readout):
    with pytest.raises(Internal):
        show(readout, IMAGE)


@pytest.mark.parametrize("payload", [b"\x01", b"\x05\x00\x00\x00abc", b"\xff\xff\xff\xff"])
def test_a_payload_whose_lengths_do_not_fit_is_malformed(payload):
    with pytest.raises(Malformed):
        list(split_frames(payload))
