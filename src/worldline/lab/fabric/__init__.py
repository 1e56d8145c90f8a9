"""Hosts on one machine with a network between them: namespaces, a switch, shaped ports, planted faults.

with Fabric(hosts=4, rate="200Mbit") as fabric:
    fabric.run("a", ["ping", "-c1", fabric.address("b")])
"""

from worldline.lab.fabric.counters import PortCounters, TcpCounters, tcp_counters
from worldline.lab.fabric.fabric import Fabric
from worldline.lab.fabric.port import CONTROL_TOS, Dilation, Port

__all__ = ["CONTROL_TOS", "Dilation", "Fabric", "Port", "PortCounters", "TcpCounters", "tcp_counters"]
