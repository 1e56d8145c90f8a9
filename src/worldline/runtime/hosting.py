"""A session on a host: its queue of actions, its engine thread, and the peers that watch its blocks.

Invariants
  Block n applies action n: a number is applied once and in order, or not at all.
  The engine is touched by one thread, and by one holder of `boundary` at a time; whoever holds it stands between two
  blocks. A block is sent to its watchers before the next holder of `boundary` can take a cut, so no cut overtakes its
  own block. A session whose engine raised inside a block makes no block any more and gives no state away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import statistics
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from worldline.errors import (
    ActionGap,
    MoveInProgress,
    NoCapacity,
    Poisoned,
    SessionClosed,
    StaleEpoch,
    Unavailable,
    WorldlineError,
)
from worldline.runtime.host_engine import Engine, Made
from worldline.runtime.host_worlds import Built
from worldline.runtime.messages import Act, Attach, Block, Rejected, SessionFacts, SessionFailed, SessionSpec
from worldline.runtime.rpc_peer import Peer

ACTIONS_MAX = 1024
"""Actions that may wait; the next one is rejected and sent again by the gateway."""
RECENT_BLOCKS = 16
"""Kept for a watcher that lost its connection."""
STEP_WINDOW = 64

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which session this is, under which owner, and how it came here."""

    session: str
    epoch: int
    spec: SessionSpec
    witness: bool
    move: str | None = None
    """The move, park or resume that brought it; None where it was opened."""


class EngineThread:
    """One thread for one engine. What it has begun is always waited for: it can't be interrupted."""

    def __init__(self, session: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"engine-{session}")

    async def do(self, work: Callable[[], T]) -> T:
        """`work()` in the thread. A cancellation takes effect only after it has ended. An engine that asks for the end
        of the process, which is the whole host's, has failed.
        """
        future: Future[T] = self._pool.submit(_without_exit, work)
        waiting = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([waiting])
            if not waiting.cancelled():
                waiting.exception()  # seen: the caller is gone
            raise

    def leave(self, work: Callable[[], object]) -> None:
        """The thread does this as its last, and nobody waits for it."""
        self._pool.submit(work)
        self._pool.shutdown(wait=False)

    def join(self) -> None:
        """Ends the thread and returns when it is gone. Idempotent."""
        self._pool.shutdown(wait=True)


def _without_exit(work: Callable[[], T]) -> T:
    try:
        return work()
    except SystemExit as error:
        raise RuntimeError(f"it asked for the process to end, with {error.code!r}") from error


class HostedSession:
    """One session. `start` lets it play, `close` ends it; between them it plays whenever it has an action and is not
    held.
    """

    def __init__(
        self,
        identity: Identity,
        built: Built,
        engine: Engine,
        thread: EngineThread,
        on_failed: Callable[[SessionFailed], None],
    ) -> None:
        self.identity = identity
        self.built = built
        self.engine = engine
        self.poisoned: str | None = None
        self.held_by: str | None = None
        """The move for which the session is frozen."""
        self._thread = thread
        self._on_failed = on_failed
        self._boundary = asyncio.Lock()  # fair: who waits gets it after the block in the making
        self._actions: deque[Act] = deque()
        self._work = asyncio.Event()
        self._watchers: dict[Peer, Attach] = {}
        self._recent: deque[Made] = deque(maxlen=RECENT_BLOCKS)
        self._steps_s: deque[float] = deque(maxlen=STEP_WINDOW)
        self._last_queued = engine.position.number
        self._acted_at_s = engine.clock.wall_s()
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Lets the session play."""
        assert self._task is None, "a session is started once"
        self._task = asyncio.create_task(self._play(), name=f"play-{self.identity.session}")

    async def close(self, wait: bool = True) -> None:
        """Ends the session here: loop and thread joined, arena unmapped. Once; whoever asks again, or gives up asking
        and asks anew, waits for the same end.

        Without `wait`, for an arena that lives on elsewhere: nothing of this process reaches it when this returns, and
        what is left of the world is freed after that.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._end(wait), name=f"close-{self.identity.session}")
        await asyncio.shield(self._closing)

    async def _end(self, wait: bool) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._lock_or_held():
            if wait:
                await self._thread.do(self.engine.close)
                self._thread.join()
            else:
                self.engine.arena.close(wait=False)
                self._thread.leave(self.engine.let_go)
        self._watchers.clear()
        self._recent.clear()  # a move that ended is remembered, and its session with it: not its pictures

    @property
    def closed(self) -> bool:
        return self._closing is not None

    # ---- play

    def act(self, action: Act) -> Rejected | None:
        """Queues an action; None if it was taken, or is a repetition. Never waits."""
        if action.number <= self._last_queued and action.epoch == self.identity.epoch:
            return None
        problem = self._problem_with(action)
        if problem is not None:
            code, sentence = problem
            return Rejected(action.session, action.epoch, action.number, self._last_queued + 1, code, sentence)
        self._last_queued = action.number
        self._acted_at_s = self.engine.clock.wall_s()
        self._actions.append(action)
        self._work.set()
        return None

    def attach(self, peer: Peer, wish: Attach) -> SessionFacts:
        """Sends blocks to `peer` from now on, after those it says it has missed. Raises `StaleEpoch`, `Poisoned`."""
        if wish.epoch != self.identity.epoch:
            raise StaleEpoch(
                f"epoch {wish.epoch} of session {wish.session} is not in force here",
                asked=wish.epoch,
                here=self.identity.epoch,
            )
        self._refuse_if_unusable()
        self._watchers[peer] = wish
        if wish.after is not None:
            for made in self._recent:
                if made.block > wish.after:
                    self._send(peer, wish, made)
        return self.facts()

    def detach(self, peer: Peer) -> None:
        self._watchers.pop(peer, None)

    def facts(self) -> SessionFacts:
        position, world = self.engine.position, self.built.world
        return SessionFacts(
            session=self.identity.session,
            epoch=self.identity.epoch,
            spec=self.identity.spec,
            block=position.block,
            number=position.number,
            frame=position.frame,
            state_bytes=self.engine.state_bytes,
            frozen=self.held_by is not None,
            plan=self.built.plan,
            block_ms_median=1e3 * statistics.median(self._steps_s) if self._steps_s else None,
            readout=world.readout,
            actions=list(world.actions),
            poisoned=self.poisoned,
            acted_at_s=self._acted_at_s,
            arena_bytes=world.state_bytes_max,
        )

    # ---- boundaries

    @contextlib.asynccontextmanager
    async def at_boundary(self) -> AsyncIterator[None]:
        """Between two blocks, the engine idle, until the context ends. Raises `Poisoned`, `SessionClosed`."""
        async with self._boundary:
            self._refuse_if_unusable()
            yield

    async def hold(self, move: str) -> None:
        """Freezes the session at the next block boundary, until `release`. Raises as `at_boundary`."""
        await self._boundary.acquire()
        try:
            self._refuse_if_unusable()
        except WorldlineError:
            self._boundary.release()
            raise
        self.held_by = move

    def release(self, move: str) -> None:
        """Lets the session play on, if it was `move` that froze it. Idempotent."""
        if self.held_by == move:
            self.held_by = None
            self._boundary.release()

    def reign_again(self, move: str, epoch: int) -> None:
        """From now on under a later epoch: the host to which `move` took the session made no block of it. Who watched
        it under the epoch before attaches anew; actions that wait keep their numbers. Idempotent.

        Raises `StaleEpoch` where the session is not held by `move`: what it made since is of the epoch it has.
        """
        if self.identity.epoch >= epoch:
            return
        if self.held_by != move:
            raise StaleEpoch(f"session {self.identity.session} is not frozen by move {move}", here=self.identity.epoch)
        self.identity = replace(self.identity, epoch=epoch)
        self._watchers.clear()

    async def do(self, work: Callable[[Engine], T]) -> T:
        """`work` in the engine's thread; the caller stands at a boundary."""
        assert self._boundary.locked(), "the engine is touched between blocks only"
        self._refuse_if_unusable()
        return await self._thread.do(lambda: work(self.engine))

    # ---- the loop

    async def _play(self) -> None:
        while self.poisoned is None:
            await self._work.wait()
            async with self._boundary:
                if self._actions:
                    await self._make_block(self._actions[0])
            if not self._actions:
                self._work.clear()

    async def _make_block(self, action: Act) -> None:
        engine, witness = self.engine, self.identity.witness
        try:
            made = await self._thread.do(lambda: engine.step(action.number, action.action, witness))
        except Exception as error:  # noqa: BLE001 - the root of the engine's work: the state is inside a block now
            self._poison(error)
            return
        self._actions.popleft()
        self._steps_s.append(made.step_s)
        self._recent.append(made)
        for peer, wish in tuple(self._watchers.items()):
            self._send(peer, wish, made)

    def _poison(self, error: Exception) -> None:
        who = self.identity
        log.error("session %s epoch %d: the engine failed inside a block", who.session, who.epoch, exc_info=error)
        self.poisoned = f"the engine failed inside block {self.engine.position.block + 1}: {error!r}"[:1000]
        self._actions.clear()
        self._on_failed(SessionFailed(who.session, who.epoch, self.poisoned))

    def _send(self, peer: Peer, wish: Attach, made: Made) -> None:
        shown = made.shown
        block = Block(
            session=self.identity.session,
            epoch=self.identity.epoch,
            block=made.block,
            number=made.number,
            frame=made.frame,
            frames=shown.frames,
            encoding=shown.encoding,
            height=shown.height,
            width=shown.width,
            payload=shown.payload if wish.frames else b"",
            digest=shown.digest,
            root=made.root,
            raw=shown.raw if wish.raw else None,
            step_ms=1e3 * made.step_s,
        )
        try:
            peer.notify(block)
        except Unavailable:
            self.detach(peer)

    # ---- what is in the way

    def _problem_with(self, action: Act) -> tuple[str, str] | None:
        if action.epoch != self.identity.epoch:
            return StaleEpoch.code, f"epoch {action.epoch} is not in force here; {self.identity.epoch} is"
        if self.poisoned is not None:
            return Poisoned.code, self.poisoned
        if action.number != self._last_queued + 1:
            return ActionGap.code, f"action {action.number} jumps: {self._last_queued + 1} is next"
        if len(self._actions) >= ACTIONS_MAX:
            return NoCapacity.code, f"{ACTIONS_MAX} actions wait already"
        return self.built.problem_with(action.action)

    def _refuse_if_unusable(self) -> None:
        if self.closed:
            raise SessionClosed(f"session {self.identity.session} is closed on this host")
        if self.poisoned is not None:
            raise Poisoned(self.poisoned, session=self.identity.session)

    @contextlib.asynccontextmanager
    async def _lock_or_held(self) -> AsyncIterator[None]:
        """For `close`: a frozen session has its boundary already, and nobody else will give it back."""
        if self.held_by is None:
            await self._boundary.acquire()
        self.held_by = None
        try:
            yield
        finally:
            self._boundary.release()


def refuse_if_held(session: HostedSession, move: str) -> None:
    """Raises `MoveInProgress` where another move has frozen the session."""
    if session.held_by not in {None, move}:
        raise MoveInProgress(f"session {session.identity.session} is frozen by move {session.held_by}")
