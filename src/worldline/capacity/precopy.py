"""Pre-copy: rounds of copying while the session plays, then a freeze for what is left; and replay in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from worldline.capacity.domain import at_least_zero, finite, positive, whole
from worldline.capacity.rewriting import Rewriting
from worldline.errors import BadValue

ROUNDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Stop:
    """When the rounds end and the freeze begins."""

    residual_bytes: float
    """At most this is left for the freeze."""
    rounds_max: int = 30


@dataclass(frozen=True, slots=True)
class Course:
    """How a pre-copy went. Round i sends `volumes[i]`; the last volume is sent in the freeze."""

    volumes: tuple[float, ...]
    bytes_per_s: float
    converged: bool
    """The last volume is within the stop's residual; otherwise rounds ran out, or stopped helping."""

    @property
    def rounds(self) -> int:
        """While playing. 0: the state was within the residual at once, and the move is a freeze."""
        return len(self.volumes) - 1

    @property
    def sent_bytes(self) -> float:
        return math.fsum(self.volumes)

    @property
    def pause_s(self) -> float:
        """Without overhead."""
        return self.volumes[-1] / self.bytes_per_s

    @property
    def finish_s(self) -> float:
        return self.sent_bytes / self.bytes_per_s


def precopy(state_bytes: float, bytes_per_s: float, rewriting: Rewriting, stop: Stop) -> Course:
    """The rounds of a pre-copy: V_0 = S, V_{i+1} = what is rewritten in V_i / B.

    Ends when the residual is small enough, when `rounds_max` is reached, or when a round left no less than the one
    before: as every law of rewriting grows with time, it will not get smaller then (D >= B). Domain: S >= 0, B > 0,
    residual >= 0, rounds_max <= 10,000. Raises `BadValue` outside. Source: Clark et al. 2005.
    """
    at_least_zero(state_bytes, "state_bytes")
    positive(bytes_per_s, "bytes_per_s")
    at_least_zero(stop.residual_bytes, "residual_bytes")
    whole(stop.rounds_max, "rounds_max", most=ROUNDS_MAX)
    volumes = [float(state_bytes)]
    while volumes[-1] > stop.residual_bytes and len(volumes) <= stop.rounds_max:
        after = finite(
            rewriting.dirty_bytes(finite(volumes[-1] / bytes_per_s, "a round's time")), "what is rewritten in a round"
        )
        volumes.append(after)
        if after >= volumes[-2]:
            break
    return Course(tuple(volumes), bytes_per_s, volumes[-1] <= stop.residual_bytes)


def linear_rounds(
    state_bytes: float, bytes_per_s: float, dirty_bytes_per_s: float, residual_bytes: float
) -> int | None:
    """Rounds until at most `residual_bytes` differ, under the linear law; None: never.

    ceil(ln(V/S) / ln(D/B)). 0 where the state is that small already; never for D >= B, or for a residual of 0 with
    D > 0. Domain: S, D, residual >= 0, B > 0. Raises `BadValue` outside. Source: Clark et al. 2005, geometric.
    """
    at_least_zero(state_bytes, "state_bytes")
    ratio = at_least_zero(dirty_bytes_per_s, "dirty_bytes_per_s") / positive(bytes_per_s, "bytes_per_s")
    at_least_zero(residual_bytes, "residual_bytes")
    if state_bytes <= residual_bytes:
        return 0
    if ratio == 0:
        return 1
    if ratio >= 1 or residual_bytes == 0:
        return None
    exact = (math.log(residual_bytes) - math.log(state_bytes)) / math.log(ratio)
    return max(1, math.ceil(exact - 1e-9))


def precopy_limit_s(state_bytes: float, bytes_per_s: float, dirty_bytes_per_s: float) -> float:
    """The time of all rounds to the last byte, S / (B - D): what the paper's gate bounds by the horizon.

    Infinite for D >= B and S > 0; 0 for S = 0. Domain: S, D >= 0, B > 0. Raises `BadValue` outside.
    """
    at_least_zero(state_bytes, "state_bytes")
    at_least_zero(dirty_bytes_per_s, "dirty_bytes_per_s")
    spare = positive(bytes_per_s, "bytes_per_s") - dirty_bytes_per_s
    if state_bytes == 0:
        return 0.0
    return state_bytes / spare if spare > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Replay:
    """A move that converges by doing the blocks again at the target."""

    behind_s: float
    """Of play, when the snapshot has arrived."""
    catch_up_s: float
    """From then until the target is level; infinite where it plays no faster than the session."""

    @property
    def finish_s(self) -> float:
        return self.behind_s + self.catch_up_s


def replay(state_bytes: float, bytes_per_s: float, speed: float, overhead_s: float = 0.0) -> Replay:
    """Snapshot, then the logged actions: the target generates `speed` blocks in the time of one.

    It is S/B + o behind on arrival, and gains speed - 1 on each second: (S/B + o) / (speed - 1). No condition on the
    dirty rate, and no pause but the swap. Domain: S, o >= 0, B, speed > 0. Raises `BadValue` outside.
    """
    at_least_zero(state_bytes, "state_bytes")
    behind_s = state_bytes / positive(bytes_per_s, "bytes_per_s") + at_least_zero(overhead_s, "overhead_s")
    if not math.isfinite(behind_s):
        raise BadValue("the snapshot would never arrive")
    gain = positive(speed, "speed") - 1
    if behind_s == 0:
        return Replay(0.0, 0.0)
    return Replay(behind_s, behind_s / gain if gain > 0 else math.inf)


def replay_rate(state_bytes: float, deadline_s: float, speed: float, overhead_s: float = 0.0) -> float:
    """The least bytes a second at which a replay is level by the deadline; infinite where it never is.

    (S/B + o) g / (g - 1) <= H gives B = S / (H (g - 1)/g - o). Domain as `replay`, deadline_s > 0.
    """
    at_least_zero(state_bytes, "state_bytes")
    at_least_zero(overhead_s, "overhead_s")
    time_s = positive(deadline_s, "deadline_s") * (1 - 1 / positive(speed, "speed")) - overhead_s
    if time_s < 0 or (time_s == 0 and state_bytes > 0):
        return math.inf
    return 0.0 if state_bytes == 0 else state_bytes / time_s
