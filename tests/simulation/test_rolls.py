"""Histories in which a window rolls: rows are told, wrong ones repaired, and a target may end between any two."""

from __future__ import annotations

from collections import Counter

from worldline.migration import source, target
from worldline.schema.receipt import Mode
from worldline.testing.simulation import QUIET, Ending, Kinds, Simulation, Wish

TOLD = 4
"""A quiet history whose pre-copy ends one block behind."""
ROAD = (Wish(0.5, Mode.PRECOPY, "b"),)
HISTORIES = 70


def watched(seen: Counter[str]) -> Kinds:
    """The machines themselves, their commands counted."""

    class Source(source.SourceMachine):
        def _rows_reported(self, now_s: float) -> list[source.Command]:
            commands = super()._rows_reported(now_s)
            seen["repaired" if any(isinstance(c, source.Post) for c in commands) else "right"] += 1
            return commands

    class Target(target.TargetMachine):
        def handle(self, event: target.Event, now_s: float) -> list[target.Command]:
            commands = super().handle(event, now_s)
            seen["put"] += sum(isinstance(command, target.Put) for command in commands)
            return commands

    return Kinds(source=Source, target=Target)


def test_histories_tell_rows_and_repair_what_did_not_move_as_declared() -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        Simulation(seed, watched(seen)).run()
    assert set(seen) == {"put", "right", "repaired"}


def test_a_target_may_end_at_any_place_of_a_residual_and_a_retry_starts_clean() -> None:
    whole = Simulation(TOLD, chances=QUIET, wishes=ROAD)
    whole.run()
    seen: Counter[str] = Counter()
    for at in range(1, whole.trouble.places["target"] + 1):
        Simulation(TOLD, watched(seen), QUIET, ROAD, ending=Ending("target", at)).run()
    assert seen["put"]


class TrustingSource(source.SourceMachine):
    """Seals without waiting for what the target made of rows."""

    def _posted(self, event: source.Posted, now_s: float) -> list[source.Command]:
        self._round.touched = frozenset()
        return super()._posted(event, now_s)


def test_a_source_that_trusts_declarations_has_moves_refused_and_nothing_wrong_installed() -> None:
    for seed in range(HISTORIES):
        Simulation(seed, Kinds(source=TrustingSource)).run()
