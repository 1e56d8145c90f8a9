"""Whole fleets under seeded trouble, and machines sabotaged to see that the trouble would show."""

from __future__ import annotations

import pytest

from worldline.control.handoff import Handoff
from worldline.control.order import Command, SwapUnknown, Thaw
from worldline.control.order import Event as OrderEvent
from worldline.control.playback import HostLinkUp, Playback, PlayCommand, RejectedIn
from worldline.migration import source, target
from worldline.testing.simulation import CHANCES, Kinds, Simulation, Violation, main

HISTORIES = 200
QUIET = dict.fromkeys(CHANCES, 0.0)


@pytest.mark.parametrize("first", range(0, HISTORIES, 50))
def test_no_history_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + 50):
        Simulation(seed).run()


def test_without_trouble_every_order_is_done_and_every_block_is_shown() -> None:
    for seed in range(5):
        tally = Simulation(seed, chances=QUIET).run()
        assert (tally.moves_refused, tally.lost, tally.missed, tally.blocks) == (0, False, 0, 60)
        assert tally.moves_done >= 4


def test_trouble_reaches_every_outcome() -> None:
    tallies = [Simulation(seed).run() for seed in range(60)]
    assert any(tally.lost for tally in tallies)
    assert any(tally.missed for tally in tallies)
    assert any(tally.crashes and not tally.lost and tally.blocks == 60 for tally in tallies)
    assert sum(tally.moves_done for tally in tallies) > 100
    assert sum(tally.moves_refused for tally in tallies) > 30


def test_one_seed_is_one_history() -> None:
    assert Simulation(11).run() == Simulation(11).run()


def test_the_command_prints_a_line_for_each_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--histories", "2"]) == 0
    assert [line.split("(")[1].split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["seed=3", "seed=4"]


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


class ForgetfulPlayback(Playback):
    """Sends nothing again to a new owner."""

    def _link_up(self, event: HostLinkUp, now_s: float) -> list[PlayCommand]:
        super()._link_up(event, now_s)
        return []

    def _rejected(self, event: RejectedIn) -> list[PlayCommand]:
        return []


@pytest.mark.parametrize(
    "kinds",
    [
        Kinds(target=BelievingTarget),
        Kinds(target=HastyTarget),
        Kinds(source=ImpatientSource),
        Kinds(handoff=GuessingHandoff),
        Kinds(handoff=ColdHandoff),
        Kinds(playback=ForgetfulPlayback),
    ],
    ids=lambda kinds: next(
        getattr(kinds, part).__name__
        for part in ("source", "target", "handoff", "playback")
        if getattr(kinds, part) is not getattr(Kinds(), part)
    ),
)
def test_a_sabotaged_machine_is_caught(kinds: Kinds) -> None:
    with pytest.raises(Violation):
        for seed in range(HISTORIES):
            Simulation(seed, kinds).run()


def test_a_target_that_does_not_compare_is_still_stopped_by_the_controller() -> None:
    for seed in range(HISTORIES):
        Simulation(seed, Kinds(target=CarelessTarget)).run()
