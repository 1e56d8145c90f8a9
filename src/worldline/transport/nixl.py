"""NIXL between processes of one machine: its UCX backend writes from arena to arena, over TCP.

NIXL authenticates nobody, verifies nothing, knows no deadline, and a transfer that was given up may still write. So:
peers meet over a Unix socket in a private directory, prove the attempt's key there, and only then learn where the
target's memory is; UCX listens on one interface, loopback unless told otherwise; and

Invariants
  Bytes count as landed when NIXL has said DONE and the source has said so on the socket. No other status is success.
  The fence destroys this side's agent. Over TCP it is the target's own agent that writes into the target's memory, so
  nothing can be written later; transports of UCX in which a peer writes by itself (cma, xpmem) are not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, Final

import numpy as np

from worldline.errors import LinkCut, Malformed, MissingExtra, TimedOut
from worldline.schema.layout import Extent
from worldline.transport.deadline import Deadline
from worldline.transport.handshake import admit_source, check_key, prove_to_target, receive_exactly
from worldline.transport.protocol import ArenaBytes, Link, Listener
from worldline.transport.rendezvous import Admitted, SocketListener
from worldline.transport.stream import Carrier, Records, StreamLink, check_landing
from worldline.transport.unix import check_path, check_same_user, connect_to, private_listener
from worldline.wire.records import Record, Shared, encode

MIB: Final = 1024 * 1024
UCX_TLS: Final = "tcp"
LOOPBACK_INTERFACE: Final = "lo"
WRITE_BYTES: Final = 64 * MIB
WRITE_EXTENTS: Final = 4096
WATCH_S: Final = 20.0
"""A write of at most 64 MiB that has not ended by then is making no progress."""
RELEASE_S: Final = 0.3
"""How long a transfer that was given up may take to end."""
POLL_S: Final = 0.0003
METADATA_BYTES_MAX: Final = 64 * 1024

_TOLD = struct.Struct("<4sIQQ")
_TOLD_MAGIC: Final = b"WLDX"
_AGENTS = threading.Lock()
"""UCX reads its settings from the environment when an agent is made."""


class Agent:
    """One NIXL agent that knows one arena. One thread at a time."""

    def __init__(self, arena: ArenaBytes, interface: str, *, passive: bool) -> None:
        """`passive`: its own thread takes what comes. At both sides none would come, and two would spin."""
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.name = secrets.token_hex(16)
        self._ending = threading.Lock()
        self.capacity = arena.capacity
        self.address = int(np.frombuffer(arena.bytes_at(Extent(0, 1)), np.uint8).__array_interface__["data"][0])
        with _AGENTS, _settings(interface):
            self._agent: Any = nixl_agent(self.name, nixl_agent_config(passive, False, 0, backends=["UCX"]))
        try:
            self._memory = self._agent.register_memory([(self.address, self.capacity, 0, "")], "DRAM")
        except Exception as error:
            self._agent = None
            raise LinkCut(f"NIXL does not take the arena: {error}") from error

    @property
    def metadata(self) -> bytes:
        return bytes(self._agent.get_agent_metadata())

    def know(self, metadata: bytes) -> str:
        """The name of the peer whose metadata it is. Raises `LinkCut`."""
        try:
            name = self._agent.add_remote_agent(metadata)
        except Exception as error:  # NIXL's own errors share no class but this
            raise LinkCut(f"NIXL does not take the target: {error}") from error
        return str(name.decode() if isinstance(name, bytes) else name)

    def write(self, peer: str, peer_address: int, extents: Sequence[Extent], waits: Callable[[], None]) -> None:
        """Returns once NIXL has said DONE. `waits` is called between two looks, and may raise. Raises `LinkCut`."""
        handle = None
        try:
            mine = self._agent.get_xfer_descs([(self.address + e.offset, e.nbytes, 0) for e in extents], "DRAM")
            theirs = self._agent.get_xfer_descs([(peer_address + e.offset, e.nbytes, 0) for e in extents], "DRAM")
            handle = self._agent.initialize_xfer("WRITE", mine, theirs, peer)
            status = self._agent.transfer(handle)
            while status == "PROC":
                waits()
                status = self._agent.check_xfer_state(handle)
        except (LinkCut, TimedOut):
            raise
        except Exception as error:
            raise LinkCut(f"NIXL failed: {error}") from error
        finally:
            if handle is not None:
                self._release(handle)
        if status != "DONE":
            raise LinkCut(f"NIXL ended a write with {status}")

    def _release(self, handle: Any) -> None:
        """Once the transfer has ended; one that does not end is left to go with its agent. UCX frees what is released,
        and where that is still under way, uses it again when the agent goes: the process crashes.
        """
        end, pause = Deadline(RELEASE_S), threading.Event()
        with contextlib.suppress(Exception):  # it ended; NIXL's own errors share no class but this
            while self._agent.check_xfer_state(handle) == "PROC":
                if end.passed:
                    handle._released = True  # else its `__del__` releases it
                    return
                pause.wait(POLL_S)
        with contextlib.suppress(Exception):
            handle.release()

    def destroy(self) -> None:
        """After it returned no thread of the agent is left, and nothing it knew is written. Idempotent."""
        with self._ending:
            if self._agent is not None:
                with contextlib.suppress(Exception):
                    self._agent.deregister_memory(self._memory)
                self._agent = self._memory = None
                gc.collect()  # handles of a broken write refer to each other


@contextlib.contextmanager
def _settings(interface: str) -> Iterator[None]:
    wanted = {"UCX_TLS": UCX_TLS, "UCX_NET_DEVICES": interface, "UCX_LOG_LEVEL": "fatal", "NIXL_LOG_LEVEL": "FATAL"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class NixlSource(Carrier):
    """Writes, then says what it wrote."""

    is_target = False

    def __init__(self, agent: Agent, peer: str, peer_address: int, peer_capacity: int) -> None:
        self._agent = agent
        self._peer, self._peer_address, self._peer_capacity = peer, peer_address, peer_capacity
        self._using = threading.Lock()
        self._ended = threading.Event()
        self._rate_bytes_per_s: float | None = None

    def outgoing(self, extents: Sequence[Extent], deadline: Deadline) -> Records:
        for batch in self._batches(extents):
            with self._using:
                if self._ended.is_set():
                    raise LinkCut("the link is closed")
                within = [extent for extent in batch if extent.offset + extent.nbytes <= self._peer_capacity]
                if within:
                    self._write(within, deadline)
            yield encode(Shared(tuple(batch))), memoryview(b"")  # one beyond the arena is the target's to refuse

    def _write(self, extents: Sequence[Extent], deadline: Deadline) -> None:
        watch = Deadline(WATCH_S)

        def waits() -> None:
            if self._ended.wait(POLL_S):
                raise LinkCut("the link was closed in the middle of a transfer")
            if deadline.passed:
                raise TimedOut("the bytes were not written in time")
            if watch.passed:
                raise TimedOut(f"a write made no progress in {WATCH_S:g} s")

        self._agent.write(self._peer, self._peer_address, extents, waits)
        if self._rate_bytes_per_s is not None:
            nbytes = sum(extent.nbytes for extent in extents)
            self._ended.wait(min(nbytes / self._rate_bytes_per_s, deadline.left_s))

    def _batches(self, extents: Sequence[Extent]) -> Iterator[list[Extent]]:
        batch: list[Extent] = []
        nbytes = 0
        for extent in extents:
            if batch and (nbytes + extent.nbytes > self._write_bytes or len(batch) >= WRITE_EXTENTS):
                yield batch
                batch, nbytes = [], 0
            batch.append(extent)
            nbytes += extent.nbytes
        if batch:
            yield batch

    @property
    def _write_bytes(self) -> int:
        """Small writes keep a rate; large ones cost less."""
        return WRITE_BYTES if self._rate_bytes_per_s is None else MIB

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Iterable[Extent]:
        raise Malformed(f"{type(record).__name__} is not a record for this side of a nixl link")

    def crossed(self, extents: Sequence[Extent]) -> int:
        return sum(extent.nbytes for extent in extents)

    def pace(self, rate_bytes_per_s: float | None) -> None:
        self._rate_bytes_per_s = rate_bytes_per_s

    def shut(self, how: int) -> None:
        if how:  # SHUT_RD is 0, and nothing is read here
            self._ended.set()

    async def close(self) -> None:
        self._ended.set()
        await asyncio.to_thread(self._destroy)

    def _destroy(self) -> None:
        with self._using:  # a write notices the end within a look
            self._agent.destroy()


class NixlTarget(Carrier):
    """Hears what was written."""

    is_target = True

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def landing(self, record: Record, receive_into: Callable[[memoryview], None]) -> Iterable[Extent]:
        if not isinstance(record, Shared):
            raise Malformed(f"{type(record).__name__} is not a record for this side of a nixl link")
        for extent in record.extents:
            check_landing(extent, self._agent.capacity)
        return record.extents

    def crossed(self, extents: Sequence[Extent]) -> int:
        return sum(extent.nbytes for extent in extents)

    async def close(self) -> None:
        await asyncio.to_thread(self._agent.destroy)


class NixlListener:
    """See `Listener`. The agent is the link's once there is one, and goes with the listener where there is none."""

    def __init__(self, inner: SocketListener[Link], agent: Agent) -> None:
        self._inner = inner
        self._agent = agent
        self._linked = False

    @property
    def address(self) -> str:
        return self._inner.address

    async def accept(self, deadline_s: float) -> Link:
        link = await self._inner.accept(deadline_s)
        self._linked = True
        return link

    async def close(self) -> None:
        await self._inner.close()
        if not self._linked:
            await asyncio.to_thread(self._agent.destroy)


class NixlTransport:
    """See `Transport`. Between processes of one user on one machine, whatever network namespaces they are in."""

    name = "nixl"
    hands_over = False

    def __init__(self, interface: str = LOOPBACK_INTERFACE) -> None:
        """`interface` is where UCX listens: whoever reaches it there could write into the arena of an attempt, so it
        is loopback, or a link that leads to nobody else, such as an emulated fabric's. Raises `MissingExtra`.
        """
        try:
            import nixl_cu12._api  # noqa: F401
        except ImportError as error:
            raise MissingExtra(
                "transport nixl needs NIXL: pip install --no-deps nixl-cu12 (its meta package brings 5 GB)"
            ) from error
        self._interface = interface

    async def listen(self, key: bytes, arena: ArenaBytes | None) -> Listener:
        check_key(key)
        if arena is None:
            raise ValueError("nixl needs an arena to write into")
        own = arena
        agent = await asyncio.to_thread(Agent, own, self._interface, passive=True)
        try:
            sock, path, clean_up = private_listener()
        except BaseException:
            agent.destroy()
            raise

        async def admit(peer: socket) -> Admitted:
            check_same_user(peer)
            await admit_source(peer, key)
            metadata = agent.metadata
            told = _TOLD.pack(_TOLD_MAGIC, len(metadata), agent.address, agent.capacity) + metadata
            await asyncio.get_running_loop().sock_sendall(peer, told)
            return Admitted(peer, own, handed_over=False)

        def to_link(peer: Admitted) -> Link:
            return StreamLink(peer.sock, own, NixlTarget(agent), "nixl-target")

        return NixlListener(SocketListener(sock, path, admit, to_link, clean_up), agent)

    async def connect(self, address: str, key: bytes, arena: ArenaBytes, deadline_s: float) -> Link:
        check_key(key)
        check_path(address)
        sock = socket(AF_UNIX, SOCK_STREAM)
        agent: Agent | None = None
        try:
            sock.setblocking(False)
            async with asyncio.timeout(deadline_s):
                await connect_to(sock, address)
                check_same_user(sock)
                await prove_to_target(sock, key)
                magic, nbytes, peer_address, peer_capacity = _TOLD.unpack(await receive_exactly(sock, _TOLD.size))
                if magic != _TOLD_MAGIC or nbytes > METADATA_BYTES_MAX:
                    raise Malformed("a target tells of its memory in another format")
                metadata = await receive_exactly(sock, nbytes)
                agent = await asyncio.to_thread(Agent, arena, self._interface, passive=False)
                peer = await asyncio.to_thread(agent.know, metadata)
        except BaseException as error:
            sock.close()
            if agent is not None:
                agent.destroy()
            if isinstance(error, TimeoutError):
                raise TimedOut(f"no link to {address} within {deadline_s} s") from error
            if isinstance(error, OSError):
                raise LinkCut(f"no link to {address}: {error.strerror or error}") from error
            raise
        return StreamLink(sock, arena, NixlSource(agent, peer, peer_address, peer_capacity), "nixl-source")
