"""A fleet on one machine: a controller, a gateway and hosts, each a process of its own, kept alive while the fleet is.

Invariant: no process outlives the fleet. A member that ends by itself is started again after a pause that grows; a
host that was started again holds no sessions, which the controller finds out from its generation.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

from worldline.clock import Clock, SystemClock
from worldline.errors import BadValue, ControllerGone, Internal, MissingExtra, TimedOut, UnknownHost
from worldline.runtime.fleet_plan import FleetPlan
from worldline.runtime.messages import Host, ListHosts
from worldline.runtime.rpc import connect
from worldline.runtime.run_dir import GATEWAY_ADDRESS, controller_socket, make_run_dir
from worldline.schema.ids import check_name

CONTROLLER = "controller"
GATEWAY = "gateway"
LOCK = "fleet.lock"
START_WAIT_S = 60.0
STOP_WAIT_S = 5.0
POLL_S = 0.05
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0
STEADY_S = 10.0
"""A member that lived this long starts again without a pause when it ends."""

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """How one member is started."""

    name: str
    module: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    namespace_fd: int | None = None
    """The network namespace it runs in; None: the supervisor's own."""


class Member:
    """One process that is wanted: started, started again when it ends, ended when it is no longer wanted."""

    def __init__(self, command: Command, run_dir: Path, clock: Clock, restarts: bool) -> None:
        self.command = command
        self._run_dir = run_dir
        self._clock = clock
        self._restarts = restarts
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = True
        self.refused = False
        """Its last life ended because it found its own words wrong, such as a port in use."""
        self._started = asyncio.Event()
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {command.name}")

    @property
    def pid(self) -> int | None:
        """Of the living process; None between two lives."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def over(self) -> bool:
        """It has ended and will not be started again."""
        return self._keeping.done()

    async def started(self) -> None:
        await self._started.wait()

    def kill(self) -> None:
        """SIGKILL, as a crash would have it: the member is started again where the fleet restarts."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL; it stays ended. Idempotent."""
        self._wanted = False
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(STOP_WAIT_S):
                    await self._process.wait()
            except TimeoutError:
                log.warning("%s did not end within %s s and is killed", self.command.name, STOP_WAIT_S)
                self._process.kill()
                await self._process.wait()
        self._keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeping

    async def _keep(self) -> None:
        pause_s = BACKOFF_FIRST_S
        while True:
            began_s = self._clock.monotonic_s()
            self._process = await self._spawn()
            self._started.set()
            code = await self._process.wait()
            self.refused = code == BadValue.exit_code
            if not (self._wanted and self._restarts):
                return
            log.warning("%s ended with %d and is started again", self.command.name, code)
            if self._clock.monotonic_s() - began_s >= STEADY_S:
                pause_s = BACKOFF_FIRST_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        inside, inherited = _in_namespace(self.command.namespace_fd)
        with _open_log(self._run_dir, self.command.name) as output:
            return await asyncio.create_subprocess_exec(
                *inside,
                sys.executable,
                "-m",
                "worldline.runtime.fleet_child",
                str(os.getpid()),
                self.command.module,
                *self.command.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=inherited,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **self.command.environment},
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then ends its members in order
            )


class Supervisor:
    """The fleet inside an event loop. `Fleet` is the same for callers without one."""

    def __init__(self, plan: FleetPlan, run_dir: Path, clock: Clock) -> None:
        self._plan = plan
        self.run_dir = run_dir
        self._clock = clock
        self._members: dict[str, Member] = {}
        self._stopping = asyncio.Lock()
        self._capabilities = dict(plan.cpu_capabilities)
        self._lock: BinaryIO | None = None
        self.url = ""

    async def start(self) -> None:
        """Returns when every host answers the controller and the gateway serves. On an error nothing is left.

        Raises `MissingExtra` without torch, which every host imports.
        """
        if find_spec("torch") is None:
            raise MissingExtra("hosts play worlds in torch, which is not here: pip install 'worldline[torch]'")
        make_run_dir(self.run_dir)
        self._lock = _lock(self.run_dir)
        (self.run_dir / "log").mkdir(exist_ok=True)
        (self.run_dir / GATEWAY_ADDRESS).unlink(missing_ok=True)
        try:
            for host in self._plan.hosts:
                self._begin(self._host_command(host))
            self._begin(self._controller_command())
            self._begin(self._gateway_command(self._plan.port))
            async with asyncio.timeout(START_WAIT_S):
                await self.wait_alive(self._plan.hosts)
                self.url = await self._gateway_url()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                sentence = f"the fleet did not start within {START_WAIT_S:g} s{self._where_to_look}"
                raise TimedOut(sentence, **self._last_words()) from error
            raise
        port = int(self.url.rpartition(":")[2])
        self._members[GATEWAY].command = self._gateway_command(port)  # a restarted gateway keeps its address

    async def stop(self) -> None:
        """Gateway first, so that players see a closed door and not a broken world. Idempotent."""
        async with self._stopping:
            members, self._members = self._members, {}
            order = sorted(members.values(), key=lambda member: (member.command.name != GATEWAY, member.command.name))
            for member in order[:1]:
                await member.stop()
            await asyncio.gather(*(member.stop() for member in order[1:]))
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def start_host(self, host: str, cpu_capability: str | None = None) -> None:
        """Starts a host that is new or was stopped, and returns when the controller reaches it."""
        check_name(host, "the host")
        if _host_member(host) in self._members:
            raise BadValue(f"host {host} is in the fleet already", host=host)
        if cpu_capability is not None:
            self._capabilities[host] = cpu_capability
        self._begin(self._host_command(host))
        await self.wait_alive((host,))

    async def stop_host(self, host: str) -> None:
        """Ends a host for good: its sessions are lost."""
        member = self._member(host)
        del self._members[_host_member(host)]
        await member.stop()

    def kill(self, name: str) -> None:
        """SIGKILL to the controller, the gateway or a host, as a crash would have it."""
        self._member(name).kill()

    def pid(self, name: str) -> int | None:
        return self._member(name).pid

    async def wait_alive(self, hosts: tuple[str, ...]) -> None:
        """Returns when the controller reaches all of `hosts`. Raises `TimedOut`, or `Internal` if one will never
        start.
        """
        missing: set[str] = set(hosts)
        try:
            async with asyncio.timeout(START_WAIT_S):
                while missing := set(hosts) - {host.id for host in await self._hosts() if host.alive}:
                    self._check_living()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            sentence = f"host {', '.join(sorted(missing))} was not reached within {START_WAIT_S:g} s"
            raise TimedOut(sentence + self._where_to_look, **self._last_words()) from None

    def _begin(self, command: Command) -> None:
        self._members[command.name] = Member(command, self.run_dir, self._clock, self._plan.restarts)

    def _member(self, name: str) -> Member:
        member = self._members.get(name) or self._members.get(_host_member(name))
        if member is None:
            raise UnknownHost(f"the fleet has no member {name!r}", name=name)
        return member

    async def _hosts(self) -> list[Host]:
        try:
            peer = await connect(controller_socket(self.run_dir), Host, None, ControllerGone("the controller is gone"))
        except ControllerGone:
            return []
        try:
            return await peer.call(ListHosts(), list[Host], START_WAIT_S)
        except ControllerGone:
            return []
        finally:
            await peer.close()

    async def _gateway_url(self) -> str:
        path = self.run_dir / GATEWAY_ADDRESS
        while not path.exists():
            self._check_living()
            await asyncio.sleep(POLL_S)
        return path.read_text().strip()

    def _check_living(self) -> None:
        for member in self._members.values():
            name = member.command.name
            if member.refused:
                words = self._last_words()
                raise BadValue(_sentence_of(words.get(name.replace("-", "_"), "")) or f"{name} did not start", **words)
            if member.over:
                raise Internal(f"{name} ended while the fleet was starting{self._where_to_look}", **self._last_words())

    @property
    def _where_to_look(self) -> str:
        """For an error's sentence; a temporary run directory is gone by the time it is read."""
        return f"; its members' logs are in {self.run_dir / 'log'}" if self._plan.run_dir is not None else ""

    def _last_words(self) -> dict[str, str]:
        """The end of each member's log, for the error's facts."""
        words = {}
        for path in sorted((self.run_dir / "log").glob("*.log")):
            words[path.stem.replace("-", "_")] = path.read_text(errors="replace")[-2000:]
        return words

    def _host_command(self, host: str) -> Command:
        arguments = ["--dir", str(self.run_dir), "--name", host]
        if self._plan.faults:
            arguments.append("--faults")
        if self._plan.tls is not None:
            arguments += ["--tls", str(self._plan.tls)]
        if self._plan.memory_bytes is not None:
            arguments += ["--memory-bytes", str(self._plan.memory_bytes)]
        if self._plan.move_cores is not None:
            arguments += ["--move-cores", repr(self._plan.move_cores)]
        network = self._plan.networks.get(host)
        if network is not None:
            arguments += ["--data-listen", network.address]
            if self._plan.tls is None:
                arguments.append("--fabric-private")
        capability = self._capabilities.get(host)
        environment = {} if capability is None else {"ATEN_CPU_CAPABILITY": capability}
        namespace_fd = None if network is None else network.namespace_fd
        return Command(_host_member(host), "worldline.runtime.host", tuple(arguments), environment, namespace_fd)

    def _controller_command(self) -> Command:
        arguments = ["--dir", str(self.run_dir), "--hosts", ",".join(self._plan.hosts)]
        if self._plan.faults:
            arguments.append("--faults")
        if self._plan.port_bytes_per_s is not None:
            arguments += ["--port-bytes-per-s", repr(self._plan.port_bytes_per_s)]
        return Command(CONTROLLER, "worldline.runtime.controller", tuple(arguments))

    def _gateway_command(self, port: int) -> Command:
        arguments = ["--dir", str(self.run_dir), "--port", str(port), *self._plan.face.arguments()]
        for world in self._plan.worlds:
            arguments += ["--world", world]
        return Command(GATEWAY, "worldline.service.app", tuple(arguments))


class Fleet:
    """A running fleet for code without an event loop; a context manager. Use `start`."""

    def __init__(self, plan: FleetPlan) -> None:
        self._plan = plan
        self._temporary = plan.run_dir is None
        self.run_dir = Path(tempfile.mkdtemp(prefix="worldline-")) if plan.run_dir is None else plan.run_dir
        self._loop = asyncio.new_event_loop()
        # All members are started by this one thread: the kernel ends them with the thread that started them.
        self._thread = Thread(target=self._loop.run_forever, name="fleet", daemon=True)
        self._supervisor = Supervisor(plan, self.run_dir, SystemClock())

    @classmethod
    def start(cls, plan: FleetPlan) -> Self:
        """Starts all members and waits until they serve. On an error nothing is left running."""
        fleet = cls(plan)
        fleet._thread.start()
        try:
            fleet._do(fleet._supervisor.start())
        except BaseException:
            fleet.close()
            raise
        return fleet

    @property
    def url(self) -> str:
        """The gateway's address."""
        return self._supervisor.url

    def start_host(self, host: str, cpu_capability: str | None = None) -> None:
        """See `Supervisor.start_host`."""
        self._do(self._supervisor.start_host(host, cpu_capability))

    def stop_host(self, host: str) -> None:
        """See `Supervisor.stop_host`."""
        self._do(self._supervisor.stop_host(host))

    def kill(self, name: str) -> None:
        """See `Supervisor.kill`. A host comes back empty where the fleet restarts."""
        self._do(_now(self._supervisor.kill, name))

    def pid(self, name: str) -> int | None:
        """Of the controller, the gateway or a host; None between two lives."""
        return self._do(_now(self._supervisor.pid, name))

    def wait_alive(self, *hosts: str) -> None:
        """Returns when the controller reaches `hosts`, or all of the plan."""
        self._do(self._supervisor.wait_alive(hosts or self._plan.hosts))

    def close(self) -> None:
        """Ends every member. Idempotent."""
        if self._loop.is_closed():
            return
        try:
            self._do(self._supervisor.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            if self._temporary:
                shutil.rmtree(self.run_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


async def _now(work: Callable[[str], T], name: str) -> T:
    """`work` on the fleet's own thread."""
    return work(name)


def _host_member(host: str) -> str:
    return f"host-{host}"


def _in_namespace(fd: int | None) -> tuple[list[str], tuple[int, ...]]:
    """Words before a command that runs in the network namespace behind `fd`, and what it inherits."""
    if fd is None:
        return [], ()
    return [sys.executable, "-m", "worldline.runtime.network_child", str(os.getpid()), str(fd)], (fd,)


def _lock(run_dir: Path) -> BinaryIO:
    """Held until it is closed, or this process ends. Raises `BadValue` where another fleet has it."""
    file = (run_dir / LOCK).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BadValue(f"another fleet runs in {run_dir}; end it, or name another folder") from None
    return file


def _sentence_of(words: str) -> str:
    """What a member logged last when it refused to start."""
    return words.rstrip().rpartition("\n")[2].rpartition(f"{BadValue.code}: ")[2]


def _open_log(run_dir: Path, name: str) -> BinaryIO:
    return (run_dir / "log" / f"{name}.log").open("ab", buffering=0)
