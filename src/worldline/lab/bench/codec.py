"""`bench codec`: what choosing a codec by measured rates does to the goodput of a shaped port, against raw bytes.

Both ends are threads of this process, each inside a network namespace of its own; every byte is digested where it
landed and compared with the source's digest, in both arms alike.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pydoc_data.topics import topics

import numpy as np

from worldline.clock import Clock
from worldline.codecs.registry import available
from worldline.codecs.registry import codec as codec_named
from worldline.errors import BadValue, Corrupt, Internal
from worldline.kernel import backend, kernel
from worldline.lab.bench.frame import Cell, Finding, Trial
from worldline.lab.bench.samples import Samples
from worldline.lab.fabric import Fabric
from worldline.schema.layout import LEAF_BYTES_MAX, Extent
from worldline.snapshot.arena import Arena
from worldline.transport.coding import AUTO, BUSY, NONE, load_a_core
from worldline.transport.protocol import CHUNK_BYTES, KEY_BYTES, Landed
from worldline.transport.tcp import TcpTransport
from worldline.units import parse_bytes, parse_rate
from worldline.verify.digests import leaf_digests
from worldline.verify.lanes import Lanes
from worldline.worlds.lm_sample import cache_octets

CODED, RAW = "chosen codec", "raw"
WAIT_S = 60.0
PAGE_BYTES = 4096
SAMPLE_BYTES = 1024 * 1024


def codec(
    trial: Trial,
    *,
    bytes: str = "384MB",  # noqa: A002 - the option's name
    rates: str = "1Gbit,5Gbit",
    tokens: int = 768,
    dtype: str = "bf16",
) -> Finding:
    """Sends keys and values of SmolLM2, none of them zero, through shaped ports: raw, and as `auto` does.

    The ratio is goodput with the codec / goodput raw at the first rate. Needs the extras lm and zstd, and the right to
    make network namespaces.

    Parameters
    ----------
    bytes: str
        To send each time; the cache's bytes again and again, each encoded anew.
    rates: str
        Of the ports, comma between.
    tokens: int
        In the model's cache.
    dtype: str
        To which they are cast: bf16 or fp16.
    """
    wanted = [rate.strip() for rate in rates.split(",")]
    if not all(map(parse_rate, wanted)):
        raise BadValue("a port has a rate")
    nbytes = parse_bytes(bytes) // LEAF_BYTES_MAX * LEAF_BYTES_MAX
    if nbytes <= 0:
        raise BadValue(f"a run sends {LEAF_BYTES_MAX} bytes or more")
    trial.say("SmolLM2 reads a text")
    octets = cache_octets("\n".join(topics.values()), tokens, dtype)
    if kernel().zeros(octets, PAGE_BYTES).any():
        raise Internal("the cache has zero granules")
    rows: list[Mapping[str, Cell]] = []
    found: list[Samples] = []
    with Arena.create(nbytes, "bench-source") as source, Arena.create(nbytes, "bench-target") as target:
        np.frombuffer(source.bytes_at(Extent(0, nbytes)), np.uint8)[:] = np.resize(octets, nbytes)
        expected = tuple(leaf_digests(source, leaves(0, nbytes)))
        for rate in wanted:
            trial.say(f"two hosts with ports of {rate}")
            with Fabric(2, rate) as fabric:
                course = Course(fabric, source, target, nbytes, expected, trial.clock)
                arms = {CODED: partial(course.run, AUTO), RAW: partial(course.run, NONE)}
                samples = trial.interleave(arms, "bytes/s")
            found.append(samples)
            rounds = [a / b for a, b in zip(samples.arms[CODED], samples.arms[RAW], strict=True)]
            rows.append(
                {
                    "port": rate,
                    "codec / raw": samples.ratio(CODED, RAW),
                    "lowest round": min(rounds),
                    "raw of the port": samples.medians[RAW] / parse_rate(rate),
                    "crossed of raw": course.crossed_bytes / nbytes,
                }
            )
    load = f"{load_a_core():.1f} runnable threads a core; over {BUSY} nothing is encoded"
    notes = (
        f"kernel {backend().name}",
        load,
        *(_figures(trial, name, octets) for name in available() if name != "raw"),
    )
    what = f"goodput with the codec / raw, port of {wanted[0]}"
    return Finding(found[0].ratio(CODED, RAW), what, found[0], rows=tuple(rows), notes=notes)


@dataclass(slots=True)
class Course:
    """From one host's arena to the other's, again and again."""

    fabric: Fabric
    source: Arena
    target: Arena
    nbytes: int
    expected: tuple[bytes, ...]
    clock: Clock
    crossed_bytes: int = 0
    """Of the last run that encoded."""

    def run(self, choice: str) -> float:
        """Verified bytes a second. Raises `Corrupt`."""
        np.frombuffer(self.target.bytes_at(Extent(0, self.nbytes)), np.uint8)[::PAGE_BYTES] ^= 0xFF  # no stale page
        key = secrets.token_bytes(KEY_BYTES)
        place: Future[str] = Future()
        sent: Future[None] = Future()
        over: Future[None] = Future()
        with ThreadPoolExecutor(2, "bench") as pool:
            there = pool.submit(self.fabric.call, "b", lambda: asyncio.run(self._receive(key, place, sent, over)))
            here = pool.submit(self.fabric.call, "a", lambda: asyncio.run(self._send(choice, key, place, sent, over)))
            ended_s, digests = there.result(WAIT_S)  # first: where the target fails, the source only sees a cut
            began_s, crossed = here.result(WAIT_S)
        if digests != self.expected:
            raise Corrupt("what landed is not what was sent")
        if choice != NONE:
            self.crossed_bytes = crossed
        return self.nbytes / (ended_s - began_s)

    async def _send(
        self, choice: str, key: bytes, place: Future[str], sent: Future[None], over: Future[None]
    ) -> tuple[float, int]:
        address = await asyncio.wrap_future(place)
        transport = TcpTransport(None, self.fabric.address("a"), fabric_private=True, codec=choice)
        link = await transport.connect(address, key, self.source, WAIT_S)
        try:
            began_s = self.clock.monotonic_s()
            chunks = [Extent(at, min(CHUNK_BYTES, self.nbytes - at)) for at in range(0, self.nbytes, CHUNK_BYTES)]
            try:
                crossed = await link.post(chunks, WAIT_S)
            finally:
                sent.set_result(None)
            await asyncio.wrap_future(over)
        finally:
            await link.fence()
        return began_s, crossed

    async def _receive(
        self, key: bytes, place: Future[str], sent: Future[None], over: Future[None]
    ) -> tuple[float, tuple[bytes, ...]]:
        transport = TcpTransport(None, self.fabric.address("b"), fabric_private=True)
        listener = await transport.listen(key, self.target)
        place.set_result(listener.address)
        link = await listener.accept(WAIT_S)
        lanes = Lanes(1)
        try:
            jobs: list[asyncio.Task[list[bytes]]] = []
            landed = queued = 0
            while landed < self.nbytes:
                event = await link.receive()
                if not isinstance(event, Landed):
                    continue
                landed += event.extent.nbytes
                whole = landed // LEAF_BYTES_MAX * LEAF_BYTES_MAX
                if whole > queued:  # in order: all below `landed` is there
                    jobs.append(asyncio.create_task(lanes.digests(self.target, leaves(queued, whole))))
                    queued = whole
            digests = [digest for part in await asyncio.gather(*jobs) for digest in part]
            ended_s = self.clock.monotonic_s()
            await asyncio.wrap_future(sent)  # a post that still returns would see the link close
        finally:
            over.set_result(None)
            await link.fence()
            await listener.close()
            lanes.close()
        return ended_s, tuple(digests)


def leaves(first: int, end: int) -> list[Extent]:
    return [Extent(start, LEAF_BYTES_MAX) for start in range(first, end, LEAF_BYTES_MAX)]


def _figures(trial: Trial, name: str, octets: np.ndarray) -> str:
    """What a codec does to these bytes in slices, a core."""
    by = codec_named(name)
    slices = [octets[at : at + SAMPLE_BYTES].data for at in range(0, octets.nbytes, SAMPLE_BYTES)]
    codes: list[memoryview] = []
    encode_s = trial.cpu_seconds(lambda: codes.extend(map(by.encode, slices)))
    backs = [memoryview(bytearray(each.nbytes)) for each in slices]

    def decode() -> None:
        for encoded, back in zip(codes, backs, strict=True):
            by.decode_into(encoded, back)

    decode_s = trial.cpu_seconds(decode)
    ratio = octets.nbytes / sum(code.nbytes for code in codes)
    rates = f"encodes {octets.nbytes / encode_s / 1e9:.2f}, decodes {octets.nbytes / decode_s / 1e9:.2f} GB/s a core"
    return f"{name}: {ratio:.3f} to 1, {rates}"
