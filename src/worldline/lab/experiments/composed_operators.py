"""Who asks for moves in a composed run, and who keeps the books of hosts that were given back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from threading import Condition, Event, Lock, Thread

from worldline.clock import Clock
from worldline.errors import Unavailable, WorldlineError
from worldline.lab.experiments.composed_found import (
    REAL_CONTRACT,
    REAL_LINK_BYTES_PER_S,
    REAL_STATE_BYTES,
    Refusal,
    Side,
    counts,
)
from worldline.lab.experiments.players import Player, bursts
from worldline.lab.fabric import Dilation
from worldline.runtime.messages import Host
from worldline.schema.contract import Contract
from worldline.service.client import Client
from worldline.units import parse_bytes
from worldline.worlds.protocol import OptionValue

STATE_BYTES_MIN = 64_000_000
WORLD, SMALL_WORLD = "load", "reference"
HASTY_S = 1.0
"""Both times of one session's contract: nothing here is fast enough for it, and each of its moves is to be refused."""
REQUEST_GAP_S = 0.2
"""Between two requests, on average; they come in bursts."""
SMALL_EVERY = 8
SAMPLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Layout:
    """What is run. `moves` are to count, within `seconds`."""

    moves: int
    seconds: float
    sessions: int
    hosts_each: int
    state: str
    link_bytes_per_s: float
    period_ms: float
    slack: float
    night_s: float
    seed: int

    @property
    def provider(self) -> dict[str, str]:
        return {f"{name}{at + 1}": name for name in ("north", "south") for at in range(self.hosts_each)}

    @property
    def stretch(self) -> float:
        """How many times as long a state takes here to cross as the paper's does on its link."""
        here_s = parse_bytes(self.state) / self.link_bytes_per_s
        return here_s / (REAL_STATE_BYTES / REAL_LINK_BYTES_PER_S)

    @property
    def dilation(self) -> float:
        """How many times as long everything takes as on the paper's link, bytes being equal."""
        return Dilation(REAL_LINK_BYTES_PER_S, self.link_bytes_per_s).factor

    @property
    def contract(self) -> Contract:
        """Both of its times stretch as that does which a state takes to cross."""
        return Contract(
            pause_bound_s=REAL_CONTRACT.pause_bound_s * self.stretch * self.slack,
            completion_deadline_s=REAL_CONTRACT.completion_deadline_s * self.stretch * self.slack,
        )

    def contract_of(self, number: int) -> Contract:
        """Of the session that arrived as that one, from 0."""
        return Contract(pause_bound_s=HASTY_S, completion_deadline_s=HASTY_S) if number == 1 else self.contract

    @property
    def options(self) -> dict[str, OptionValue]:
        """Of a session of the load world."""
        return {"bytes": self.state, "block_period_ms": self.period_ms}

    def pace_s(self, world: str) -> float:
        """Of a player of it, from action to action: the load world paces itself."""
        return 0.0 if world == WORLD else self.period_ms / 1e3

    def unpaced(self, world: str) -> dict[str, OptionValue]:
        """The same state, each block as soon as it can be."""
        return {"bytes": self.state} if world == WORLD else {}

    @property
    def hosts_min(self) -> int:
        """So many stay: of a provider that has three or more at least two, and two moves across can run at once."""
        return 2 * self.hosts_each - max(1, self.hosts_each - 2)

    @property
    def memory_bytes(self) -> int:
        """Of each host: the sessions fit onto the hosts that stay, with room for a slot and one arriving."""
        each = -(-self.sessions // self.hosts_min) + 4
        return each * round(1.1 * parse_bytes(self.state))


class Requests:
    """A stream of requests in bursts: each wants a session that is being played on a host of the other provider."""

    def __init__(
        self, layout: Layout, url: str, players: Mapping[str, Player], small: Collection[str], clock: Clock
    ) -> None:
        """`small`: sessions of which a move is over at once; one request in `SMALL_EVERY` asks for one of them."""
        self._layout = layout
        self._small = small
        self._clock = clock
        self._url = url
        self._players = players
        self._chance = Random(layout.seed + 1)
        self._refusals: list[Refusal] = []
        self._moving: dict[str, tuple[str, str]] = {}
        """By session: the two hosts that its move keeps busy."""
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._stop = Event()
        self._pool = ThreadPoolExecutor(layout.hosts_each, "request")
        self._thread = Thread(target=self._ask, name="requests")
        self.counted = 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """No further one is made; those under way end. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, seconds: float) -> None:
        """Until something has ended, or so long."""
        with self._changed:
            self._changed.wait(seconds)

    def _ask(self) -> None:
        with Client(self._url) as client, self._pool:  # who waits for an answer has its connection to the end
            for gap_s, size in bursts(self._chance, REQUEST_GAP_S):
                if self._stop.wait(gap_s):
                    return
                for _ in range(size):
                    with suppress(Unavailable):  # a request that was not heard is one fewer
                        self._one(client)

    def _one(self, client: Client) -> None:
        """Asks for one move, between hosts that no other one asked for here keeps busy."""
        small = self._chance.random() < 1 / SMALL_EVERY
        free = [
            name for name, player in list(self._players.items()) if player.playing and (name in self._small) == small
        ]
        self._chance.shuffle(free)
        open_hosts = self._open_hosts(client)
        for session in free:
            here = client.describe(session).host
            with self._lock:
                busy = {host for pair in self._moving.values() for host in pair}
                across = [host for host in open_hosts if here and self._across(here, host) and host not in busy]
                if session in self._moving or here is None or here in busy or not across or self._stop.is_set():
                    continue
                self._moving[session] = (here, across[0])
            self._pool.submit(self._move, client, session, across[0])
            return

    def _move(self, client: Client, session: str, target: str) -> None:
        asked_at_s = self._clock.wall_s()
        try:
            move = client.session(session).move(target)
            with self._lock:
                self.counted += counts(move, self._players[session].seen, self.side())
        except WorldlineError as error:
            with self._lock:
                self._refusals.append(Refusal(session, error.code, asked_at_s, self._clock.wall_s()))
        finally:
            with self._changed:
                del self._moving[session]
                self._changed.notify_all()

    def _across(self, here: str, there: str) -> bool:
        return self._layout.provider[here] != self._layout.provider[there]

    def _open_hosts(self, client: Client) -> list[str]:
        """With most memory free first."""
        takes = [host for host in client.hosts() if host.alive and host.cordon is None and host.facts is not None]
        return [host.id for host in sorted(takes, key=_used)]

    def side(self) -> Side:
        """With nothing counted beside the moves yet."""
        layout = self._layout
        return Side(
            provider=layout.provider,
            contract=layout.contract,
            wanted=layout.moves,
            state_bytes_min=STATE_BYTES_MIN,
            refusals=tuple(self._refusals),
            link_bytes_per_s=layout.link_bytes_per_s,
            dilation=layout.dilation,
            stretch=layout.stretch,
            block_ms=layout.period_ms,
        )


class Giving:
    """Which hosts stand empty and given back, and for how long."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="giving")
        self.emptied: set[str] = set()
        self.given_back_s = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        before_s = self._clock.monotonic_s()
        with Client(self._url) as client:
            while not self._stop.wait(SAMPLE_S):
                try:
                    away = [host.id for host in client.hosts() if _given_back(host)]
                except WorldlineError:
                    away = []  # nothing is known, and nothing is counted
                now_s = self._clock.monotonic_s()
                self.given_back_s += len(away) * (now_s - before_s)
                self.emptied.update(away)
                before_s = now_s


def _given_back(host: Host) -> bool:
    return host.cordon is not None and host.cordon.released and host.facts is not None and not host.facts.sessions


def _used(host: Host) -> float:
    assert host.facts is not None, "asked before"
    return host.facts.memory_used_bytes / max(host.facts.memory_bytes, 1)
