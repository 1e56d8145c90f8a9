"""One session's traffic at the gateway: actions to its owner, blocks to who watches, over changes of the owner.

`control.playback` decides; here are the links, the watchers and the waiting. A watcher never waits for another, and a
slow one costs a bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import assert_never

from worldline.clock import Clock
from worldline.control import playback as words
from worldline.control.lifecycle import Status, Verb, begin
from worldline.control.playback import Playback
from worldline.errors import (
    ActionGap,
    BadValue,
    Fact,
    HostGone,
    LinkCut,
    MoveInProgress,
    SessionClosed,
    SessionParked,
    StaleEpoch,
    TimedOut,
    Unavailable,
    UnknownSession,
    WorldlineError,
    from_record,
)
from worldline.runtime.gateway_kept import BLOCKS_KEPT, Kept
from worldline.runtime.gateway_told import Drive, Gap, Missed, Ready, Shown, Told, Trouble, Watcher
from worldline.runtime.gateway_twin import Mirror
from worldline.runtime.messages import Act, Attach, Block, Detach, Rejected, Session, SessionFacts, SessionFailed
from worldline.runtime.rpc import Reconnecting
from worldline.schema.ids import Epoch, HostId, SessionId

ATTACH_WAIT_S = 10.0
ATTACH_PAUSE_FIRST_S = 0.005
"""An owner is told of once it plays; if its host can't be reached at once, it is attached to soon after it can."""
ATTACH_PAUSE_MAX_S = 0.5
WAKE_PAUSE_S = 0.05
"""Between two tries to wake a session that something else still changes."""
WAKE_TRY_S = 60.0

log = logging.getLogger(__name__)


class Play:
    """Made when somebody plays or watches; ends when the session is closed, or nobody does any more."""

    def __init__(
        self,
        session: Session,
        link_to: Callable[[str], Reconnecting],
        wake: Callable[[str], Awaitable[Session]],
        clock: Clock,
    ) -> None:
        """`wake` resumes a session that was parked because nobody played it."""
        self.session = session
        self._link_to = link_to
        self._wake = wake
        self._waking_up = asyncio.Lock()
        self._clock = clock
        self._playback: Playback | None = None
        self._started = asyncio.Event()
        self._failure: WorldlineError | None = None
        self._watchers: list[Watcher] = []
        self._driver: Watcher | None = None
        self._frames_wanted = False
        self._raw_wanted = False
        self._kept = Kept()
        self._actions: OrderedDict[int, int] = OrderedDict()
        self._waiting: dict[int, set[asyncio.Future[Shown]]] = {}
        self._early: deque[tuple[str, Block]] = deque(maxlen=BLOCKS_KEPT)
        self._last_shown: tuple[Shown, float] | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._attached: Attach | None = None
        self._waking: asyncio.TimerHandle | None = None
        self._rousing: asyncio.Task[None] | None = None
        self.mirror: Mirror | None = None
        """Set where this session has a twin, or is one."""
        self._attach_to_owner()

    # ---- who watches

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)
        if watcher.pictures and not self._frames_wanted:
            self._frames_wanted = True
            self._attach_again()

    def unwatch(self, watcher: Watcher) -> None:
        with contextlib.suppress(ValueError):
            self._watchers.remove(watcher)
        if self._driver is watcher:
            self._driver = None

    @property
    def idle(self) -> bool:
        """Nobody watches or waits: it may be dropped."""
        return not self._watchers and not self._waiting

    @property
    def started(self) -> bool:
        return self._playback is not None

    @property
    def unanswered(self) -> int:
        return 0 if self._playback is None else self._playback.unanswered

    async def ready(self) -> Ready:
        """What a newcomer is told. Raises why the session can't be played now."""
        playback = await self._ready_playback()
        return Ready(playback.delivered_block, self._applied(playback), playback.expected_number, self.session)

    def kept_after(self, block: int) -> list[Shown]:
        """Delivered blocks after `block`, as far as they are kept."""
        return self._kept.after(block)

    # ---- actions

    async def drive(self, watcher: Watcher, number: int, action: int) -> None:
        """One action from a watcher. The newest connection of those that act drives. Raises `ActionGap`."""
        playback = await self._ready_playback()
        driver = self._driver
        if driver is not watcher:
            expected = playback.expected_number
            if driver is not None and self._watchers.index(driver) > self._watchers.index(watcher):
                raise ActionGap("another, newer connection drives this session", number=number, expected=expected)
            if driver is not None:
                driver.tell(Drive(False, expected))
            self._driver = watcher
            watcher.tell(Drive(True, expected))
        await self.act(number, action)

    async def act(self, number: int, action: int) -> None:
        """Takes one action. Raises `ActionGap` where its number jumps, or was used for another action, and `BadValue`
        for a twin, whose actions are its session's.
        """
        if self.session.twin_of is not None:
            raise BadValue(f"session {self.session.id} follows {self.session.twin_of}, whose twin it is")
        playback = await self._ready_playback()
        if self.session.asleep:
            await self._wake_up()
        begin(SessionId(self.session.id), Status(self.session.status), Verb.STEP, self.session.why)
        if number < playback.expected_number:
            self._check_repeat(number, action, playback)
            return
        refused = self._handle(words.ActionIn(number, action))
        if refused is not None:
            raise from_record(refused.code, refused.sentence, {"number": number, "expected": refused.expected})
        self._actions[number] = action
        while len(self._actions) > BLOCKS_KEPT:
            self._actions.popitem(last=False)
        if self.mirror is not None and self.mirror.session is self:
            self.mirror.take(number, action)

    async def _wake_up(self) -> None:
        """Brings a session back whose player acts again. Raises why it can't be."""
        async with self._waking_up:
            give_up_at_s = self._clock.monotonic_s() + WAKE_TRY_S
            while self.session.asleep:
                try:
                    row = await self._wake(self.session.id)
                except MoveInProgress:  # it is still falling asleep, or somebody else wakes it
                    if self._clock.monotonic_s() > give_up_at_s:
                        raise
                    await asyncio.sleep(WAKE_PAUSE_S)
                    continue
                if row.epoch > self.session.epoch:
                    self.session_changed(row)
                return

    async def _rouse(self) -> None:
        """An action that came while the session was being put to sleep wakes it as one that comes later does."""
        try:
            await self._wake_up()
        except WorldlineError as error:
            self.tell(Trouble(error))
            self._give_back(self.session.cut_block)

    async def step(self, first: int | None, actions: list[int], frames: str, wait_s: float) -> list[Shown]:
        """Takes actions and returns the blocks that applied them; those applied before are not applied again."""
        blocks: list[asyncio.Future[Shown]] = []
        try:
            async with asyncio.timeout(wait_s):
                playback = await self._ready_playback()
                await self._want(frames)
                start = playback.expected_number if first is None else first
                for number, action in enumerate(actions, start):
                    await self.act(number, action)
                    blocks.append(self._block_of(number))
                return [await block for block in blocks]
        except TimeoutError:
            raise TimedOut(f"session {self.session.id} has not shown every block within {wait_s} s") from None
        finally:
            for block in blocks:
                if not block.cancel() and not block.cancelled():
                    block.exception()  # one that nobody came to await is heard all the same

    async def _want(self, frames: str) -> None:
        """Sees to it that the owner sends what `frames` asks for."""
        more = (frames == "raw" and not self._raw_wanted) or (frames == "jpeg" and not self._frames_wanted)
        self._raw_wanted |= frames == "raw"
        self._frames_wanted |= frames == "jpeg"
        if more:
            self._attach_again()
            while self._attaching is not None and not self._attaching.done():
                await asyncio.wait({self._attaching})

    def _block_of(self, number: int) -> asyncio.Future[Shown]:
        """The block of an action: kept, or waited for."""
        waiting: asyncio.Future[Shown] = asyncio.get_running_loop().create_future()
        kept = self._kept.get(number)
        if kept is not None:
            waiting.set_result(kept)
        else:
            self._waiting.setdefault(number, set()).add(waiting)
            waiting.add_done_callback(lambda done: self._forget_waiting(number, done))
        return waiting

    def _forget_waiting(self, number: int, done: asyncio.Future[Shown]) -> None:
        others = self._waiting.get(number, set())
        others.discard(done)
        if not others:
            self._waiting.pop(number, None)

    def _check_repeat(self, number: int, action: int, playback: Playback) -> None:
        expected, was = playback.expected_number, self._actions.get(number)
        facts: dict[str, Fact] = {"number": number, "expected": expected}
        if was is not None and was != action:
            raise ActionGap(f"action {number} was {was} and can't be {action}; {expected} is due", **facts)
        if number <= playback.delivered_block and self._kept.get(number) is None:
            raise ActionGap(f"block {number} is no longer kept; {expected} is due", **facts)

    # ---- the record

    def session_changed(self, session: Session) -> None:
        """The controller told of another row."""
        before, self.session = self.session, session
        for watcher in tuple(self._watchers):
            watcher.tell(session)
        if session.status == "closed":
            self._fail(SessionClosed(f"session {session.id} is closed", session=session.id))
        elif session.status == "lost":
            self._fail(_loss(session))
        if session.epoch > before.epoch:
            self._failure = None if session.host is not None else self._failure
            host = None if session.host is None else HostId(session.host)
            self._handle(words.OwnerChanged(host, Epoch(session.epoch), session.cut_block))
            if session.host is None and session.status in {"moving", "parked"}:
                if not session.asleep:
                    self._give_back(session.cut_block)
                elif self._playback is not None and self._playback.expected_number - 1 > session.cut_block:
                    self._rousing = asyncio.create_task(self._rouse(), name=f"rouse {session.id}")
            self._attach_to_owner()

    def _give_back(self, cut_block: int) -> None:
        """Answers steps whose actions came too late for the park: they are not applied, and not kept. Those behind
        which a player's own action waits, and those that a twin has been given, stay due.
        """
        last = 0 if self._playback is None else self._playback.expected_number - 1
        late = last
        while late > cut_block and late in self._waiting and self.mirror is None:
            late -= 1
        if late == last:
            return
        self._handle(words.Withdrawn(late + 1))
        for number in range(late + 1, last + 1):
            self._actions.pop(number, None)
            for waiting in self._waiters(number):
                waiting.set_exception(_parked(self.session, number))

    # ---- what hosts say

    def on_block(self, host: str, block: Block) -> None:
        if self._playback is None:
            self._early.append((host, block))
            return
        self._handle(words.BlockIn(Epoch(block.epoch), block.block, block.number, Shown(host, block)))

    def on_rejected(self, rejected: Rejected) -> None:
        if rejected.code in {UnknownSession.code, StaleEpoch.code}:
            return  # an owner that is not yet, or no longer: the attachment sees to it
        self._handle(words.RejectedIn(Epoch(rejected.epoch), rejected.number, rejected.expected))

    def on_failed(self, failed: SessionFailed) -> None:
        if failed.epoch == self.session.epoch:
            self._fail(from_record("POISONED", failed.sentence, {"session": self.session.id}))

    def on_link_down(self, host: str) -> None:
        """The link to a host was lost: what its owner still had to show may not come."""
        if self.session.host != host:
            return
        self._attached = None
        self._handle(words.HostLinkDown(Epoch(self.session.epoch)))
        self._attach_to_owner()

    # ---- attachment

    def _attach_again(self) -> None:
        """More is wanted of an owner that is attached already; one that is not yet is asked for all of it anyway."""
        if self._attached is not None:
            self._attach_to_owner()

    def _attach_to_owner(self) -> None:
        if self._attaching is not None:
            self._attaching.cancel()
        self._attaching = asyncio.create_task(self._attach(), name=f"attach {self.session.id}")

    async def _attach(self) -> None:
        """Until attached to the present owner, or there is none."""
        pause_s = ATTACH_PAUSE_FIRST_S
        while self.session.host is not None:
            try:
                return await self._attach_once(self.session.host)
            except (UnknownSession, StaleEpoch, HostGone, TimedOut) as error:
                log.debug("session %s epoch %d: not attached: %s", self.session.id, self.session.epoch, error)
            except WorldlineError as error:
                self._fail(error)
                return None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, ATTACH_PAUSE_MAX_S)
        if self._playback is None:
            cut = self.session.cut_block
            self._start(Playback(self._owner(), cut, cut))
        return None

    async def _attach_once(self, host: str) -> None:
        epoch = self.session.epoch
        link = self._link_to(host)
        await link.ready(ATTACH_WAIT_S)
        after = None if self._playback is None else self._playback.delivered_block
        wish = Attach(self.session.id, epoch, self._frames_wanted, self._raw_wanted, after)
        facts = await link.call(wish, SessionFacts, ATTACH_WAIT_S)
        self._attached = wish
        if self._playback is None:
            self._start(Playback(self._owner(), facts.block, facts.number))
        self._handle(words.HostLinkUp(Epoch(epoch), facts.block, facts.number))
        if self.mirror is not None:
            self.mirror.feed()

    def _owner(self) -> words.OwnerChanged:
        host = None if self.session.host is None else HostId(self.session.host)
        return words.OwnerChanged(host, Epoch(self.session.epoch), self.session.cut_block)

    def _start(self, playback: Playback) -> None:
        self._playback = playback
        self._started.set()
        early, self._early = tuple(self._early), deque()
        for host, block in early:
            self.on_block(host, block)

    async def _ready_playback(self) -> Playback:
        if self._failure is not None:
            raise type(self._failure)(self._failure.sentence, **self._failure.facts)
        if self._playback is None:
            try:
                async with asyncio.timeout(ATTACH_WAIT_S):
                    await self._started.wait()
            except TimeoutError:
                host = self.session.host
                raise HostGone(f"host {host} of session {self.session.id} can't be reached", host=host) from None
        if self._failure is not None:
            raise type(self._failure)(self._failure.sentence, **self._failure.facts)
        assert self._playback is not None
        return self._playback

    # ---- the machine

    def _handle(self, event: words.PlayEvent) -> words.Reject | None:
        """Carries out what the machine says; returns what it says to the player of this event."""
        if self._playback is None:
            return None
        refused: words.Reject | None = None
        for command in self._playback.handle(event, self._clock.monotonic_s()):
            match command:
                case words.SendAct(host, epoch, number, action):
                    with contextlib.suppress(Unavailable):
                        self._link_to(host).peer.notify(Act(self.session.id, epoch, number, action))
                case words.Deliver(block):
                    self._deliver(block)
                case words.Missed(first, last):
                    self._miss(first, last)
                case words.DropStale(epoch, number):
                    log.debug("session %s epoch %d: block %d is dropped", self.session.id, epoch, number)
                case words.Reject():
                    refused = command
                case _:
                    assert_never(command)
        if refused is not None and not isinstance(event, words.ActionIn):
            self.tell(Trouble(from_record(refused.code, refused.sentence, {"expected": refused.expected})))
        self._wake_later()
        return refused

    def _wake_later(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        at_s = None if self._playback is None else self._playback.wake_at_s
        if at_s is not None:
            delay_s = max(0.0, at_s - self._clock.monotonic_s())
            self._waking = asyncio.get_running_loop().call_later(delay_s, lambda: self._handle(words.Waited()))

    def _deliver(self, event: words.BlockIn) -> None:
        shown = event.content
        assert isinstance(shown, Shown)
        now_s = self._clock.monotonic_s()
        self._kept.add(shown)
        self.tell(shown)
        if self._last_shown is not None and self._last_shown[0].block.epoch != shown.block.epoch:
            last, at_s = self._last_shown
            self.tell(Gap(shown.block.epoch, (now_s - at_s) * 1e3, shown.block.block, last.host, shown.host))
        self._last_shown = (shown, now_s)
        for waiting in self._waiters(shown.block.number):
            waiting.set_result(shown)
        if self.mirror is not None:
            self.mirror.compare(self, shown.block)

    def _miss(self, first: int, last: int) -> None:
        self.tell(Missed(first, last))
        for number in range(first, last + 1):
            for waiting in self._waiters(number):
                sentence = f"block {number} was made, and its pictures went with a host"
                waiting.set_exception(LinkCut(sentence, number=number))

    def _waiters(self, number: int) -> list[asyncio.Future[Shown]]:
        return [waiting for waiting in self._waiting.get(number, ()) if not waiting.done()]

    def tell(self, told: Told) -> None:
        for watcher in tuple(self._watchers):
            watcher.tell(told)

    def _fail(self, error: WorldlineError) -> None:
        """Nothing more comes under this owner."""
        self._failure = error
        self._started.set()
        self.tell(Trouble(error))
        for waiting in [future for number in tuple(self._waiting) for future in self._waiters(number)]:
            waiting.set_exception(type(error)(error.sentence, **error.facts))

    def _applied(self, playback: Playback) -> int:
        return playback.expected_number - 1 - playback.unanswered

    def mirrored(self, number: int, action: int) -> bool:
        """See `gateway_twin.PlaySide`."""
        if self._playback is None or number > self._playback.expected_number:
            return False
        return self._handle(words.ActionIn(number, action)) is None

    # ---- the end

    async def close(self) -> None:
        """Detaches; what waits fails. The session plays on at its host."""
        if self._waking is not None:
            self._waking.cancel()
        if self._attaching is not None:
            self._attaching.cancel()
        if self._rousing is not None:
            self._rousing.cancel()
        for waiting in [future for futures in self._waiting.values() for future in futures]:
            waiting.cancel()
        if self.session.host is not None and self._attached is not None:
            with contextlib.suppress(WorldlineError):
                await self._link_to(self.session.host).call(Detach(self.session.id), None, ATTACH_WAIT_S)


def _parked(session: Session, number: int) -> WorldlineError:
    sentence = f"session {session.id} was parked before action {number} was applied; resume it first"
    return SessionParked(sentence, session=session.id, number=number)


def _loss(session: Session) -> WorldlineError:
    sentence = f"session {session.id} is lost: {session.why or 'its host ended'}"
    return from_record("STATE_LOST", sentence, {"session": session.id})
