"""Chunks that travel encoded, where that is faster than raw on this machine, this link and these bytes.

Source: `Coder` measures the link by the first raw bytes and again now and then, tries the codecs on a sample of what is
to be sent, and decides for each chunk (`capacity.coding`). A thread of its own encodes ahead of the sender.
Target: `Decoder` decodes into the arena, on the thread that receives.

Invariant: an encoded chunk writes within its extent alone, and is digested there as any other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from worldline.capacity.coding import Coding, best_codec
from worldline.clock import Clock, SystemClock, thread_cpu_s
from worldline.codecs.protocol import Codec
from worldline.codecs.registry import CODECS, available, codec, codec_of
from worldline.errors import BadValue, LinkCut, MissingExtra
from worldline.schema.layout import Extent
from worldline.transport.protocol import ArenaBytes
from worldline.transport.stream import Records
from worldline.verify.budget import Budget, Meter
from worldline.wire.encoded import Encoded
from worldline.wire.framing import ENCODED_BYTES_MAX
from worldline.wire.records import Chunk, encode

AUTO: Final = "auto"
NONE: Final = "none"
CHOICES: Final = (AUTO, NONE, *(name for name in CODECS if name != "raw"))
CODED_TRANSPORT: Final = "tcp"
MIB: Final = 1024 * 1024
SLICE_BYTES: Final = MIB
"""Encoded as one record: the target decodes it while its socket's buffer takes the next."""
AHEAD: Final = 3
"""Slices encoded before they are sent."""
CODED_BYTES_MIN: Final = 16 * 1024
WARM_BYTES: Final = 4 * MIB
"""The first bytes go into buffers and tell nothing of the link."""
WARM_WIDE_BYTES: Final = 16 * MIB
"""Where the link was fast before: its buffers are wide. The system doubles `channel.WIDE_BYTES`."""
PROBE_BYTES: Final = 2 * MIB
PROBE_AGAIN_BYTES: Final = 512 * MIB
"""After so much the link is measured anew: it may have become faster, or slower."""
LINK_BYTES_PER_S_MAX: Final = 1e9
"""Nothing is encoded for a faster link, whose several streams need the processors themselves."""
STEP_BYTES: Final = 8 * MIB
"""Encoded before it is looked at whether that was worth it."""
SAMPLE_BYTES: Final = 256 * 1024
SAMPLE_AGAIN_BYTES: Final = 32 * MIB
LIKELY: Final = {
    "zeros": Coding(1.0, 8e9, 8e9),
    "window": Coding(1.33, 2.5e9, 2.5e9),
    "exponents": Coding(1.5, 0.7e9, 1.5e9),
}
"""What a codec may do at best: where even this gains nothing it is not tried."""
BUSY: Final = 1.2
"""Runnable threads a core, over the last minute: beyond it coding would wait for a processor, and is not begun."""
WON_MIN: Final = 1.02
"""A step that was less than so many times as fast as the link is raw did not pay."""
REST_BYTES: Final = 64 * MIB
"""For how much such a codec is not used, at first."""
SHARE_OF_LAST: Final = 0.125
"""How much one more slice counts in what is known of a codec."""


@dataclass(frozen=True, slots=True)
class _Slice:
    extent: Extent
    encoded: memoryview
    seconds: float


def check_choice(choice: str, transport: str = CODED_TRANSPORT) -> str:
    """Raises `BadValue` for what is none of `CHOICES`, or needs another transport, and `MissingExtra`."""
    if choice not in CHOICES:
        raise BadValue(f"a codec is one of {', '.join(CHOICES)}, not {choice[:40]!r}")
    if choice not in {AUTO, NONE} and transport != CODED_TRANSPORT:
        raise BadValue(f"only {CODED_TRANSPORT} encodes what it carries; {transport[:40]} has no codec {choice}")
    if choice in CODECS:
        codec(choice)
    return choice


def load_a_core() -> float:
    """Runnable threads a core of this machine, over the last minute."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


class Coder:
    """Source side, of one link. All but `allow`, `choose_from` and `close` is called on the sending thread."""

    def __init__(
        self,
        arena: ArenaBytes,
        choice: str = AUTO,
        clock: Clock | None = None,
        load: Callable[[], float] | None = None,
        budget: Budget | None = None,
        spent_s: Callable[[], float] = thread_cpu_s,
    ) -> None:
        """`load`: runnable threads a core. What is spent of `budget` here, the sending thread waits for. `spent_s`: the
        calling thread's processor time.
        """
        self._arena = arena
        self.choice = check_choice(choice)
        self._clock = clock or SystemClock()
        self._load = load or load_a_core
        self._spent_s = spent_s
        self._budget = budget
        self._allowed: frozenset[str] = frozenset()
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: deque[tuple[Extent, Codec, Future[_Slice]]] = deque()
        self._known: dict[str, Coding] = {}
        self._unsampled_bytes = SAMPLE_AGAIN_BYTES
        self._warm_bytes = WARM_BYTES
        self._probed_bytes = 0
        self._probed_s = 0.0
        self._rests: dict[str, tuple[int, int]] = {}
        """Until how much was sent a codec rests, and how long its rest is."""
        self._sent_bytes = 0
        self._unprobed_bytes = 0
        self._closed = False
        self.link_bytes_per_s: float | None = None
        self.saved_bytes = 0
        """By which all encoded chunks together were shorter than raw."""

    def allow(self, numbers: Iterable[int]) -> None:
        """What the target said that it decodes."""
        wanted = frozenset(numbers)
        here = [name for name in available() if name != "raw"]
        self._allowed = frozenset(name for name in here if codec(name).number in wanted)

    def records(self, extents: Iterable[Extent], raw: Callable[[Extent], Records]) -> Records:
        """The records of a post. `raw` gives those of an extent that is not encoded."""
        try:
            for extent in extents:
                yield from self._records_of(extent, raw)
            yield from self._flush(0)
        finally:
            for _, _, future in self._ahead:  # given up half done
                future.cancel()
            self._ahead.clear()

    def close(self) -> None:
        """Ends its thread. From the loop, while the sending thread may be here."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _records_of(self, extent: Extent, raw: Callable[[Extent], Records]) -> Records:
        if self._probing:
            yield from self._flush(0)
            probe = Extent(extent.offset, min(extent.nbytes, self._probe_bytes_left))
            yield from self._probe(probe)
            if probe.nbytes == extent.nbytes:
                return
            extent = Extent(extent.offset + probe.nbytes, extent.nbytes - probe.nbytes)
        while extent.nbytes > 0:
            name = self._choose(extent)
            if name is None:
                self._count(extent.nbytes)
                yield from self._flush(0)
                yield from raw(extent)
                return
            step = Extent(extent.offset, min(extent.nbytes, STEP_BYTES))
            self._count(step.nbytes)
            yield from self._code(step, codec(name))
            extent = Extent(step.offset + step.nbytes, extent.nbytes - step.nbytes)

    def _code(self, step: Extent, by: Codec) -> Records:
        began_s = self._clock.monotonic_s()
        for part in _cut(step, SLICE_BYTES):
            self._encode_ahead(part, by)
            yield from self._flush(AHEAD)
        self._judge(by.name, step.nbytes, self._clock.monotonic_s() - began_s)

    def _count(self, nbytes: int) -> None:
        self._sent_bytes += nbytes
        self._unprobed_bytes += nbytes
        if self._unprobed_bytes >= PROBE_AGAIN_BYTES:
            self._unprobed_bytes, self._probed_bytes, self._probed_s = 0, 0, 0.0
            wide = self.link_bytes_per_s is not None and self.link_bytes_per_s >= LINK_BYTES_PER_S_MAX
            self._warm_bytes = WARM_WIDE_BYTES if wide else WARM_BYTES
            self.link_bytes_per_s = None

    # ---- the link

    @property
    def _probing(self) -> bool:
        return self.choice in {AUTO, NONE} and self.link_bytes_per_s is None

    @property
    def _probe_bytes_left(self) -> int:
        return self._warm_bytes + PROBE_BYTES - self._probed_bytes

    def _probe(self, extent: Extent) -> Records:
        """Raw, on the link's own stream; what is asked for next is asked for when this has left."""
        for part in _cut(extent, SLICE_BYTES):
            began_s = self._clock.monotonic_s()
            yield encode(Chunk(part)), part
            spent_s = self._clock.monotonic_s() - began_s
            if self._warm_bytes > 0:
                self._warm_bytes = max(0, self._warm_bytes - part.nbytes)
            else:
                self._probed_bytes += part.nbytes
                self._probed_s += spent_s
        if self._probed_bytes >= PROBE_BYTES:
            self.link_bytes_per_s = self._probed_bytes / max(self._probed_s, 1e-9)

    # ---- the codecs

    def _choose(self, extent: Extent) -> str | None:
        if self.choice == NONE or extent.nbytes < CODED_BYTES_MIN:
            return None
        if self.choice != AUTO:
            if self.choice not in self._allowed:
                raise MissingExtra(f"the target does not decode {self.choice}: it may lack the extra zstd")
            return self.choice
        link = self.link_bytes_per_s
        if link is None or link > LINK_BYTES_PER_S_MAX or not self._allowed:
            return None
        self._unsampled_bytes += extent.nbytes
        if self._unsampled_bytes >= SAMPLE_AGAIN_BYTES and extent.nbytes >= SAMPLE_BYTES:
            self._unsampled_bytes = 0
            self._sample(extent, link)
        awake = {
            name: coding for name, coding in self._known.items() if self._rests.get(name, (0, 0))[0] <= self._sent_bytes
        }
        return best_codec(link, max(extent.nbytes, STEP_BYTES), SLICE_BYTES, awake)

    def _sample(self, extent: Extent, link_bytes_per_s: float) -> None:
        """Tries each codec that may gain on a part from the middle; none on a busy machine. By processor time: half a
        millisecond by the wall, with another thread in its middle, says that a codec is ten times as slow as it is.
        """
        part = Extent(extent.offset + (extent.nbytes - SAMPLE_BYTES) // 2, SAMPLE_BYTES)
        octets = bytes(self._arena.bytes_at(part))
        back = memoryview(bytearray(SAMPLE_BYTES))
        self._known.clear()
        if self._load() > BUSY:
            return
        for name in sorted(self._allowed):
            likely = replace(LIKELY[name], ratio=64.0) if name == "zeros" else LIKELY[name]
            if best_codec(link_bytes_per_s, MIB * 1024, SLICE_BYTES, {name: likely}) is None:
                continue
            began_s = self._spent_s()
            encoded = codec(name).encode(memoryview(octets))
            between_s = self._spent_s()
            codec(name).decode_into(encoded, back)
            decode_s = self._spent_s() - between_s
            rates = [SAMPLE_BYTES / max(spent_s, 1e-9) for spent_s in (between_s - began_s, decode_s)]
            self._known[name] = Coding(SAMPLE_BYTES / encoded.nbytes, *rates)

    def _judge(self, name: str, nbytes: int, spent_s: float) -> None:
        """What was slower than the raw link was rests, longer each time: whatever the reason, it did not pay."""
        link = self.link_bytes_per_s
        if link is None or nbytes < STEP_BYTES or nbytes >= link * spent_s * WON_MIN:
            return
        rest_bytes = 2 * self._rests.get(name, (0, REST_BYTES // 2))[1]
        self._rests[name] = (self._sent_bytes + rest_bytes, rest_bytes)

    def _encode_ahead(self, part: Extent, by: Codec) -> None:
        if self._closed:
            raise LinkCut("the link was closed on this side")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="tcp-source-encode")
        try:
            self._ahead.append((part, by, self._pool.submit(self._encode, part, by)))
        except RuntimeError as error:  # it was shut down meanwhile
            raise LinkCut("the link was closed on this side") from error

    def _encode(self, part: Extent, by: Codec) -> _Slice:
        began_s, meter = self._clock.monotonic_s(), Meter(self._budget)
        with self._arena.bytes_at(part) as view:
            encoded = by.encode(view)
        meter.count()
        return _Slice(part, encoded, self._clock.monotonic_s() - began_s)

    def _flush(self, keep: int) -> Records:
        """What is encoded, but for the last `keep` slices."""
        while len(self._ahead) > keep:
            part, by, future = self._ahead[0]
            try:
                done = future.result()
            except CancelledError as error:
                raise LinkCut("the link was closed on this side") from error
            self._ahead.popleft()
            self._learn(by.name, done)
            if done.encoded.nbytes < part.nbytes:
                self.saved_bytes += part.nbytes - done.encoded.nbytes
                yield encode(Encoded(part, done.encoded.nbytes, by.number)), done.encoded
            else:
                yield encode(Chunk(part)), part

    def _learn(self, name: str, done: _Slice) -> None:
        known = self._known.get(name)
        if known is not None:
            nbytes = done.extent.nbytes
            self._known[name] = replace(
                known,
                ratio=1 / _moved(1 / known.ratio, done.encoded.nbytes / nbytes),
                encode_bytes_per_s=1 / _moved(1 / known.encode_bytes_per_s, done.seconds / nbytes),
            )


class Decoder:
    """Target side, of one link; on the thread that receives."""

    def __init__(self, arena: ArenaBytes) -> None:
        self._arena = arena
        self._room = memoryview(bytearray(0))

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the codecs that it decodes."""
        return tuple(sorted(codec(name).number for name in available()))

    def land(self, record: Encoded, receive_into: Callable[[memoryview], None]) -> Extent:
        """Receives, decodes and returns what landed. Raises `Malformed`; the extent lies within the arena."""
        by = codec_of(record.codec)
        if self._room.nbytes < record.encoded_bytes:
            self._room = memoryview(bytearray(min(ENCODED_BYTES_MAX, 2 * record.encoded_bytes)))
        encoded = self._room[: record.encoded_bytes]
        receive_into(encoded)
        with self._arena.bytes_at(record.extent) as view:
            by.decode_into(encoded, view)
        return record.extent


def _cut(extent: Extent, nbytes: int) -> Iterator[Extent]:
    """Stretches of about `nbytes`; what is left at the end goes with the last one where it is under half of that."""
    offset, end = extent.offset, extent.offset + extent.nbytes
    while offset < end:
        size = end - offset if end - offset < nbytes * 3 // 2 else nbytes
        yield Extent(offset, size)
        offset += size


def _moved(before: float, last: float) -> float:
    return before + (last - before) * SHARE_OF_LAST
