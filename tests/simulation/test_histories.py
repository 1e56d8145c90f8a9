"""Whole fleets under seeded trouble, processes that end at every place, and machines sabotaged to see that it shows."""

from __future__ import annotations

import contextlib

import pytest

from worldline.control.handoff import Handoff
from worldline.control.handoff_table import Phase
from worldline.control.order import Call, Command, Order, PeerFailed, SwapUnknown, Thaw
from worldline.control.order import Event as OrderEvent
from worldline.control.playback import BlockIn, HostLinkUp, Playback, PlayCommand, RejectedIn
from worldline.errors import UnknownSession
from worldline.migration import source, target
from worldline.schema.ids import Epoch
from worldline.schema.receipt import Mode
from worldline.testing.simulated_host import Host
from worldline.testing.simulation import CHANCES, QUIET, Ending, Kinds, Simulation, Tally, Violation, Wish, main

HISTORIES = 300
RECOVERY_S_MAX = 2.0
SABOTAGE_HISTORIES = 250
RESTLESS = {**QUIET, "host-ends": 0.6, "host-stops": 0.4, "request-lost": 0.1, "controller-ends": 0.03}


def test_without_trouble_every_block_is_shown_and_what_is_begun_is_done() -> None:
    for seed in range(20):
        simulation = Simulation(seed, chances=QUIET)
        tally = simulation.run()
        assert (tally.lost, tally.damaged, tally.missed, tally.crashes, tally.faults) == (0, 0, 0, 0, 0)
        assert tally.shown == 43 * tally.sessions
        assert tally.moves_done >= tally.sessions


def test_trouble_reaches_every_outcome_and_every_fault() -> None:
    tallies, planted = [], set()
    for seed in range(HISTORIES):
        simulation = Simulation(seed)
        tallies.append(simulation.run())
        planted |= simulation.trouble.planted.keys()
    assert planted == CHANCES.keys()
    assert any(tally.lost for tally in tallies)
    assert any(tally.damaged for tally in tallies)
    assert any(tally.moves_returned for tally in tallies)
    assert not any(tally.source_stood for tally in tallies)
    assert any(tally.missed for tally in tallies)
    assert any(tally.crashes and not tally.lost and tally.shown == 43 * tally.sessions for tally in tallies)
    assert sum(tally.moves_done for tally in tallies) > 4 * HISTORIES
    assert sum(tally.moves_refused for tally in tallies) > HISTORIES


def test_one_seed_is_one_history() -> None:
    first, second = Simulation(11), Simulation(11)
    assert first.run() == second.run()
    assert first.transcript.lines() == second.transcript.lines()


def test_the_command_prints_a_line_for_each_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--histories", "2"]) == 0
    assert [line.split("(")[1].split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["seed=3", "seed=4"]


def test_the_command_tells_one_history_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    told = capsys.readouterr().out
    assert "COMMITTED" in told
    assert "host a" in told


@pytest.mark.parametrize("fault", CHANCES)
def test_one_fault_that_never_stops_while_there_is_trouble(fault: str) -> None:
    for seed in range(8):
        Simulation(seed, chances={**QUIET, fault: 1.0}).run()


def test_what_wrote_twice_into_a_frozen_session_is_taken_back_twice() -> None:
    Simulation(776_337).run()


# ---- every place between two commands

ROADS = {
    "freeze": (Wish(0.5, Mode.FREEZE, "b"),),
    "precopy": (Wish(0.5, Mode.PRECOPY, "b"),),
    "freeze, handed over": (Wish(0.5, Mode.FREEZE, "b", hands_over=True),),
    "precopy, handed over": (Wish(0.5, Mode.PRECOPY, "b", hands_over=True),),
    "park and resume": (Wish(0.5, Mode.PARK), Wish(1.5, Mode.RESUME, "b")),
}


def histories_that_end_at_each_place(road: str, who: str, chances: dict[str, float]) -> list[Tally]:
    """One history for each place that this role passes when nothing ends."""
    whole = Simulation(5, chances=chances, wishes=ROADS[road])
    whole.run()
    places = range(1, whole.trouble.places[who] + 1)
    return [Simulation(5, chances=chances, wishes=ROADS[road], ending=Ending(who, at)).run() for at in places]


@pytest.mark.parametrize("unknown", [False, True], ids=["commit known", "commit unknown"])
@pytest.mark.parametrize("road", ROADS)
def test_the_controller_may_end_at_any_place_and_nothing_is_lost(road: str, unknown: bool) -> None:
    chances = {**QUIET, "swap-unknown": 1.0 if unknown else 0.0}
    tallies = histories_that_end_at_each_place(road, "controller", chances)
    assert len(tallies) > 10
    assert all((tally.lost, tally.missed, tally.shown) == (0, 0, 43) for tally in tallies)
    if not unknown:
        assert len({tally.moves_done for tally in tallies}) > 1  # finished, or undone


@pytest.mark.parametrize("road", ROADS)
def test_a_controller_that_is_back_has_ended_every_open_order_within_two_seconds(road: str) -> None:
    """On the simulation's clock, wherever it ended."""
    whole = Simulation(5, chances=QUIET, wishes=ROADS[road])
    whole.run()
    recoveries = []
    for at in range(1, whole.trouble.places["controller"] + 1):
        simulation = Simulation(5, chances=QUIET, wishes=ROADS[road], ending=Ending("controller", at))
        simulation.run()
        recoveries.append(recovery_s(simulation.transcript.lines()))
    assert all(seconds <= RECOVERY_S_MAX for seconds in recoveries)
    assert max(recoveries) > 0


def recovery_s(lines: list[str]) -> float:
    """From when the controller began anew until the last order that it found open was over; 0 where none was."""
    told = [(float(line.split()[0]), line.split("controller", 1)[1]) for line in lines if " controller " in line]
    back = next((at for at, (_, what) in enumerate(told) if "begins anew" in what), len(told))
    orders = {words[1].rstrip(":") for _, what in told[:back] if len(words := what.split()) > 2}
    over = [(seconds, what.split()[1]) for seconds, what in told if " is over: " in what]
    if back == len(told):
        return 0.0
    began_s = told[back][0]
    return max((seconds - began_s for seconds, move in over if move in orders and seconds > began_s), default=0.0)


@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("road", ROADS)
def test_a_host_may_end_at_any_place_and_the_session_lives_or_is_lost_with_it(road: str, who: str) -> None:
    histories_that_end_at_each_place(road, who, dict(QUIET))


@pytest.mark.parametrize("road", ROADS)
def test_the_gateway_may_end_at_any_place_and_every_action_is_applied(road: str) -> None:
    tallies = histories_that_end_at_each_place(road, "gateway", dict(QUIET))
    assert all((tally.lost, tally.shown + tally.missed) == (0, 43) for tally in tallies)


# ---- sabotage: each of these takes one rule away, and the histories must notice


class BelievingTarget(target.TargetMachine):
    """Repeats the source's root instead of its own."""

    def _root_computed(self, event: target.RootComputed, now_s: float) -> list[target.Command]:
        assert self._seal is not None
        return super()._root_computed(target.RootComputed(self._seal.root, self._seal.layout), now_s)


class CarelessTarget(target.TargetMachine):
    """Does not compare the roots, but reports both."""

    def _roots_agree(self, event: target.RootComputed, seal: target.SealIn) -> bool:
        return True


class HastyTarget(target.TargetMachine):
    """Installs without waiting for the controller."""

    def handle(self, event: target.Event, now_s: float) -> list[target.Command]:
        commands = super().handle(event, now_s)
        if any(isinstance(command, target.Prepared) for command in commands):
            commands += super().handle(target.ActivateIn(self._attempt.epoch + 1), now_s)  # type: ignore[arg-type]
        return commands


class KeepingTarget(target.TargetMachine):
    """Gives nothing back."""

    def handle(self, event: target.Event, now_s: float) -> list[target.Command]:
        return [command for command in super().handle(event, now_s) if not isinstance(command, target.Discard)]


class ImpatientSource(source.SourceMachine):
    """Plays on when the link is lost after the seal."""

    def handle(self, event: source.Event, now_s: float) -> list[source.Command]:
        commands = super().handle(event, now_s)
        sealed = self.phase in (source.Phase.SEALED, source.Phase.PREPARED)
        return [*commands, source.Thaw()] if sealed and isinstance(event, source.LinkLost) else commands


class GuessingHandoff(Handoff):
    """Takes an unknown swap for one that was not made."""

    def handle(self, event: OrderEvent, now_s: float) -> list[Command]:
        if isinstance(event, SwapUnknown) and self._order.source is not None:
            return [*super().handle(event, now_s), Thaw(0.0)]
        return super().handle(event, now_s)


class ColdHandoff(Handoff):
    """Never thaws the source."""

    def handle(self, event: OrderEvent, now_s: float) -> list[Command]:
        return [command for command in super().handle(event, now_s) if not isinstance(command, Thaw)]


class ReturningHandoff(Handoff):
    """Takes the session back from a target that does not answer."""

    def handle(self, event: OrderEvent, now_s: float) -> list[Command]:
        silent = isinstance(event, PeerFailed) and event.call is Call.ACTIVATE and not self._order.hands_over
        if silent and self.phase is Phase.ACTIVATING:
            return self._take_back(now_s)
        return super().handle(event, now_s)


class ForgetfulPlayback(Playback):
    """Sends nothing again to a new owner."""

    def _link_up(self, event: HostLinkUp, now_s: float) -> list[PlayCommand]:
        super()._link_up(event, now_s)
        return []

    def _rejected(self, event: RejectedIn) -> list[PlayCommand]:
        return []


class SkippingPlayback(Playback):
    """Shows a block when it comes, whatever is due."""

    def _block(self, event: BlockIn, now_s: float) -> list[PlayCommand]:
        self._delivered = max(self._delivered, event.block - 1)
        return super()._block(event, now_s)


class EpochBlindPlayback(Playback):
    """Takes a block from whoever sends it."""

    def _counts(self, event: BlockIn) -> bool:
        return True


class AgreeableHost(Host):
    """Says that it has thawed a session which it does not have: it has begun anew meanwhile."""

    def thaw(self, order: Order, epoch: Epoch | None) -> None:
        with contextlib.suppress(UnknownSession):
            super().thaw(order, epoch)


class ForgetfulHost(Host):
    """Begins what was called off before it arrived."""

    def check_open(self, order: Order) -> None:
        pass


@pytest.mark.parametrize(
    "kinds",
    [
        Kinds(target=BelievingTarget),
        Kinds(target=HastyTarget),
        Kinds(target=KeepingTarget),
        Kinds(source=ImpatientSource),
        Kinds(handoff=GuessingHandoff),
        Kinds(handoff=ColdHandoff),
        Kinds(handoff=ReturningHandoff),
        Kinds(playback=ForgetfulPlayback),
        Kinds(playback=SkippingPlayback),
        Kinds(playback=EpochBlindPlayback),
        Kinds(host=ForgetfulHost),
    ],
    ids=lambda kinds: next(
        getattr(kinds, part).__name__
        for part in ("source", "target", "handoff", "playback", "host")
        if getattr(kinds, part) is not getattr(Kinds(), part)
    ),
)
def test_a_sabotaged_machine_is_caught(kinds: Kinds) -> None:
    with pytest.raises(Violation):
        for seed in range(SABOTAGE_HISTORIES):
            Simulation(seed, kinds).run()


def test_a_host_that_agrees_to_thaw_what_it_does_not_have_leaves_a_session_without_an_owner() -> None:
    """The source's host ends and begins anew, then the controller; its successor thaws a process that knows nothing."""
    with pytest.raises(Violation, match="hang"):
        for seed in range(4 * SABOTAGE_HISTORIES):
            Simulation(seed, Kinds(host=AgreeableHost), RESTLESS).run()


def test_a_target_that_does_not_compare_is_still_stopped_by_the_controller() -> None:
    for seed in range(SABOTAGE_HISTORIES):
        Simulation(seed, Kinds(target=CarelessTarget)).run()
