"""Everything at once, on one fabric: two providers' hosts, players who come and go, and every part of the product.

Hosts are processes in network namespaces with shaped ports. Sessions of the load world and of the reference world are
played by simulated players. A stream of requests, in bursts, moves sessions that are being played from one provider to
the other; each is admitted or refused by the controller, its bytes flow under the calendar's grants, are encoded where
that is faster, and are verified on the target's lanes. Meanwhile a standing consolidation parks who went away, packs
the others and gives emptied hosts back; who returns is woken.

A move counts if it crossed providers, carried `state_min_bytes` or more, and if at least one block was asked for and
generated after the move began and before its last boundary at the source. Afterwards every session is played again
from its seed without a move (`unmoved`), and the root at every receipt, every frame and all final bytes are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from worldline.capacity.domain import at_least_zero, positive, whole
from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue
from worldline.lab.experiments.bars import all_met
from worldline.lab.experiments.composed_found import Composed, found
from worldline.lab.experiments.composed_operators import SMALL_WORLD, WORLD, Giving, Layout, Requests
from worldline.lab.experiments.composed_report import bars_of, report, text
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.experiments.pace import PORT_BYTES_PER_S, port_rate, work_bytes_per_s
from worldline.lab.experiments.players import AWAY_MEDIAN_S, Habit, Player, bursts
from worldline.lab.experiments.unmoved import Played, Verdict, compare
from worldline.lab.fabric import Fabric
from worldline.runtime.controller import RECORD
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.runtime.messages import Move
from worldline.runtime.store_sqlite import SqliteStore
from worldline.service.client import Client
from worldline.units import parse_rate

IDLE_S, CONSOLIDATE_EVERY_S = 6.0, 8.0
BLOCK_MS = 2000.0
"""On ports of `PORT_BYTES_PER_S`."""
HOSTS_AT_NIGHT = 2
NIGHT = Habit(plays_s=8.0, thinks_s=0.5, away_median_s=15.0)
AWAY_SHORTENED = 10.0
"""A player's time away, of the proxy's over that here."""
ARRIVAL_GAP_S = 2.0
COMPARED_AT_ONCE = 3
JOURNAL_MAX = 100_000
LOOK_S = 0.25


def measure(  # noqa: PLR0913 - an experiment whose options are given by name
    trial: Trial,
    *,
    moves: int = 48,
    seconds: float = 330.0,
    sessions: int = 12,
    hosts_each: int = 3,
    state: str = "70MB",
    rate: str = "auto",
    period_ms: float = 0.0,
    slack: float = 1.0,
    night: float = 60.0,
    seed: int = 1,
) -> Composed:
    """Runs serving, moves, admission, lanes, codec, incast control and consolidation together, on two providers' hosts.

    Needs a machine on which namespaces can be made. Exit code 0: so many moves counted, all moves were identical to
    the unmoved computation, nothing was lost or late, and a host was emptied.

    Parameters
    ----------
    trial: Trial
        The run.
    moves: int
        That are to count.
    seconds: float
        The play ends then, with however many.
    sessions: int
        Of the load world; one in six more is of the reference world.
    hosts_each: int
        Of each provider, from 2.
    state: str
        Of a session of the load world.
    rate: str
        Of every host's port; auto: what the machine can play now, 300 Mbit at most (`pace`).
    period_ms: float
        Of a block; 0: 2 s at 300 Mbit, stretched as all times are.
    slack: float
        From 1: by how much the contract is wider, on a machine that does other things too.
    night: float
        Seconds after the play in which sleepers are woken.
    seed: int
        Of everything drawn by chance.
    """
    whole(moves, "--moves")
    if not (2 <= hosts_each <= 8 and 1 <= sessions <= 64 and 5 <= seconds <= 3600):
        raise BadValue("a composed run has 2 to 8 hosts a provider, 1 to 64 sessions, and 5 to 3600 seconds")
    if not slack >= 1:
        raise BadValue(f"--slack widens the contract: it is 1 or more, not {slack:g}")
    clock = SystemClock()
    at_least_zero(period_ms, "--period-ms")
    at_least_zero(night, "--night")
    port = port_rate(work_bytes_per_s(clock)) if rate == "auto" else positive(parse_rate(rate), "rate")
    block_ms = period_ms or BLOCK_MS * PORT_BYTES_PER_S / port
    layout = Layout(moves, seconds, sessions, hosts_each, state, port, block_ms, slack, night, seed)
    trial.say(f"ports of {port * 8 / 1e6:.0f} Mbit/s: time dilation {layout.dilation:.0f}")
    run_dir = trial.folder / "run"
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(list(layout.provider), layout.link_bytes_per_s))
        plan = fabric.place(
            FleetPlan(
                hosts=tuple(layout.provider),
                run_dir=run_dir,
                memory_bytes=layout.memory_bytes,
                port_bytes_per_s=layout.link_bytes_per_s,
                restarts=False,
            )
        )
        fleet = stack.enter_context(Fleet.start(plan))
        trial.say(f"{len(plan.hosts)} hosts are up")
        scene = _Scene(layout, fleet, fabric, run_dir, trial, clock)
        stack.callback(scene.end)
        stack.callback(fleet.close)  # before that, where something failed: nobody then waits for an answer
        return scene.run()


class _Scene:
    """One run: who plays, what was asked, what was refused."""

    def __init__(self, layout: Layout, fleet: Fleet, fabric: Fabric, run_dir: Path, trial: Trial, clock: Clock) -> None:
        self._layout = layout
        self._fleet = fleet
        self._fabric = fabric
        self._run_dir = run_dir
        self._trial = trial
        self._clock = clock
        self._chance = Random(layout.seed)
        self._players: dict[str, Player] = {}
        self._small: set[str] = set()
        self._requests = Requests(layout, fleet.url, self._players, self._small, self._clock)
        self._giving = Giving(fleet.url, self._clock)

    def run(self) -> Composed:
        layout = self._layout
        with Client(self._fleet.url) as client:
            self._prewarm(client)
            arrivals = self._arrivals()
            for _ in range(layout.sessions // 2):
                self._arrive(client, next(arrivals))
            began_s = self._clock.monotonic_s()
            self._giving.start()
            self._consolidate(client, layout.hosts_min)
            self._play(client, arrivals, began_s)
            self._night(client)
            ended_at_s = self._clock.wall_s()
            seconds = self._clock.monotonic_s() - began_s
            self.end()
            ports = [self._fabric.counters(host) for host in layout.provider]
            self._trial.say(f"{self._requests.counted} moves count; playing every session again without a move")
            verdicts = self._compare(client)
            lost = sum(player.error is not None for player in self._players.values())
        self._fleet.close()
        moves = asyncio.run(_journal(self._run_dir / RECORD))
        away_s = sum(player.away_s for player in self._players.values())
        side = replace(
            self._requests.side(),
            hosts_emptied=len(self._giving.emptied),
            host_s_given_back=self._giving.given_back_s,
            seconds=seconds,
            away_share=min(1.0, away_s / (seconds * len(self._players))),
            port_bytes=sum(port.sent_bytes for port in ports),
            dropped_packets=sum(port.dropped_packets for port in ports),
            ended_at_s=ended_at_s,
        )
        played = {name: player.seen for name, player in self._players.items()}
        own = [move for move in moves if move.session in played]
        return found(side, own, played, verdicts, lost)

    def end(self) -> None:
        """Nobody acts or asks any more. Idempotent."""
        self._giving.stop()
        self._requests.close()
        for player in self._players.values():
            player.stop()
        for player in self._players.values():
            player.join()

    @contextmanager
    def _workers(self) -> Iterator[ThreadPoolExecutor]:
        """Threads that ask the fleet. Where something fails the fleet ends, and with it what they wait for."""
        with ThreadPoolExecutor(COMPARED_AT_ONCE) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._fleet.close()
                raise

    # ---- before

    def _prewarm(self, client: Client) -> None:
        """Every host has built its engines and has a slot ready, so that no move waits for either."""
        layout = self._layout

        def one(host: str) -> None:
            client.prewarm(host, WORLD, slots=1, options=layout.options)
            client.prewarm(host, SMALL_WORLD, slots=0)

        with self._workers() as pool:
            list(pool.map(one, layout.provider))
        self._trial.say("every host has its engines, and a slot ready")

    def _arrivals(self) -> Iterator[str]:
        """The worlds that are to be opened, in order."""
        small = -(-self._layout.sessions // 6)
        for at in range(self._layout.sessions + small):
            yield SMALL_WORLD if at % 7 == 3 else WORLD

    def _arrive(self, client: Client, world: str) -> None:
        options = self._layout.options if world == WORLD else {}
        seed = len(self._players) + 1
        session = client.open(
            world, seed=seed, options=options, contract=self._layout.contract_of(len(self._players))
        ).describe()
        habit = Habit(plays_s=30.0, thinks_s=0.5, away_median_s=AWAY_MEDIAN_S / AWAY_SHORTENED)
        chance = Random(self._chance.random())
        actions, pace_s = max(1, len(session.actions)), self._layout.pace_s(world)
        player = Player(self._fleet.url, session.id, actions, habit, chance, self._clock, pace_s)
        self._players[session.id] = player
        if world == SMALL_WORLD:
            self._small.add(session.id)
        player.start()

    # ---- play

    def _play(self, client: Client, arrivals: Iterator[str], began_s: float) -> None:
        """Until so many moves count, or the time is over."""
        layout, come = self._layout, bursts(Random(self._chance.random()), ARRIVAL_GAP_S)
        gap_s, size = next(come)
        next_at_s = self._clock.monotonic_s() + gap_s
        said = 0
        self._requests.start()
        while (now_s := self._clock.monotonic_s()) < began_s + layout.seconds:
            self._trial.telemetry.check()
            if now_s >= next_at_s:
                for world in [found for _, found in zip(range(size), arrivals, strict=False)]:
                    self._arrive(client, world)
                gap_s, size = next(come)
                next_at_s = now_s + gap_s
            if self._requests.counted >= layout.moves:
                return
            if self._requests.counted >= said + 8:
                said = self._requests.counted
                self._trial.say(f"{said} moves count, {len(self._giving.emptied)} hosts were emptied")
            self._requests.wait(LOOK_S)

    def _consolidate(self, client: Client, hosts_min: int) -> None:
        """From now on, in the place of what went on before."""
        self._cancel_operations(client)
        client.operate("consolidate", idle_s=IDLE_S, hosts_min=hosts_min, warm_slots=1, every_s=CONSOLIDATE_EVERY_S)

    def _cancel_operations(self, client: Client) -> None:
        for operation in client.operations():
            client.cancel(operation.id)
        while any(operation.outcome is None for operation in client.operations()):
            self._requests.wait(LOOK_S)

    def _night(self, client: Client) -> None:
        """Nobody asks for moves, and players go away and come back one after another: who sleeps is woken."""
        self._requests.close()
        self._trial.say(f"{self._requests.counted} moves count, {len(self._giving.emptied)} hosts were emptied; night")
        self._consolidate(client, HOSTS_AT_NIGHT)
        for player in tuple(self._players.values()):
            player.go(NIGHT)
        ends_at_s = self._clock.monotonic_s() + self._layout.night_s
        while self._clock.monotonic_s() < ends_at_s:
            self._trial.telemetry.check()
            self._requests.wait(LOOK_S)

    # ---- after

    def _compare(self, client: Client) -> dict[str, Verdict]:
        """Parks every session and plays it anew, on hosts that have nothing else to do."""
        self._cancel_operations(client)
        played: list[Played] = []
        for host in self._layout.provider:
            client.uncordon(host)
        for name, player in self._players.items():
            session = client.describe(name)
            if session.status == "running":
                session = client.session(name).park()
            receipts = [client.receipt(receipt) for receipt in session.receipts]
            played.append(Played(session, player.seen, receipts, self._layout.unpaced(session.world)))

        hosts = list(self._layout.provider)

        def one(at: int) -> Verdict:
            self._trial.telemetry.check()
            return compare(played[at], client, hosts[at % len(hosts)], self._run_dir)

        with self._workers() as pool:
            verdicts = list(pool.map(one, range(len(played))))
        return {each.session.id: verdict for each, verdict in zip(played, verdicts, strict=True)}


async def _journal(record: Path) -> list[Move]:
    store = await SqliteStore.open(record)
    try:
        moves = await store.moves(JOURNAL_MAX)
    finally:
        await store.close()
    return sorted(moves, key=lambda move: move.started_at_s)


def _good(results: Composed) -> bool:
    return all_met(bars_of(results))


COMPOSED = Experiment(measure, report, text, _good)
