"""A controller over real hosts of this process, and what a gateway would ask it."""

import asyncio
from random import Random

from worldline.clock import SystemClock
from worldline.errors import ControllerGone
from worldline.runtime import messages as wire
from worldline.runtime.controller import Controller
from worldline.runtime.fleet_messages import GetOperation, Operation, OperationChanged, OperationRequest
from worldline.runtime.host_service import Host, HostConfig
from worldline.runtime.messages import Move, Session, ToHost
from worldline.runtime.rpc import connect, serve
from worldline.runtime.run_dir import controller_socket, host_socket, make_run_dir
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode
from worldline.transport.registry import open_transport

TINY = "worldline.testing.tiny:TinyWorld"
MEMORY_BYTES = 64 << 20
WAIT_S = 60
CONTRACT = Contract(pause_bound_s=20.0, completion_deadline_s=60.0)
Told = wire.SessionChanged | wire.MoveChanged | wire.HostChanged | OperationChanged


class Reborn:
    """A host that ends as it is told to activate something: another one answers in its name, and knows nothing."""

    def __init__(self, make_host):
        self._make_host = make_host
        self._host = make_host()

    @property
    def sessions(self):
        return self._host.sessions

    async def handle(self, peer, message):
        if isinstance(message, wire.Activate):
            await self._host.close()
            self._host = self._make_host()
        return await self._host.handle(peer, message)

    async def closed(self, peer):
        await self._host.closed(peer)

    async def close(self):
        await self._host.close()


class Hanging:
    """A host that handles nothing while it hangs, and all of it afterwards, in order. `handled`: what it has done."""

    def __init__(self, host):
        self._host = host
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self.handled = []
        self.heard = []

    def hang(self):
        self._goes_on.clear()

    def go_on(self):
        self._goes_on.set()

    async def handle(self, peer, message):
        self.heard.append(type(message))
        await self._goes_on.wait()
        answer = await self._host.handle(peer, message)
        self.handled.append(type(message))
        return answer


class Hall:
    """A controller, its record and hosts in one process, and one client of the controller."""

    def __init__(self, run_dir, store):
        self.run_dir = make_run_dir(run_dir)
        self.store = store
        self.hosts = {}
        self.told = []
        self.client = None
        self.controller = None

    async def start_host(self, name, memory_bytes=MEMORY_BYTES, reborn=False):
        image_dir = make_run_dir(self.run_dir / "images")
        config = HostConfig(name, memory_bytes, image_dir, allow_faults=True)

        def made():
            return Host(config, {kind: open_transport(kind) for kind in ("shm", "tcp")}, SystemClock())

        host = Reborn(made) if reborn else made()
        server = await serve(host_socket(self.run_dir, name), ToHost, host.handle, host.closed)
        self.hosts[name] = (host, server)

    async def start_hanging(self, name):
        """A host that can be made to hang: see `Hanging`."""
        await self.start_host(name)
        host, server = self.hosts[name]
        await server.close()
        hanging = Hanging(host)
        server = await serve(host_socket(self.run_dir, name), ToHost, hanging.handle, host.closed)
        self.hosts[name] = (host, server)
        return hanging

    async def stop_host(self, name):
        host, server = self.hosts.pop(name)
        await server.close()
        await host.close()

    async def start_controller(self, faults=True, port_bytes_per_s=None):
        self.controller = Controller(self.run_dir, self.store, SystemClock(), Random(5), faults, port_bytes_per_s)
        await self.controller.start(sorted(self.hosts))
        self.client = await connect(controller_socket(self.run_dir), Told, self._hear, ControllerGone("gone"))
        await self.until(lambda hosts: {h.id for h in hosts if h.alive} >= set(self.hosts))

    async def stop_controller(self):
        await self.client.close()
        await self.controller.close()

    async def until(self, holds):
        async with asyncio.timeout(WAIT_S):
            while not holds(await self.ask(wire.ListHosts(), list[wire.Host])):  # noqa: ASYNC110 - as a person would look
                await asyncio.sleep(0.01)

    async def soon(self, holds):
        """Of what tells nobody when it changes."""
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)

    async def until_status(self, session, status):
        async with asyncio.timeout(WAIT_S):
            while (row := await self.describe(session)).status != status:  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.01)
        return row

    async def _hear(self, _peer, told):
        self.told.append(told)

    async def close(self):
        await self.stop_controller()
        for name in tuple(self.hosts):
            await self.stop_host(name)

    # ---- what a gateway asks

    async def ask(self, message, answer=None):
        return await self.client.call(message, answer, WAIT_S)

    async def open(self, host=None, twin=False, contract=CONTRACT, session=None, **options):
        request = wire.OpenRequest(TINY, 7, options, contract, host, twin, session)
        return await self.ask(request, Session)

    async def move(self, session, host, transport="tcp", mode=Mode.FREEZE, fault=None):
        return await self.ask(wire.MoveRequest(session, host, mode, transport, fault), Move)

    async def describe(self, session):
        return await self.ask(wire.GetSession(session), Session)

    def epochs_told(self, session):
        """What a subscriber was told of the session's owners since the controller began."""
        told = [told.session for told in self.told if isinstance(told, wire.SessionChanged)]
        return {row.epoch for row in told if row.id == session}

    def holders(self, session):
        return [name for name, (host, _) in sorted(self.hosts.items()) if session in host.sessions]

    async def operate(self, kind, host=None, **words):
        return await self.ask(OperationRequest(kind, host, **words), Operation)

    async def ended(self, operation):
        """The operation, once it has."""
        async with asyncio.timeout(WAIT_S):
            while (found := await self.ask(GetOperation(operation), Operation)).outcome is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found
