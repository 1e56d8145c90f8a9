"""`/metrics`: what the gateway sees, by Prometheus' conventions: base units, no label that grows with sessions."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from worldline.runtime.gateway import Change, Gateway
from worldline.runtime.messages import Move, MoveChanged, Snapshot

PAUSE_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0)
DURATION_BUCKETS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STATUSES = ("running", "moving", "parked", "lost")
ENDED_KEPT = 256


class Metrics:
    """One registry of its own; a `Listener` for moves."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._ended: dict[str, None] = {}
        self.registry = registry = CollectorRegistry()
        self._controller = Gauge("worldline_controller_up", "1 while the controller is connected.", registry=registry)
        self._hosts = Gauge("worldline_hosts", "Hosts, by whether they can be reached.", ["state"], registry=registry)
        self._memory = Gauge(
            "worldline_host_memory_bytes", "Session memory of each host.", ["host", "kind"], registry=registry
        )
        self._sessions = Gauge("worldline_sessions", "Sessions that are not closed.", ["status"], registry=registry)
        self._moves = Counter(
            "worldline_moves",
            "Moves, parks and resumes that ended; code is empty where one was done.",
            ["mode", "transport", "outcome", "code"],
            registry=registry,
        )
        self._pause = Histogram(
            "worldline_move_pause_seconds",
            "From the last block at the source to the target's readiness.",
            ["mode", "transport"],
            buckets=PAUSE_BUCKETS_S,
            registry=registry,
        )
        self._duration = Histogram(
            "worldline_move_duration_seconds",
            "From the start of a move to its receipt.",
            ["mode", "transport"],
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        self._bytes = Counter(
            "worldline_move_bytes", "Bytes that crossed a link.", ["mode", "transport"], registry=registry
        )
        self._requests = Counter(
            "worldline_http_requests", "Requests by path template.", ["method", "path", "status"], registry=registry
        )
        self.players = Gauge("worldline_play_connections", "Open play WebSockets.", registry=registry)

    def tell(self, told: Snapshot | Change) -> None:
        match told:
            case MoveChanged(move) if move.outcome is not None:
                self._count(move)
            case Snapshot():
                self._ended |= {move.id: None for move in told.moves if move.outcome is not None}
            case _:
                pass

    def count_request(self, method: str, path: str, status: int) -> None:
        """`path` is the template, as `/v1/sessions/{session}`."""
        self._requests.labels(method, path, status).inc()

    def text(self) -> bytes:
        """Everything, in the text format."""
        self._controller.set(self._gateway.controller_connected)
        hosts, sessions = self._gateway.hosts, self._gateway.sessions
        for state, alive in (("alive", True), ("unreachable", False)):
            self._hosts.labels(state).set(sum(host.alive is alive for host in hosts))
        for host in hosts:
            if host.facts is not None:
                self._memory.labels(host.id, "limit").set(host.facts.memory_bytes)
                self._memory.labels(host.id, "used").set(host.facts.memory_used_bytes)
        for status in STATUSES:
            self._sessions.labels(status).set(sum(session.status == status for session in sessions))
        return generate_latest(self.registry)

    def _count(self, move: Move) -> None:
        """Once a move, although its last line may be told more than once."""
        if move.id in self._ended:
            return
        self._ended[move.id] = None
        while len(self._ended) > ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        code = "" if move.error is None else move.error.code
        self._moves.labels(move.mode, move.transport, move.outcome, code).inc()
        if move.receipt is not None:
            self._pause.labels(move.mode, move.transport).observe(move.receipt.pause_s)
            self._duration.labels(move.mode, move.transport).observe(move.receipt.duration_s)
            self._bytes.labels(move.mode, move.transport).inc(move.receipt.bytes_moved)
