"""What a port and a connection counted."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

from worldline.errors import Unsupported

_INFO_BYTES: Final = 248
_U64_BYTES_ACKED: Final = 120
_U64_BYTES_RECEIVED: Final = 128
_U64_BYTES_SENT: Final = 200
_U64_BYTES_RETRANS: Final = 208
_U16_TOTAL_RTO: Final = 240


@dataclass(frozen=True, slots=True)
class TcpCounters:
    """Of one connection so far (`struct tcp_info` of linux/tcp.h). `timeouts` is None before Linux 6.7."""

    bytes_sent: int
    bytes_acked: int
    bytes_received: int
    bytes_retransmitted: int
    timeouts: int | None


def tcp_counters(sock: socket.socket) -> TcpCounters:
    """Raises `Unsupported` on kernels before 4.19, which don't count retransmitted bytes."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _U64_BYTES_RETRANS + 8:
        raise Unsupported("this kernel does not count a connection's retransmitted bytes: Linux 4.19 does")

    def u64(offset: int) -> int:
        return int(struct.unpack_from("=Q", info, offset)[0])

    timeouts = struct.unpack_from("=H", info, _U16_TOTAL_RTO)[0] if len(info) >= _U16_TOTAL_RTO + 2 else None
    return TcpCounters(
        bytes_sent=u64(_U64_BYTES_SENT),
        bytes_acked=u64(_U64_BYTES_ACKED),
        bytes_received=u64(_U64_BYTES_RECEIVED),
        bytes_retransmitted=u64(_U64_BYTES_RETRANS),
        timeouts=timeouts,
    )


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Of the direction from the switch to the host. One dropped packet may be a bundle of many: count bytes."""

    sent_bytes: int
    sent_packets: int
    dropped_packets: int
    queued_bytes: int
    control_bytes: int


def read_port(printed: str) -> PortCounters:
    """From `tc -s -j qdisc show dev LINK`: the htb root, or whatever queue an unshaped port has."""
    queues: list[dict[str, Any]] = json.loads(printed)
    root: dict[str, Any] = next((queue for queue in queues if queue.get("root")), {})
    control: dict[str, Any] = next((queue for queue in queues if queue.get("parent") == "1:3"), {})
    return PortCounters(
        sent_bytes=int(root.get("bytes", 0)),
        sent_packets=int(root.get("packets", 0)),
        dropped_packets=int(root.get("drops", 0)),
        queued_bytes=int(root.get("backlog", 0)),
        control_bytes=int(control.get("bytes", 0)),
    )
