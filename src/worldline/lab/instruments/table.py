"""The instruments there are. Light: the command line reads it at every start."""

from __future__ import annotations

from worldline.lab.entry import Entry

_HERE = "worldline.lab.instruments"
INSTRUMENTS: dict[str, Entry] = {
    "rewrite": Entry(f"{_HERE}.rewrite:REWRITE", "What part of each family a block changes, and what of it is new."),
    "classify": Entry(
        f"{_HERE}.classify:CLASSIFY", "What each entry of the state is, and what that means for moving it."
    ),
    "inventory": Entry(
        f"{_HERE}.inventory:INVENTORY", "What breaks when a part of the state is left out, and how loudly."
    ),
    "kill": Entry(f"{_HERE}.kill:KILL", "What a session loses when its state is reduced, against a twin."),
    "boundary": Entry(
        f"{_HERE}.boundary:BOUNDARY", "One session from the same bytes on two plans: where and how far apart."
    ),
    "regime": Entry(f"{_HERE}.regime:REGIME", "D against B, with the gate: who can be moved while playing."),
}
"""Every instrument by its name; `where` names its `experiments.frame.Experiment`."""
