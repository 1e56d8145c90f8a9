"""Hosts that are network namespaces, joined by a switch that is one too.

Invariants
  Nothing has a name outside: `close`, the end of the process and SIGKILL leave no namespace, link, queue or process
  that the fabric started itself. (What such a process starts in its turn is its own business.)
  Hosts reach each other and nothing else: there is no link out of the switch.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import IO, Final, Self, TypeVar

from worldline.errors import BadValue, UnknownHost
from worldline.lab.fabric import port as words
from worldline.lab.fabric.counters import PortCounters, read_port
from worldline.lab.fabric.namespace import Namespace, check_tools
from worldline.lab.fabric.port import HOST_LINK, Port, switch_link
from worldline.runtime.fleet_plan import FleetPlan, HostNetwork, lettered_hosts
from worldline.schema.ids import check_name

T = TypeVar("T")

NETWORK: Final = "10.77.0."
HOSTS_MAX: Final = 64
RUN_S: Final = 60.0
END_S: Final = 5.0


class Fabric:
    """A running fabric; a context manager. Hosts are named a, b, c ... unless named."""

    def __init__(
        self,
        hosts: int | Sequence[str] = 2,
        rate: str | float | None = None,
        buffer_bytes: int | None = None,
        mtu_bytes: int = 1500,
    ) -> None:
        """All ports alike: `rate` as `200Mbit` or bytes a second, None for unshaped ones.

        Raises `BadValue`, `MissingExtra` where a program is not installed, and `Unsupported` where the kernel or this
        process's rights lack something. On an error nothing is left.
        """
        self.hosts: tuple[str, ...] = lettered_hosts(hosts) if isinstance(hosts, int) else tuple(hosts)
        if not 1 <= len(set(self.hosts)) == len(self.hosts) <= HOSTS_MAX:
            raise BadValue(f"a fabric has 1 to {HOSTS_MAX} hosts of different names")
        links = {switch_link(check_name(host, "the host")) for host in self.hosts}
        if len(links) != len(self.hosts):
            raise BadValue("names of a fabric's hosts differ within their first 13 characters")
        self.port = Port.of(rate, buffer_bytes, mtu_bytes)
        check_tools()
        self._children: list[subprocess.Popen[bytes]] = []
        # The kernel ends a child with the thread that started it: this one lives as long as the fabric.
        self._starter = ThreadPoolExecutor(1, "fabric")
        self._spaces: dict[str, Namespace] = {}
        self._switch = Namespace()
        try:
            self._lay()
        except BaseException:
            self.close()
            raise

    def _lay(self) -> None:
        self._spaces = {host: Namespace() for host in self.hosts}
        cables = [line for host in self.hosts for line in words.link_words(host, self._spaces[host].path, self.port)]
        self._switch.batch("ip", [*words.switch_words(), *cables], *self._spaces.values())
        for host, space in self._spaces.items():
            space.batch("ip", words.host_words(self.address(host), self.port))
            self._shape(host, self.port)
        self._switch.batch("tc", [line for host in self.hosts for line in words.fault_ground_words(switch_link(host))])

    def _shape(self, host: str, port: Port) -> None:
        if port.rate_bytes_per_s is not None:
            self._switch.batch("tc", words.shape_words(switch_link(host), port))
            self._spaces[host].batch("tc", words.shape_words(HOST_LINK, port))

    # ---- what hosts are told

    def address(self, host: str) -> str:
        """The host's one IPv4 address."""
        self._check(host)
        return f"{NETWORK}{self.hosts.index(host) + 1}"

    def namespace_fd(self, host: str) -> int:
        """The descriptor that holds the host's namespace; the fabric's own, open until `close`."""
        return self._space(host).fd

    # ---- running something in a host

    def run(
        self, host: str, argv: Sequence[str], timeout_s: float = RUN_S, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a program to its end. Raises `subprocess.TimeoutExpired`, after which it has been killed."""
        child = self.popen(host, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        try:
            out, err = child.communicate(timeout=timeout_s)
        except BaseException:
            child.kill()
            child.communicate()
            raise
        return subprocess.CompletedProcess(list(argv), child.returncode, out, err)

    def popen(
        self,
        host: str,
        argv: Sequence[str],
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a program in the host's network. It ends with the fabric, or with this process however that ends."""
        fd = self._space(host).fd
        command = [sys.executable, "-m", "worldline.runtime.network_child", str(os.getpid()), str(fd), *argv]
        full = None if env is None else {**os.environ, **env}

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=full, pass_fds=(fd,))

        child = self._starter.submit(start).result()
        self._children.append(child)
        return child

    def call(self, host: str, function: Callable[[], T]) -> T:
        """What `function` returns on a thread of this process inside the host: sockets it makes stay there."""
        return self._space(host).call(function)

    def place(self, plan: FleetPlan) -> FleetPlan:
        """The plan with each host of it in the network of the fabric's host of that name; moves over `tcp` cross it.

        Links are mutual TLS where the plan has certificates. Else each host proves at its start that its network leads
        nowhere else, and links are not encrypted. Controller and gateway stay outside: Unix sockets cross namespaces.
        """
        return replace(
            plan, networks={host: HostNetwork(self.namespace_fd(host), self.address(host)) for host in plan.hosts}
        )

    # ---- what goes wrong

    def cut(self, host: str) -> None:
        """Nothing reaches the host or leaves it any more, and nobody is told (a blackhole)."""
        self._plant(host, 1.0)

    def lose(self, host: str, part: float) -> None:
        """Of the packets to the host that part is lost, by chance; a bundle of packets is lost as one."""
        self._plant(host, part)

    def heal(self, host: str) -> None:
        """Undoes `cut` and `lose`."""
        self._check(host)
        self._switch.batch("tc", words.heal_words(switch_link(host)), strict=False)

    def _plant(self, host: str, part: float) -> None:
        self.heal(host)
        self._switch.batch("tc", words.drop_words(switch_link(host), part))

    # ---- what was counted

    def counters(self, host: str) -> PortCounters:
        """Of the port towards the host, since the start."""
        self._check(host)
        return read_port(self._switch.ask(["tc", "-s", "-j", "qdisc", "show", "dev", switch_link(host)]))

    # ---- the end

    def close(self) -> None:
        """Ends what `popen` started and lets go of all namespaces. Idempotent."""
        for child in self._children:
            if child.poll() is None:
                child.terminate()
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
            if child.poll() is None:
                child.kill()
                child.wait()
        self._children.clear()
        self._starter.shutdown()
        for space in (*self._spaces.values(), self._switch):
            space.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, host: str) -> None:
        if host not in self.hosts:
            raise UnknownHost(f"the fabric has no host {host!r}; it has {', '.join(self.hosts)}", host=host)

    def _space(self, host: str) -> Namespace:
        self._check(host)
        return self._spaces[host]
