"""Many senders into one port: what it costs when all begin at once, and what a token each costs.

Three parts. *Blocks*: small blocks over TCP, asked for at once or one at a time; where a burst is lost, a connection
waits for the kernel's 200 ms. *Go back*: large transfers over a transport that goes back on loss, the same sender in
both arms; times may hide the collapse, so bytes sent over bytes needed is the figure. *Freeze*: two paced flows into
one receiver that checks what arrives, on the path on which it arrives (inline), nowhere (the control: an executor that
does nothing), or on a lane of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from threading import Event

from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue
from worldline.lab.experiments.frame import Experiment, Trial
from worldline.lab.experiments.go_back_n import Receiver, Sender, Sent, receiving_socket
from worldline.lab.experiments.incast_report import Arm, BlockRound, Blocks, Freeze, GoBack, Incast, good, report, text
from worldline.lab.experiments.tcp_blocks import Round, Senders
from worldline.lab.fabric import Fabric
from worldline.units import parse_rate

TCP_RATE, TCP_BUFFER_BYTES, BLOCK_BYTES = "200Mbit", 48_000, 256 * 1024
UDP_RATE, UDP_MTU_BYTES, UDP_BUFFER_BYTES, MOVE_BYTES = "50Mbit", 9000, 96_000, 2 << 20
AMPLE_BYTES = 4 << 20
"""The receiver's own buffer where the switch is what is looked at."""
FREEZE_FLOWS, FREEZE_PACE = 2, 0.45
"""Each flow's part of the port: together they fit."""
ENGINE = 2.0
"""How fast the inline engine is, in lines: the freeze is not for want of speed."""
CHUNK_BYTES = 1 << 20


def measure(trial: Trial, *, flows: int = 8, rounds: int = 5, moves: int = 3) -> Incast:
    """Compares senders that begin at once with senders that get a token each, over TCP and over go-back-N.

    Exit code 0: at most 1.05 of the bytes needed are sent with tokens and at least 2.7 times without; small blocks over
    TCP take at least twice as long without, and with tokens no retransmission timer runs out; and two flows freeze
    under inline checks, but not under the control.

    Parameters
    ----------
    trial: Trial
        The run.
    flows: int
        Senders, 2 to 16.
    rounds: int
        Of blocks over TCP, each arm.
    moves: int
        Rounds of transfers over go-back-N, each arm.
    """
    if not (2 <= flows <= 16 and 1 <= rounds <= 100 and 1 <= moves <= 20):
        raise BadValue("2 to 16 flows, 1 to 100 rounds of blocks, and 1 to 20 of transfers")
    clock = SystemClock()
    blocks = _blocks(trial, clock, flows, rounds)
    going_back = _go_back(trial, clock, flows, moves)
    freeze = _freeze(trial, clock)
    return Incast(
        going_back.scheduled.sent_over_needed,
        going_back.unscheduled.sent_over_needed,
        blocks.ratio,
        blocks.scheduled_timeouts,
        blocks,
        going_back,
        freeze,
    )


# ---- small blocks over TCP


def _blocks(trial: Trial, clock: Clock, flows: int, rounds: int) -> Blocks:
    with Fabric(flows + 1, TCP_RATE, TCP_BUFFER_BYTES) as fabric, Senders(fabric, BLOCK_BYTES, clock) as senders:
        senders.one_at_a_time()  # connections as they are later
        at_once: list[Round] = []
        in_turn: list[Round] = []
        for _ in range(rounds):
            at_once.append(senders.at_once())
            in_turn.append(senders.one_at_a_time())
            trial.telemetry.check()
    ideal_s = flows * BLOCK_BYTES / parse_rate(TCP_RATE)
    found = Blocks(
        median(one.took_s / other.took_s for one, other in zip(at_once, in_turn, strict=True)),
        median(each.took_s for each in in_turn) * 1e3,
        median(each.took_s for each in at_once) * 1e3,
        ideal_s * 1e3,
        1 + 0.2 / ideal_s,
        sum(each.timeouts for each in in_turn),
        sum(each.timeouts for each in at_once),
        sum(each.retransmitted_bytes for each in at_once) / (rounds * flows * BLOCK_BYTES),
        [
            BlockRound(at, turn.took_s * 1e3, once.took_s * 1e3)
            for at, (turn, once) in enumerate(zip(in_turn, at_once, strict=True), start=1)
        ],
    )
    trial.say(f"blocks over TCP: {found.ratio:.2f} times as long at once, {found.unscheduled_timeouts} timeouts")
    return found


# ---- go back


class _Wire:
    """Sending hosts and one receiver on a fabric of the parameters above."""

    def __init__(self, stack: ExitStack, senders: int, buffer_bytes: int, clock: Clock, pace: float | None) -> None:
        self.clock = clock
        fabric = stack.enter_context(Fabric(senders + 1, UDP_RATE, UDP_BUFFER_BYTES, UDP_MTU_BYTES))
        address = fabric.address("a")
        self.sink = stack.enter_context(fabric.call("a", lambda: receiving_socket(address, buffer_bytes)))
        place = self.sink.getsockname()
        self._flow = 0
        self.senders = []
        for host in fabric.hosts[1:]:
            sock = stack.enter_context(fabric.call(host, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            self.senders.append(Sender(sock, place, clock, pace))
        self._pool = stack.enter_context(ThreadPoolExecutor(senders))

    def at_once(self, nbytes: int) -> list[Sent]:
        return list(self._pool.map(lambda at: at[0].send(nbytes, at[1]), self._numbered()))

    def one_at_a_time(self, nbytes: int) -> list[Sent]:
        """A token for each: permission to send, given when the one before is through."""
        return [sender.send(nbytes, flow) for sender, flow in self._numbered()]

    def _numbered(self) -> Sequence[tuple[Sender, int]]:
        first, self._flow = self._flow, self._flow + len(self.senders)
        return list(zip(self.senders, range(first, self._flow), strict=True))


def _go_back(trial: Trial, clock: Clock, flows: int, rounds: int) -> GoBack:
    scheduled: list[tuple[float, list[Sent]]] = []
    unscheduled: list[tuple[float, list[Sent]]] = []
    with ExitStack() as stack:
        wire = _Wire(stack, flows, AMPLE_BYTES, clock, None)
        stack.enter_context(Receiver(wire.sink, clock))
        for _ in range(rounds):
            scheduled.append(_timed(clock, lambda: wire.one_at_a_time(MOVE_BYTES)))
            unscheduled.append(_timed(clock, lambda: wire.at_once(MOVE_BYTES)))
            trial.telemetry.check()
    found = GoBack(_arm(scheduled), _arm(unscheduled))
    trial.say(
        f"going back: {found.scheduled.sent_over_needed:.2f} of the bytes needed are sent with tokens, "
        f"{found.unscheduled.sent_over_needed:.2f} without"
    )
    return found


def _timed(clock: Clock, work: Callable[[], list[Sent]]) -> tuple[float, list[Sent]]:
    began_s = clock.monotonic_s()
    sent = work()
    return clock.monotonic_s() - began_s, sent


def _arm(rounds: Sequence[tuple[float, list[Sent]]], stalled_s: float = 0.0) -> Arm:
    sent = [each for _, flows in rounds for each in flows]
    return Arm(
        sum(each.sent_bytes for each in sent) / sum(each.needed_bytes for each in sent),
        median(took_s for took_s, _ in rounds),
        sum(each.times_back for each in sent),
        stalled_s,
    )


# ---- freeze


def _freeze(trial: Trial, clock: Clock) -> Freeze:
    """Two flows that fit into the port together, and a receiver that checks a chunk now and then."""
    line = parse_rate(UDP_RATE)

    def check(nbytes: int) -> None:
        Event().wait(nbytes / (ENGINE * line))

    def one(executor: Callable[[int], None]) -> Arm:
        with ExitStack() as stack:
            wire = _Wire(stack, FREEZE_FLOWS, UDP_BUFFER_BYTES, clock, FREEZE_PACE * line)
            receiver = stack.enter_context(Receiver(wire.sink, clock, executor, CHUNK_BYTES))
            timed = _timed(clock, lambda: wire.at_once(2 * MOVE_BYTES))
        trial.telemetry.check()
        return _arm([timed], receiver.stalled_s_max)

    with ThreadPoolExecutor(1, "lane") as lane:

        def hand_over(nbytes: int) -> None:
            lane.submit(check, nbytes)

        found = Freeze(one(check), one(lambda _: None), one(hand_over))
    trial.say(f"two flows: {found.inline.took_s:.2f} s inline, {found.control.took_s:.2f} s under the control")
    return found


INCAST = Experiment(measure, report, text, good)
