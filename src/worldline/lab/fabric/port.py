"""What one port of the switch does to the bytes of its host, and the words of `ip` and `tc` that make it so. Pure.

Each direction of a port is a token bucket (htb) with two classes: control, which always goes first, and the rest, in
one byte-limited queue. The sender's direction stands at the host's own end, so that a host is slowed as by a card of
that speed; the receiver's stands at the switch, where several senders meet and packets are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from worldline.errors import BadValue
from worldline.transport.private_network import ALIAS
from worldline.units import parse_rate

CONTROL_TOS: Final = 0xC0
"""IP_TOS of sockets whose packets go ahead of all others (class selector 6)."""
CONTROL_PART: Final = 0.05
"""Of a port's rate, kept for control even where the rest would take all."""
BURST_BYTES_MIN: Final = 32 * 1024
BURST_S: Final = 0.0016
BUFFER_BYTES_MIN: Final = 512 * 1024
BUFFER_S: Final = 0.010
SEGMENT_BYTES_MAX: Final = 65_536
RATE_BYTES_PER_S_MIN: Final = 12_500.0
HOST_LINK: Final = "eth0"
_SHOT = "2"
_PASSED = "0"
_RANDOM_WORD = "32 0 0 4294963256"
"""cBPF: load a random word (SKF_AD_OFF + SKF_AD_RANDOM)."""


@dataclass(frozen=True, slots=True)
class Port:
    """One host's port, both directions alike. `rate_bytes_per_s` None: as fast as the machine."""

    rate_bytes_per_s: float | None = None
    buffer_bytes: int | None = None
    """Of the queue at the switch; None: 10 ms of the rate, half a mebibyte at least."""
    mtu_bytes: int = 1500

    def __post_init__(self) -> None:
        if self.rate_bytes_per_s is not None and not RATE_BYTES_PER_S_MIN <= self.rate_bytes_per_s <= 12.5e9:
            raise BadValue("a port's rate is between 100kbit and 100Gbit")
        if not 576 <= self.mtu_bytes <= 65_000:
            raise BadValue(f"a port's packets have 576 to 65000 bytes, not {self.mtu_bytes}")
        if self.buffer_bytes is not None and self.buffer_bytes < 2 * self.mtu_bytes:
            raise BadValue("a port's buffer holds two packets at least")

    @classmethod
    def of(cls, rate: str | float | None, buffer_bytes: int | None = None, mtu_bytes: int = 1500) -> Port:
        """`rate` as people write it (`200Mbit`), or bytes a second."""
        return cls(parse_rate(rate) if isinstance(rate, str) else rate, buffer_bytes, mtu_bytes)

    @property
    def queue_bytes(self) -> int:
        if self.buffer_bytes is not None:
            return self.buffer_bytes
        return max(BUFFER_BYTES_MIN, int(BUFFER_S * (self.rate_bytes_per_s or 0.0)))

    @property
    def segment_bytes(self) -> int:
        """The largest bundle of packets the kernel passes on as one: four fit into the buffer at least, or a small
        buffer would lose all of them.
        """
        return max(2 * self.mtu_bytes, min(SEGMENT_BYTES_MAX, self.queue_bytes // 4))


@dataclass(frozen=True, slots=True)
class Dilation:
    """A link of `rate_bytes_per_s` played at `emulated_bytes_per_s`: every time stretches by their quotient.

    Exact for what is bound by bytes over rate; the kernel's own times (retransmission, delayed acknowledgement) don't
    stretch, and an experiment that rests on them says so.
    """

    rate_bytes_per_s: float
    emulated_bytes_per_s: float

    @property
    def factor(self) -> float:
        return self.rate_bytes_per_s / self.emulated_bytes_per_s

    def emulated_s(self, real_s: float) -> float:
        """How long something of `real_s` on the real link takes here."""
        return real_s * self.factor

    def real_s(self, emulated_s: float) -> float:
        return emulated_s / self.factor


# ---- words of ip


def switch_words() -> Iterator[str]:
    yield "link set lo up"
    yield "link add br0 type bridge"
    yield "link set br0 up"


def link_words(host: str, namespace: str, port: Port) -> Iterator[str]:
    """In the switch: one host's cable. `namespace` is the path of the host's."""
    link = switch_link(host)
    yield f"link add {link} mtu {port.mtu_bytes} type veth peer name {HOST_LINK} mtu {port.mtu_bytes} netns {namespace}"
    yield f"link set {link} gso_max_size {port.segment_bytes} master br0 up"


def host_words(address: str, port: Port) -> Iterator[str]:
    """In the host."""
    yield "link set lo up"
    yield f"link set {HOST_LINK} gso_max_size {port.segment_bytes} alias {ALIAS} up"
    yield f"address add {address}/24 dev {HOST_LINK}"


def switch_link(host: str) -> str:
    """The name of a host's link at the switch; the kernel takes 15 characters."""
    return f"p-{host}"[:15]


# ---- words of tc


def shape_words(link: str, port: Port) -> Iterator[str]:
    """One direction. Nothing for a port without a rate."""
    if port.rate_bytes_per_s is None:
        return
    rate = port.rate_bytes_per_s
    burst = max(BURST_BYTES_MIN, int(rate * BURST_S))
    ceiling = f"ceil {rate * 8:.0f}bit burst {burst} cburst {burst} quantum {SEGMENT_BYTES_MAX}"
    yield f"qdisc add dev {link} root handle 1: htb default 2"
    yield f"class add dev {link} parent 1: classid 1:1 htb rate {rate * 8:.0f}bit {ceiling}"
    data, control = rate * 8 * (1 - CONTROL_PART), rate * 8 * CONTROL_PART
    yield f"class add dev {link} parent 1:1 classid 1:2 htb rate {data:.0f}bit {ceiling} prio 1"
    yield f"class add dev {link} parent 1:1 classid 1:3 htb rate {control:.0f}bit {ceiling} prio 0"
    yield f"qdisc add dev {link} parent 1:2 handle 2: bfifo limit {port.queue_bytes}"
    yield f"qdisc add dev {link} parent 1:3 handle 3: bfifo limit {BUFFER_BYTES_MIN}"
    yield f"filter add dev {link} parent 1: protocol ip prio 1 u32 match ip tos {CONTROL_TOS:#x} 0xfc flowid 1:3"
    yield f"filter add dev {link} parent 1: protocol arp prio 2 u32 match u32 0 0 flowid 1:3"


def fault_ground_words(link: str) -> Iterator[str]:
    """Where faults are planted later."""
    yield f"qdisc add dev {link} clsact"


def drop_words(link: str, part: float) -> Iterator[str]:
    """Of what goes to the host that part is lost, by chance; at 1 all of it, in both directions."""
    if not 0 < part <= 1:
        raise BadValue(f"a part of the packets is lost: above 0 and at most 1, not {part}")
    if part == 1:
        code = f"1,6 0 0 {_SHOT}"
        yield f"filter add dev {link} ingress pref 1 protocol all bpf da bytecode '{code}'"
    else:
        code = f"4,{_RANDOM_WORD},53 1 0 {int(part * 2**32)},6 0 0 {_SHOT},6 0 0 {_PASSED}"
    yield f"filter add dev {link} egress pref 1 protocol all bpf da bytecode '{code}'"


def heal_words(link: str) -> Iterator[str]:
    yield f"filter del dev {link} egress"
    yield f"filter del dev {link} ingress"
