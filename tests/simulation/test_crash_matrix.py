"""Each command of the hand-over, and who ends, breaks or fails while it is carried out.

A history's own checks say what must hold after each: one owner or an honest loss, every byte the unmoved session's, no
memory kept, the next move done.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from worldline.control import order as words
from worldline.control.handoff import Handoff
from worldline.control.order import Command, Order
from worldline.schema.receipt import Mode
from worldline.testing.simulation import QUIET, Kinds, Simulation, Tally, Wish

MOMENTS_S = (0.0, 0.004, 0.012, 0.03)
"""After the command was given: before it arrives, as it arrives, while it is done, and when it was answered."""
DISK_FAILS_S = 0.4
COMMANDS: dict[str, type[Command]] = {
    "prepare": words.PrepareTarget,
    "run": words.RunSource,
    "await": words.AwaitPrepared,
    "swap": words.SwapOwner,
    "activate": words.Activate,
    "retire": words.Retire,
    "discard": words.Discard,
    "thaw": words.Thaw,
    "write-image": words.WriteImage,
    "load-image": words.LoadImage,
}
VICTIMS = ("source", "target", "controller", "link", "disk")
ROADS = {
    f"{mode.value}-{transport}": (Wish(0.5, mode, "b", hands_over=transport == "shm"),)
    for mode, transport in product((Mode.FREEZE, Mode.PRECOPY), ("tcp", "shm"))
}
SHELF = (Wish(0.5, Mode.PARK), Wish(1.5, Mode.RESUME, "b"))
ABSENT = {("write-image", "target"), ("load-image", "source"), ("write-image", "link"), ("load-image", "link")}


@dataclass
class Blow:
    """What strikes once, the first time that the command is given."""

    command: type[Command]
    victim: str
    moment_s: float
    simulation: Simulation | None = None
    given: bool = False
    hit: bool = False

    def strike(self, order: Order) -> None:
        simulation = self.simulation
        assert simulation is not None
        match self.victim:
            case "source" | "target":
                name = order.source if self.victim == "source" else order.target
                assert name is not None
                self.hit = simulation.hosts[name].alive
                simulation.end_host(simulation.hosts[name])
            case "controller":
                self.hit = simulation.controller.alive
                if self.hit:
                    simulation.controller.end()
            case "disk":
                self.hit = True
                self.fail_disk(1.0)
                simulation.timeline.after(DISK_FAILS_S, lambda: self.fail_disk(0.0))
            case _:
                assert order.target is not None
                attempt = simulation.hosts[order.target].targets.get(order.move)
                if attempt is not None and attempt.link is not None:
                    self.hit = True
                    attempt.link.cut("cut by a blow")

    def fail_disk(self, chance: float) -> None:
        assert self.simulation is not None
        chances = self.simulation.chances
        assert isinstance(chances, dict)
        chances.update({"record-fails": chance, "image-fails": chance, "swap-unknown": chance})


def struck(blow: Blow, road: tuple[Wish, ...]) -> Tally:
    class Given(Handoff):
        def handle(self, event: words.Event, now_s: float) -> list[Command]:
            commands = super().handle(event, now_s)
            if not blow.given and any(isinstance(command, blow.command) for command in commands):
                blow.given = True
                assert blow.simulation is not None
                blow.simulation.timeline.after(blow.moment_s, lambda: blow.strike(self._order))
            return commands

    # Discard and Thaw are of a refused order alone: its target lies.
    refused = 1.0 if issubclass(blow.command, words.Discard | words.Thaw) else 0.0
    blow.simulation = Simulation(5, Kinds(handoff=Given), {**QUIET, "receipt-lies": refused}, road)
    return blow.simulation.run()


def cells() -> list[tuple[str, str, str]]:
    moves = [name for name in COMMANDS if not name.endswith("image")]
    found = list(product(moves, VICTIMS, ROADS))
    found += [(name, victim, "shelf") for name in ("write-image", "load-image") for victim in VICTIMS]
    return [cell for cell in found if cell[:2] not in ABSENT]


@pytest.mark.parametrize(("command", "victim", "road"), cells(), ids=lambda part: part)
def test_whatever_breaks_at_a_command_there_is_one_owner_or_an_honest_loss(
    command: str, victim: str, road: str
) -> None:
    hit = False
    for moment_s in MOMENTS_S:
        blow = Blow(COMMANDS[command], victim, moment_s)
        tally = struck(blow, SHELF if road == "shelf" else ROADS[road])
        assert blow.given, "the road leads over the command"
        assert not tally.lost or victim in {"source", "target"}
        assert tally.damaged == 0
        hit |= blow.hit
    assert hit or victim == "link"


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("command", ["run", "await"])
def test_a_link_that_breaks_under_way_is_hit(command: str, road: str) -> None:
    blows = [Blow(COMMANDS[command], "link", moment_s) for moment_s in MOMENTS_S]
    for blow in blows:
        struck(blow, ROADS[road])
    assert any(blow.hit for blow in blows)


@pytest.mark.parametrize("road", ROADS)
def test_the_same_road_without_a_blow_is_done(road: str) -> None:
    blow = Blow(words.LoadImage, "controller", 0.0)
    tally = struck(blow, ROADS[road])
    assert not blow.given
    assert (tally.moves_done, tally.lost, tally.missed, tally.shown) == (2, 0, 0, 43)


# ---- the way back: the target ends between the swap and the line ACTIVATED

COPIED = {**{name: road for name, road in ROADS.items() if name.endswith("tcp")}, "resume": SHELF}
BACK = {"return": words.ReturnOwner, "thaw": words.Thaw}


@dataclass
class WayBack:
    """A target that ends so long after a command, and what strikes at a command of the way back."""

    command: type[Command]
    moment_s: float
    second: Blow | None = None
    simulation: Simulation | None = None
    activated: bool = False
    struck: bool = False

    def run(self, road: tuple[Wish, ...]) -> Tally:
        way = self

        class Watched(Handoff):
            def handle(self, event: words.Event, now_s: float) -> list[Command]:
                commands = super().handle(event, now_s)
                for command in commands:
                    way.see(command, self._order)
                return commands

        self.simulation = Simulation(5, Kinds(handoff=Watched), dict(QUIET), road)
        if self.second is not None:
            self.second.simulation = self.simulation
        return self.simulation.run()

    def see(self, command: Command, order: Order) -> None:
        simulation, second, target = self.simulation, self.second, order.target
        assert simulation is not None
        self.activated |= command == words.Journal(words.JournalPhase.ACTIVATED, {})
        if isinstance(command, self.command) and target is not None and not self.struck:
            self.struck = True
            simulation.timeline.after(self.moment_s, lambda: simulation.end_host(simulation.hosts[target]))
        if second is not None and isinstance(command, second.command) and not second.given:
            second.given = True
            simulation.timeline.after(second.moment_s, lambda: second.strike(order))


@pytest.mark.parametrize("moment_s", MOMENTS_S)
@pytest.mark.parametrize("command", [words.SwapOwner, words.Activate], ids=["swap", "activate"])
@pytest.mark.parametrize("road", COPIED)
def test_a_target_that_ends_before_it_is_known_to_play_costs_nobody_a_copied_session(
    road: str, command: type[Command], moment_s: float
) -> None:
    way = WayBack(command, moment_s)
    tally = way.run(COPIED[road])
    assert way.struck
    assert tally.source_stood == 0
    assert way.activated or (tally.lost, tally.moves_returned) == (0, 1)


@pytest.mark.parametrize("moment_s", MOMENTS_S)
@pytest.mark.parametrize("command", [words.SwapOwner, words.Retire, words.Activate], ids=["swap", "fence", "activate"])
@pytest.mark.parametrize("road", sorted(ROADS.keys() - COPIED.keys()))
def test_a_target_that_ends_before_a_handed_over_session_was_fenced_costs_at_most_what_it_held_alone(
    road: str, command: type[Command], moment_s: float
) -> None:
    way = WayBack(command, moment_s)
    tally = way.run(ROADS[road])
    assert way.struck
    assert (tally.lost, tally.moves_returned) in {(0, 1), (1, 0)}
    assert tally.source_stood == 0


def ways_back() -> list[tuple[str, str, str]]:
    """A session in its image has no source, and nobody thaws it."""
    cells = product(COPIED, BACK, ("source", "controller", "disk"))
    return [cell for cell in cells if cell[0] != "resume" or (cell[1] == "return" and cell[2] != "source")]


@pytest.mark.parametrize(("road", "command", "victim"), ways_back(), ids=lambda part: part)
def test_the_way_back_is_gone_to_its_end_whatever_breaks_on_it(road: str, command: str, victim: str) -> None:
    for moment_s in MOMENTS_S:
        way = WayBack(words.SwapOwner, 0.0, second=Blow(BACK[command], victim, moment_s))
        tally = way.run(COPIED[road])
        assert way.second is not None and way.second.hit
        assert tally.source_stood == 0
        if victim == "source":  # it ends as the last holder, on the way or as the owner again
            assert tally.lost == 1
        else:
            assert (tally.lost, tally.moves_returned) == (0, 1)
