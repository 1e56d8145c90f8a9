"""`bench peers`: a verified move of bytes over tcp against engines that verify nothing, and what it costs in CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from worldline.errors import BadValue, MissingExtra, Unsupported
from worldline.lab.bench.frame import Cell, Finding, Peer, Trial
from worldline.lab.bench.pair.engine import ENGINES, PEERS
from worldline.lab.bench.pair.parent import Pair
from worldline.lab.bench.samples import Samples
from worldline.lab.fabric import Fabric
from worldline.units import parse_bytes, parse_rate

OURS = "verified"
FLOOR = "sockets"
LOWEST = "patient"
"""Plain sockets at their cheapest, shown beside."""
CPU_RATIO_MAX = 1.3
CPU_PORT_S = 1.0
"""A transfer on the port takes about that long."""


def peers(trial: Trial, *, bytes: str = "1GiB", against: str = ",".join(PEERS), port: str = "2Gbit") -> Finding:  # noqa: A002 - the option's name
    """One pair of processes on loopback moves the same bytes with each engine in turn. Ours digests and compares.

    The ratio is ours over the fastest peer. Then, on a port of a fabric, the processor time of both processes: ours
    over plain sockets that check nothing, which may be 1.3 at most. A peer that is not installed is named with what
    to install.

    Parameters
    ----------
    bytes: str
        Of the state.
    against: str
        Peers: nixl, mooncake, gloo, zeromq.
    port: str
        The rate at which processor time is compared; none leaves it out.
    """
    names = [word.strip() for word in against.split(",") if word.strip()]
    unknown = sorted(set(names) - set(PEERS))
    if unknown or not names:
        raise BadValue(f"peers are {', '.join(PEERS)}, and not {', '.join(unknown) or 'none'}")
    with Pair.start(parse_bytes(bytes)) as pair:
        missing = _missing(pair, names)
        there = [name for name in names if name not in missing]
        samples = trial.interleave({name: _rate_of(pair, name) for name in (OURS, *there)}, "bytes/s")
    found = tuple(Peer(name, samples.ratio(OURS, name)) for name in there)
    ratios = {peer.name: peer.ratio for peer in found}
    rows: list[Mapping[str, Cell]] = [
        {"peer": name, "ratio": ratios.get(name), "settings": ENGINES[name].settings} for name in names
    ]
    notes = [f"{name} was left out: {why}" for name, why in missing.items()]
    notes.append(_cpu_note(trial, port))
    if not found:
        raise MissingExtra("; ".join(notes[:-1]))
    slowest = min(peer.ratio for peer in found)
    what = "verified bytes/s / the fastest peer's, unverified"
    return Finding(slowest, what, samples, peers=found, rows=tuple(rows), notes=tuple(notes))


def _missing(pair: Pair, names: list[str]) -> dict[str, str]:
    """Those that don't open here, and why."""
    missing: dict[str, str] = {}
    for name in names:
        try:
            pair.open(name)
        except MissingExtra as error:
            missing[name] = error.sentence
        else:
            pair.close(name)
    return missing


def _rate_of(pair: Pair, name: str) -> Callable[[], float]:
    """There for its own turn alone: a peer's thread may poll without end, and take a core from the others."""

    def rate() -> float:
        pair.open(name)
        try:
            pair.transfer(name)  # connections are made, memory is known
            return pair.nbytes / pair.transfer(name).seconds
        finally:
            pair.close(name)

    return rate


def _cpu_note(trial: Trial, port: str) -> str:
    """Processor time on a port, in turns, as one sentence."""
    if port == "none":
        return "processor time on a port was not asked for"
    try:
        samples = _cpu_samples(trial, parse_rate(port))
    except (Unsupported, MissingExtra) as error:
        return f"processor time on a port was not measured: {error.sentence}"
    ratio, lowest = samples.ratio(OURS, FLOOR), samples.ratio(OURS, LOWEST)
    took = ", ".join(f"{name} {median(figures):.3f}" for name, figures in samples.arms.items())
    bound = f"{ratio:.3f} (at most {CPU_RATIO_MAX}), over {LOWEST} ones {lowest:.3f}"
    return f"processor time on a {port} port, over plain sockets: {bound}; s/GB: {took}"


def _cpu_samples(trial: Trial, rate_bytes_per_s: float) -> Samples:
    nbytes = int(rate_bytes_per_s * CPU_PORT_S)
    with Fabric(2, rate_bytes_per_s) as fabric, Pair.start(nbytes, fabric) as pair:
        for name in (OURS, FLOOR, LOWEST):  # none of them polls: they may stay open
            pair.open(name)
        arms = {name: (lambda name=name: pair.transfer(name).cpu_s / nbytes * 1e9) for name in (OURS, FLOOR, LOWEST)}
        return trial.interleave(arms, "s/GB")
