"""`bench wire`: a verified transfer against what the port gives without verifying anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from worldline.errors import BadValue
from worldline.lab.bench.frame import Cell, Finding, Trial
from worldline.lab.bench.pair.parent import Pair
from worldline.lab.bench.samples import Samples
from worldline.lab.fabric import Fabric
from worldline.units import parse_bytes, parse_rate

UNSHAPED = "none"
UNSHAPED_BYTES = 1 << 30
LINE_S = 1.0
"""A transfer takes about that long on its port, where no size is given."""
BARS = {"1Gbit": 0.98, "2Gbit": 0.98, "5Gbit": 0.95, UNSHAPED: 0.80}


def wire(trial: Trial, *, rate: str = "1Gbit,2Gbit,5Gbit", bytes: str | None = None) -> Finding:  # noqa: A002 - the option's name
    """Moves a state from one process to another over tcp: both sides digest every byte, and compare.

    On a port of a fabric the other arm is plain sockets that check nothing: the port's ceiling. With rate none, on
    loopback, it is the same code without digests. The ratio is the lowest of all rates.

    Parameters
    ----------
    rate: str
        Of the ports, one after another, like 1Gbit,2Gbit; none for loopback without a port.
    bytes: str
        Of the state; by default what the port carries in a second, and 1 GiB without one.
    """
    rates = [word.strip() for word in rate.split(",") if word.strip()]
    if not rates:
        raise BadValue("a bench of the wire is told a rate, or none")
    arms: dict[str, tuple[float, ...]] = {}
    rows: list[Mapping[str, Cell]] = []
    ratios: list[float] = []
    for each in rates:
        samples = _unshaped(trial, bytes) if each == UNSHAPED else _shaped(trial, each, bytes)
        verified, other = samples.arms
        ratio = samples.ratio(verified, other)
        ratios.append(ratio)
        rows.append({"rate": each, "verified / unverified": ratio, "at least": BARS.get(each)})
        arms |= samples.arms
        trial.say(f"{each}: {ratio:.3f}")
    what = "verified bytes/s / unverified, the lowest of all rates"
    return Finding(min(ratios), what, Samples("bytes/s", arms), rows=tuple(rows))


def _shaped(trial: Trial, rate: str, size: str | None) -> Samples:
    rate_bytes_per_s = parse_rate(rate)
    nbytes = parse_bytes(size) if size is not None else int(rate_bytes_per_s * LINE_S)
    with Fabric(2, rate_bytes_per_s) as fabric, Pair.start(nbytes, fabric) as pair:
        return _measure(trial, pair, {f"verified, {rate}": "verified", f"sockets, {rate}": "sockets"})


def _unshaped(trial: Trial, size: str | None) -> Samples:
    nbytes = UNSHAPED_BYTES if size is None else parse_bytes(size)
    with Pair.start(nbytes) as pair:
        return _measure(trial, pair, {"verified": "verified", "unverified": "unverified"})


def _measure(trial: Trial, pair: Pair, engines: dict[str, str]) -> Samples:
    for engine in engines.values():
        pair.open(engine)

    def rate_of(engine: str) -> Callable[[], float]:
        return lambda: pair.nbytes / pair.transfer(engine).seconds

    return trial.interleave({arm: rate_of(engine) for arm, engine in engines.items()}, "bytes/s")
