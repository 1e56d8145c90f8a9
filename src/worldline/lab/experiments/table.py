"""The experiments there are. Light: the command line reads it at every start."""

from __future__ import annotations

from worldline.lab.entry import Entry

EXPERIMENTS: dict[str, Entry] = {
    "contention": Entry(
        "worldline.lab.experiments.contention:CONTENTION", "Many moves into one receiver: T(N), against the analysis."
    ),
    "prices": Entry("worldline.lab.experiments.prices:PRICES", "What a move costs, and what a lane can take."),
    "prewarm": Entry(
        "worldline.lab.experiments.prewarm:PREWARM", "Returns hot, at first touch and cold; when a park pays."
    ),
    "reclaim": Entry(
        "worldline.lab.experiments.reclaim:RECLAIM",
        "Sessions a device can promise, and devices that can be given back.",
    ),
    "stall": Entry("worldline.lab.experiments.stall:STALL", "Checks inline, against lanes: what is left of the line?"),
    "incast": Entry(
        "worldline.lab.experiments.incast:INCAST", "Many senders into one port: at once, against a token each."
    ),
    "composed": Entry(
        "worldline.lab.experiments.composed:COMPOSED", "Everything at once on two providers' hosts: is anything lost?"
    ),
    "scale": Entry(
        "worldline.lab.experiments.scale:SCALE", "Decide moves in a fleet of 10,000 hosts: what does one cost?"
    ),
    "overload": Entry(
        "worldline.lab.experiments.overload:OVERLOAD", "Offer up to twice what the ports carry: is any promise late?"
    ),
}
"""Every experiment by its name; `where` names its `frame.Experiment`."""
