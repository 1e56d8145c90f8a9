"""The benches there are. Light: the command line reads it at every start."""

from __future__ import annotations

from worldline.lab.entry import Entry

BENCHES: dict[str, Entry] = {
    "same-node": Entry("worldline.lab.bench.moving:same_node", "A verified move on one machine, against torch.save."),
    "live": Entry("worldline.lab.bench.moving:live", "The pause of a hand-over, against a freeze by copy."),
    "serve": Entry("worldline.lab.bench.moving:serve", "The block period during a move, against before."),
    "prices": Entry("worldline.lab.bench.prices:prices", "What each step costs a GiB, and the pauses that follow."),
    "decisions": Entry("worldline.lab.bench.decisions:decisions", "Admission decisions a second, the calendar full."),
    "peers": Entry("worldline.lab.bench.peers:peers", "A verified transfer against engines that verify nothing."),
    "wire": Entry("worldline.lab.bench.wire:wire", "A verified transfer over tcp, against an unverified one."),
    "rolls": Entry("worldline.lab.bench.rolls:rolls", "Bytes of a rolling cache's residual, against dirty chunks."),
    "codec": Entry("worldline.lab.bench.codec:codec", "Goodput with a codec chosen by rates, against raw bytes."),
    "digest": Entry("worldline.lab.bench.digest:digest", "Verifying a state against only reading it, a core."),
}
"""Every bench by its name; `where` names its function."""
