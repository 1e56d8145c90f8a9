"""`WS /v1/sessions/{id}/play`: blocks out, actions in. The messages are in docs/http.md.

A client that sends rubbish is told why and shown the door; the session and everybody else are not disturbed. A client
that reads too slowly gets fewer pictures, then none: memory for it is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TypeAlias, assert_never

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from worldline.errors import BadValue, Fact, Malformed, SessionClosed, WorldlineError
from worldline.runtime.gateway import Gateway
from worldline.runtime.gateway_play import Play
from worldline.runtime.gateway_told import Drive, Gap, Missed, Ready, Shown, Told, Trouble, TwinVerdict
from worldline.runtime.messages import Session
from worldline.service.octets import LEFT_OUT, SENT_AGAIN, AckSent, ActionSent, read_sent, write_block
from worldline.service.verbs import action_index

WAITING_MAX = 4096
"""Messages that may wait for one client."""
PICTURES_WAITING = 8
"""Newest blocks that keep their pictures while they wait for a slow socket."""
PICTURES_WAITING_FOR_WINDOW = 2
"""The same for a client that says with a window that it draws as fast as it can."""
WINDOW_MAX = 64

CLOSE_NORMAL = 1000
CLOSE_NOT_BINARY = 1003
CLOSE_MALFORMED = 1007
CLOSE_TOO_SLOW = 1013
CLOSE_OF_STATUS = 4000

Waiting: TypeAlias = Ready | Told
log = logging.getLogger(__name__)


class PlaySocket:
    """One client; a `Watcher`."""

    pictures = True

    def __init__(self, socket: WebSocket, window: int | None) -> None:
        self._socket = socket
        self._window = window
        self._waiting: deque[tuple[Waiting, int]] = deque()
        self._something = asyncio.Event()
        self._sent_block = 0
        self._unacked: deque[int] = deque()
        self._ending: int | None = None

    def tell(self, told: Told) -> None:
        self._put(told, 0)

    def _put(self, told: Waiting, flags: int) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._end(CLOSE_TOO_SLOW)
            return
        self._waiting.append((told, flags))
        if isinstance(told, Trouble) and isinstance(told.error, SessionClosed):
            self._end(CLOSE_NORMAL)
        self._something.set()

    def _end(self, code: int) -> None:
        """Closes with `code` once what waits is sent; at once if the client does not keep up."""
        self._ending = code
        if code == CLOSE_TOO_SLOW:
            self._waiting.clear()
        self._something.set()

    async def play(self, play: Play, ready: Ready, after: int | None) -> None:
        """Until either side ends it."""
        self._put(ready, 0)
        if after is not None:
            self._send_again(play, ready, after)
        play.watch(self)
        writing = asyncio.create_task(self._write())
        reading = asyncio.create_task(self._read(play))
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and self._ending is not None:
                await writing  # what waits, and then the close
        finally:
            play.unwatch(self)
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)

    def _send_again(self, play: Play, ready: Ready, after: int) -> None:
        kept = play.kept_after(after)
        first = kept[0].block.block if kept else ready.block + 1
        if after + 1 < first:
            self._put(Missed(after + 1, first - 1), 0)
        for shown in kept:
            self._put(shown, SENT_AGAIN)

    # ---- out

    async def _write(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client is gone: `_read` ends too
            while True:
                while self._waiting and self._may_send():
                    await self._send(*self._waiting.popleft())
                if self._ending is not None and not self._waiting:
                    return await self._socket.close(self._ending)
                self._something.clear()
                if not (self._waiting and self._may_send()):
                    await self._something.wait()

    def _may_send(self) -> bool:
        """Whether the client's window has room for what is next."""
        told = self._waiting[0][0]
        return not (isinstance(told, Shown) and self._window is not None and len(self._unacked) >= self._window)

    async def _send(self, told: Waiting, flags: int) -> None:
        if not isinstance(told, Shown):
            return await self._socket.send_text(as_text(told))
        newer = sum(isinstance(waiting, Shown) for waiting, _ in self._waiting)
        if newer >= (PICTURES_WAITING if self._window is None else PICTURES_WAITING_FOR_WINDOW):
            flags |= LEFT_OUT
        if self._window is not None and not flags & LEFT_OUT:
            self._unacked.append(told.block.block)
        return await self._socket.send_bytes(write_block(told, flags))

    # ---- in

    async def _read(self, play: Play) -> None:
        while self._ending is None:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes")
            if data is None:
                self._refuse(Malformed("messages to the gateway are binary"), CLOSE_NOT_BINARY)
                return
            try:
                sent = read_sent(data)
            except Malformed as error:
                self._refuse(error, CLOSE_MALFORMED)
                return
            match sent:
                case ActionSent():
                    await self._act(play, sent)
                case AckSent(block):
                    while self._unacked and self._unacked[0] <= block:
                        self._unacked.popleft()
                    self._something.set()
                case _:
                    assert_never(sent)

    async def _act(self, play: Play, sent: ActionSent) -> None:
        try:
            if not 1 <= sent.number < 2**63:
                raise BadValue(f"actions are numbered from 1, so none is {sent.number}")
            action_index(sent.action, play.session)
            await play.drive(self, sent.number, sent.action)
        except WorldlineError as error:
            self._put(Trouble(error, sent.number), 0)

    def _refuse(self, error: WorldlineError, code: int) -> None:
        self._waiting.clear()
        self._put(Trouble(error), 0)
        self._end(code)


async def serve_play(gateway: Gateway, socket: WebSocket, session: str) -> None:
    """One connection from its start to its end."""
    await socket.accept()
    try:
        after = _number(socket, "after", 0, 2**63 - 1)
        window = _number(socket, "window", 1, WINDOW_MAX)
        play = await gateway.play(session)
        ready = await play.ready()
    except WorldlineError as error:
        await socket.send_text(as_text(Trouble(error)))
        await socket.close(CLOSE_OF_STATUS + error.http_status, error.code)
        return
    await PlaySocket(socket, window).play(play, ready, after)
    if socket.client_state is WebSocketState.CONNECTED and socket.application_state is WebSocketState.CONNECTED:
        with contextlib.suppress(RuntimeError):
            await socket.close()


def _number(socket: WebSocket, name: str, least: int, most: int) -> int | None:
    text = socket.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise BadValue(f"{name} is a number from {least} to {most}, not {text[:20]!r}")
    return int(text[:20])


def as_text(told: Waiting) -> str:
    """A JSON message; its fields are in docs/http.md."""
    match told:
        case Ready(block, number, expected, session):
            fields: dict[str, object] = {"kind": "ready", "block": block, "number": number, "expected": expected}
            fields |= {"epoch": session.epoch, "host": session.host, "session": session}
        case Session():
            fields = {"kind": "session", "session": told}
        case Gap():
            fields = {"kind": "gap", **_fields(told)}
        case TwinVerdict():
            fields = {"kind": "twin", **_fields(told)}
        case Missed():
            fields = {"kind": "missed", **_fields(told)}
        case Drive():
            fields = {"kind": "drive", **_fields(told)}
        case Trouble(error, number):
            facts: dict[str, Fact] = dict(error.facts)
            facts |= {} if number is None else {"number": number}
            fields = {"kind": "error", "code": error.code, "sentence": error.sentence, "facts": facts}
        case Shown():
            raise AssertionError("a block is no text")
        case _:
            assert_never(told)
    return msgspec.json.encode(fields).decode()


def _fields(value: Gap | TwinVerdict | Missed | Drive) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(value)
    return fields
