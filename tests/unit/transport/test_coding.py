"""Chunks that travel encoded: what crosses is less, what lands is the same, and raw is used where it is as fast."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from worldline.clock import ManualClock
from worldline.codecs.registry import codec
from worldline.errors import BadValue, LinkCut, Malformed, MissingExtra
from worldline.schema.layout import Extent
from worldline.snapshot.arena import Arena
from worldline.testing.codecs import values
from worldline.testing.transports import CAPACITY_BYTES, content, joined, landed, linked
from worldline.transport import coding
from worldline.transport.coding import (
    PROBE_AGAIN_BYTES,
    PROBE_BYTES,
    SLICE_BYTES,
    STEP_BYTES,
    WARM_BYTES,
    Coder,
    Decoder,
    check_choice,
)
from worldline.transport.tcp import TcpTransport
from worldline.wire.encoded import Encoded
from worldline.wire.framing import split_record
from worldline.wire.records import Chunk, Record, decode_frame, encode

MIB = 1024 * 1024
ARENA_BYTES = 16 * MIB
ALL = (1, 2, 3, 4)
WHOLE = [Extent(0, ARENA_BYTES)]


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(ARENA_BYTES, "coded") as made:
        fill(made, values(MIB))
        yield made


def fill(arena: Arena, octets: np.ndarray) -> None:
    room = np.frombuffer(arena.bytes_at(Extent(0, arena.capacity)), np.uint8)
    room[:] = np.resize(octets, room.size)


def sent(coder: Coder, clock: ManualClock, rate: float, extents: Iterable[Extent] = tuple(WHOLE)) -> list[Record]:
    """What a coder gives to a link of `rate` bytes a second."""

    def raw(extent: Extent) -> Iterator[tuple[bytes, memoryview]]:
        yield encode(Chunk(extent)), coder._arena.bytes_at(extent)

    records = []
    for record, payload in coder.records(extents, raw):
        clock.advance(payload.nbytes / rate)
        decoded = decode_frame(split_record(record))
        assert decoded is not None
        records.append(decoded)
    return records


def extents_of(records: Iterable[Record]) -> list[Extent]:
    return [record.extent for record in records if isinstance(record, Chunk | Encoded)]


def coder_of(arena: Arena, clock: ManualClock, choice: str = "auto", numbers: Iterable[int] = ALL) -> Coder:
    coder = Coder(arena, choice, clock, load=lambda: 0.5, spent_s=clock.monotonic_s)
    coder.allow(numbers)
    return coder


def kinds(records: Iterable[Record]) -> set[type[Record]]:
    return {type(record) for record in records}


def test_a_slow_link_is_measured_raw_and_then_carries_codes(arena: Arena) -> None:
    clock = ManualClock()
    coder = coder_of(arena, clock)
    records = sent(coder, clock, 1e8)
    probed = [record for record in records if isinstance(record, Chunk)]
    assert sum(record.extent.nbytes for record in probed) == WARM_BYTES + PROBE_BYTES
    assert {record.codec for record in records if isinstance(record, Encoded)} <= {3, 4}
    assert coder.link_bytes_per_s == pytest.approx(1e8)
    assert coder.saved_bytes > (ARENA_BYTES - WARM_BYTES - PROBE_BYTES) // 4
    coder.close()


class Interrupted:
    """A codec beside which another thread runs for a second whenever the sending thread tries it."""

    def __init__(self, name: str, clock: ManualClock) -> None:
        self._codec, self._clock = codec(name), clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)

    def encode(self, octets: memoryview) -> memoryview:
        if threading.current_thread() is threading.main_thread():
            self._clock.advance(1.0)
        return self._codec.encode(octets)


def test_a_codec_that_waits_for_a_core_while_it_is_tried_is_not_slow(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(coding, "codec", lambda name: Interrupted(name, clock))
    coder = Coder(arena, clock=clock, load=lambda: 0.5, spent_s=lambda: 0.0)
    coder.allow(ALL)
    assert Encoded in kinds(sent(coder, clock, 1e8))


def test_what_is_sent_covers_each_byte_once_and_in_order(arena: Arena) -> None:
    for choice in ("auto", "none", "zeros", "window", "exponents"):
        clock = ManualClock()
        coder = coder_of(arena, clock, choice)
        parts = extents_of(sent(coder, clock, 1e8, [Extent(5, 3 * MIB + 1), Extent(4 * MIB, 11 * MIB)]))
        octets = [offset for part in parts for offset in (part.offset, part.offset + part.nbytes)]
        assert octets == sorted(octets)
        assert sum(part.nbytes for part in parts) == 14 * MIB + 1
        coder.close()


def test_a_fast_link_carries_raw_bytes(arena: Arena) -> None:
    clock = ManualClock()
    assert kinds(sent(coder_of(arena, clock), clock, 3e9)) == {Chunk}


def test_a_busy_machine_carries_raw_bytes(arena: Arena) -> None:
    clock = ManualClock()
    coder = Coder(arena, clock=clock, load=lambda: 3.0)
    coder.allow(ALL)
    assert kinds(sent(coder, clock, 1e8)) == {Chunk}


def test_noise_travels_raw_on_a_slow_link_too(arena: Arena) -> None:
    fill(arena, np.random.default_rng(0).integers(0, 256, MIB, np.uint8))
    clock = ManualClock()
    coder = coder_of(arena, clock)
    assert kinds(sent(coder, clock, 1e7)) == {Chunk}
    assert coder.saved_bytes == 0


def test_fp16_travels_encoded_on_a_slow_link_by_the_code_of_exponents(arena: Arena) -> None:
    normal = np.random.default_rng(0).standard_normal(MIB // 2).astype(np.float16)
    fill(arena, normal.view(np.uint8))
    clock = ManualClock()
    coder = coder_of(arena, clock)
    records = sent(coder, clock, 1e7)
    assert {record.codec for record in records if isinstance(record, Encoded)} == {4}
    coded_bytes = ARENA_BYTES - WARM_BYTES - PROBE_BYTES
    assert coded_bytes / (coded_bytes - coder.saved_bytes) > 1.1
    coder.close()


def test_a_slice_that_does_not_shrink_travels_raw(arena: Arena) -> None:
    fill(arena, np.random.default_rng(0).integers(0, 256, MIB, np.uint8))
    clock = ManualClock()
    coder = coder_of(arena, clock, "window")
    assert kinds(sent(coder, clock, 1e7)) == {Chunk}
    coder.close()


def test_a_link_that_became_fast_is_found_out(arena: Arena) -> None:
    clock = ManualClock()
    coder = coder_of(arena, clock)
    assert Encoded in kinds(sent(coder, clock, 1e8))
    for _ in range(PROBE_AGAIN_BYTES // ARENA_BYTES + 1):
        sent(coder, clock, 3e9)
    assert kinds(sent(coder, clock, 3e9)) == {Chunk}
    coder.close()


def test_a_target_that_decodes_slower_than_the_link_is_sent_raw_bytes_after_one_step(arena: Arena) -> None:
    """What is sent waits for the target's decoder: a quarter of the link's rate, whatever crosses."""
    clock = ManualClock()
    coder = coder_of(arena, clock, numbers=(3,))
    sent(coder, clock, 1e8, [Extent(0, WARM_BYTES + PROBE_BYTES)])
    first = sent(coder, clock, 1e8 / 8)
    assert sum(record.extent.nbytes for record in first if isinstance(record, Encoded)) <= STEP_BYTES
    assert kinds(sent(coder, clock, 1e8)) == {Chunk}
    coder.close()


def test_a_target_that_said_nothing_is_sent_raw_bytes(arena: Arena) -> None:
    clock = ManualClock()
    records = sent(coder_of(arena, clock, numbers=()), clock, 1e7)
    assert kinds(records) == {Chunk}
    assert joined(extents_of(records)) == WHOLE


def test_a_link_that_is_never_to_encode_is_measured_too_for_its_streams(arena: Arena) -> None:
    clock = ManualClock()
    coder = coder_of(arena, clock, "none")
    assert kinds(sent(coder, clock, 1e8)) == {Chunk}
    assert coder.link_bytes_per_s == pytest.approx(1e8)


def test_a_codec_that_was_asked_for_and_is_not_decoded_there_is_no_silent_raw(arena: Arena) -> None:
    clock = ManualClock()
    with pytest.raises(MissingExtra):
        sent(coder_of(arena, clock, "exponents", numbers=(1, 2, 3)), clock, 1e8)


def test_an_unknown_codec_is_wrong_words() -> None:
    with pytest.raises(BadValue, match="a codec is one of"):
        TcpTransport(codec="gzip")


def test_shared_memory_has_no_codec() -> None:
    assert check_choice("auto", "shm") == "auto"
    with pytest.raises(BadValue, match="only tcp encodes"):
        check_choice("window", "shm")


def test_a_transport_with_another_codec_leaves_the_first_as_it_was() -> None:
    first = TcpTransport()
    assert (first.coding("window")._codec, first._codec) == ("window", "auto")


def test_a_post_given_up_half_way_leaves_nothing_that_reads_the_source(arena: Arena) -> None:
    clock = ManualClock()
    coder = coder_of(arena, clock, "window")
    records = coder.records(WHOLE, lambda extent: iter(()))
    next(records)
    records.close()
    coder.close()
    with pytest.raises(LinkCut):
        next(coder.records(WHOLE, lambda extent: iter(())))


@pytest.mark.parametrize("name", ["window", "exponents"])
async def test_coded_chunks_land_byte_for_byte_and_only_what_crossed_is_counted(name: str) -> None:
    async with linked(TcpTransport(codec=name)) as pair:
        fill(pair.source.arena, values(MIB))  # type: ignore[arg-type]
        crossed = await pair.source.post([Extent(0, CAPACITY_BYTES)], 20.0)
        await landed(pair.target, CAPACITY_BYTES)
        assert content(pair.target.arena) == content(pair.source.arena)
        assert CAPACITY_BYTES / 2 < crossed < CAPACITY_BYTES / 1.2


async def test_untouched_memory_crosses_as_next_to_nothing() -> None:
    async with linked(TcpTransport(codec="zeros")) as pair:
        fill(pair.source.arena, np.zeros(1, np.uint8))  # type: ignore[arg-type]
        crossed = await pair.source.post([Extent(0, CAPACITY_BYTES)], 20.0)
        await landed(pair.target, CAPACITY_BYTES)
        assert content(pair.target.arena) == bytes(CAPACITY_BYTES)
        assert crossed < CAPACITY_BYTES / 500


@pytest.mark.parametrize("number", [2, 3, 4, 5, 31])
def test_a_code_that_is_none_is_malformed_and_writes_nothing_outside_its_extent(arena: Arena, number: int) -> None:
    extent = Extent(MIB, SLICE_BYTES)
    before = content(arena)
    octets = np.random.default_rng(number).integers(0, 256, 5000, np.uint8).tobytes()

    def receive_into(view: memoryview) -> None:
        view[:] = octets[: view.nbytes]

    with pytest.raises(Malformed):
        Decoder(arena).land(Encoded(extent, len(octets), number), receive_into)
    after = content(arena)
    assert after[: extent.offset] == before[: extent.offset]
    assert after[extent.offset + extent.nbytes :] == before[extent.offset + extent.nbytes :]
