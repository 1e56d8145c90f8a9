"""A network namespace that nothing but a file descriptor holds.

Invariant: it has no name, so when the descriptor and the last process inside are gone the kernel takes it apart, with
every link in it. Nothing has to be cleaned up, and a killed owner leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Final, Literal, TypeVar

from worldline.errors import Internal, MissingExtra, TimedOut, Unsupported
from worldline.runtime.network_child import enter_network

T = TypeVar("T")

TOOLS: Final = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}
"""Programs that a fabric needs, and the packages that bring them."""
BATCH_S: Final = 30.0
SETTINGS: Final = {
    "net/ipv4/tcp_congestion_control": "cubic",
    "net/ipv4/tcp_rmem": "4096 131072 33554432",
    "net/ipv4/tcp_wmem": "4096 65536 33554432",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}
"""Of each namespace, where the kernel has them: fabrics behave alike, whatever the machine prefers."""
_CLONE_NEWNET = 0x40000000


def check_tools() -> None:
    """Raises `MissingExtra` naming the first program that is not there."""
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise MissingExtra(f"a fabric needs the program {tool}: install {package}", tool=tool)


class Namespace:
    """Made empty. `close` lets go of it."""

    def __init__(self) -> None:
        """Raises `Unsupported` where the kernel or this process's rights don't allow it."""
        self.fd: int = _on_a_thread(_made)

    @property
    def path(self) -> str:
        """For a child that inherits the descriptor."""
        return f"/proc/self/fd/{self.fd}"

    def call(self, function: Callable[[], T]) -> T:
        """What `function` returns on a thread inside: the sockets it makes stay there, whoever uses them later."""
        return _on_a_thread(lambda: self._inside(function))

    def batch(self, tool: Literal["ip", "tc"], words: Iterable[str], *others: Namespace, strict: bool = True) -> None:
        """Has the tool carry out all lines at once. Raises `Unsupported` with what the kernel said."""
        force = [] if strict else ["-force"]
        self._run([tool, *force, "-batch", "-"], "".join(f"{line}\n" for line in words), others, strict)

    def ask(self, argv: list[str]) -> str:
        """What a command prints inside."""
        return self._run(argv, "", (), strict=True)

    def close(self) -> None:
        """Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _inside(self, function: Callable[[], T]) -> T:
        enter_network(self.fd)
        return function()

    def _run(self, argv: list[str], words: str, others: Iterable[Namespace], strict: bool) -> str:
        inherited = (self.fd, *(other.fd for other in others))
        command = ["nsenter", f"--net={self.path}", *argv]
        try:
            done = subprocess.run(
                command, input=words, pass_fds=inherited, capture_output=True, text=True, timeout=BATCH_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TimedOut(f"{argv[0]} did not end within {BATCH_S:g} s") from error
        if done.returncode and strict:
            raise Unsupported(f"the fabric can't be laid: {argv[0]} says {_said(done.stderr)!r}", tool=argv[0])
        return done.stdout


def _said(text: str) -> str:
    """The first line that is a complaint and no warning."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("Warning", "Command failed"))]
    return (lines or ["nothing"])[0][:300]


def _made() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        if code == errno.EPERM:
            raise Unsupported(
                "this process may not make network namespaces: run as root, or everything under `unshare -Urn`"
            )
        raise Unsupported(f"the kernel makes no network namespace: {os.strerror(code)}")
    for name, value in SETTINGS.items():
        try:
            Path("/proc/sys", name).write_text(value)
        except OSError:  # a kernel without it, or a read-only /proc: the machine's own value stays
            continue
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _on_a_thread(function: Callable[[], T]) -> T:
    """A namespace is a thread's: one that entered it is thrown away."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001  the thread's root: the caller raises it again
            errors.append(error)

    thread = Thread(target=work, name="in-a-namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    if not results:
        raise Internal("a thread in a namespace ended without a word")
    return results[0]
