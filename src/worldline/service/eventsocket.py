"""`WS /v1/events`: a snapshot, then every change, as JSON texts."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from worldline.runtime.gateway import Change, Gateway
from worldline.runtime.messages import Snapshot

WAITING_MAX = 2048
CLOSE_TOO_SLOW = 1013


class EventSocket:
    """One reader; a `Listener`."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def tell(self, told: Snapshot | Change) -> None:
        if self._waiting.qsize() < WAITING_MAX:
            self._waiting.put_nowait(msgspec.json.encode(told))
        elif self._waiting.qsize() == WAITING_MAX:
            self._waiting.put_nowait(None)

    async def serve(self) -> None:
        """Until the reader leaves, or is too slow."""
        writing = asyncio.create_task(self._write())
        try:
            await asyncio.wait({writing, reading := asyncio.create_task(self._read())}, return_when="FIRST_COMPLETED")
        finally:
            writing.cancel()
            reading.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)

    async def _write(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                data = await self._waiting.get()
                if data is None:
                    break
                await self._socket.send_text(data.decode())
            await self._socket.close(CLOSE_TOO_SLOW)

    async def _read(self) -> None:
        """What the reader sends is ignored; that it leaves is not."""
        while (await self._socket.receive())["type"] != "websocket.disconnect":
            pass


async def serve_events(gateway: Gateway, socket: WebSocket) -> None:
    """One connection from its start to its end."""
    await socket.accept()
    listener = EventSocket(socket)
    gateway.listen(listener)
    try:
        await listener.serve()
    finally:
        gateway.unlisten(listener)
