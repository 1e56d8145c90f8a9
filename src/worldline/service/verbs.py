"""The paths of `/v1` that are asked and answered once. What each means is in docs/http.md and in the OpenAPI
document.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from worldline.errors import BadValue, HostGone, KeyReused, UnknownWorld
from worldline.runtime import messages as wire
from worldline.runtime.frames import split_frames
from worldline.runtime.gateway import READ_WAIT_S, Gateway
from worldline.runtime.gateway_told import Shown
from worldline.runtime.messages import Host, Move, Session, Signer
from worldline.runtime.refusal import raise_refusal
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Receipt
from worldline.service import bodies
from worldline.service.answers import json_answer
from worldline.service.bodies import ACTIONS_MAX, Frames, read_body

VERB_WAIT_S = 300.0
"""For a verb that moves state or builds a world; contracts end a move long before."""
STEP_WAIT_S = 120.0
STEP_KEYS_MAX = 1024
SEED_MAX = 2**63 - 1

T = TypeVar("T", Session, Move)


class StepBlock(msgspec.Struct, frozen=True):
    """One generated block."""

    block: int
    number: int
    frame: int
    epoch: int
    host: str
    digest: str
    root: str | None
    step_ms: float
    height: int
    width: int
    encoding: str
    frames: tuple[bytes, ...]
    """A JPEG or raw RGB a frame, or UTF-8 text as one piece; empty unless asked for. Base64 in JSON."""

    def facts(self) -> dict[str, object]:
        """All but the frames."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "frames"}


class StepAnswer(msgspec.Struct, frozen=True):
    blocks: list[StepBlock]


class Worlds(msgspec.Struct, frozen=True):
    worlds: list[str]


class HostList(msgspec.Struct, frozen=True):
    hosts: list[Host]


class SignerList(msgspec.Struct, frozen=True):
    signers: list[Signer]


class Ticket(msgspec.Struct, frozen=True):
    """`POST /v1/tickets`: opens one WebSocket, as the query's `ticket`."""

    ticket: str
    expires_in_s: float


class SessionList(msgspec.Struct, frozen=True):
    sessions: list[Session]


@dataclass(frozen=True, slots=True)
class StepKey:
    """What an idempotency key of a step was used for."""

    session: str
    request: bytes
    first: int


class VerbPaths:
    """Handlers, bound to one gateway."""

    def __init__(self, gateway: Gateway, worlds: Sequence[str]) -> None:
        self._gateway = gateway
        self._worlds = list(worlds)
        self._step_keys: OrderedDict[str, StepKey] = OrderedDict()

    def router(self) -> APIRouter:
        router = APIRouter()
        for method, path, handler in (
            ("GET", "/v1/worlds", self.worlds),
            ("GET", "/v1/hosts", self.hosts),
            ("GET", "/v1/sessions", self.sessions),
            ("POST", "/v1/sessions", self.open),
            ("GET", "/v1/sessions/{session}", self.describe),
            ("DELETE", "/v1/sessions/{session}", self.close),
            ("POST", "/v1/sessions/{session}/step", self.step),
            ("POST", "/v1/sessions/{session}/move", self.move),
            ("POST", "/v1/sessions/{session}/park", self.park),
            ("POST", "/v1/sessions/{session}/resume", self.resume),
            ("POST", "/v1/sessions/{session}/sabotage", self.sabotage),
            ("GET", "/v1/moves/{move}", self.get_move),
            ("GET", "/v1/receipts/{receipt}", self.receipt),
            ("GET", "/v1/signers", self.signers),
            ("POST", "/v1/qualifications", self.qualify),
            ("GET", "/livez", self.live),
            ("GET", "/readyz", self.ready),
        ):
            router.add_api_route(path, handler, methods=[method], response_model=None)
        return router

    # ---- reading

    async def worlds(self) -> Response:
        return json_answer(Worlds(self._worlds))

    async def hosts(self) -> Response:
        return json_answer(HostList(await self._gateway.ask(wire.ListHosts(), list[Host], READ_WAIT_S)))

    async def sessions(self) -> Response:
        return json_answer(SessionList(await self._gateway.ask(wire.ListSessions(), list[Session], READ_WAIT_S)))

    async def describe(self, session: str) -> Response:
        return json_answer(await self._gateway.ask(wire.GetSession(session), Session, READ_WAIT_S))

    async def get_move(self, move: str) -> Response:
        return json_answer(await self._gateway.ask(wire.GetMove(move), Move, READ_WAIT_S))

    async def receipt(self, receipt: str) -> Response:
        return json_answer(await self._gateway.ask(wire.GetReceipt(receipt), Receipt, READ_WAIT_S))

    async def signers(self) -> Response:
        return json_answer(SignerList(await self._gateway.ask(wire.ListSigners(), list[Signer], READ_WAIT_S)))

    async def live(self) -> Response:
        return json_answer({"live": True})

    async def ready(self) -> Response:
        hosts = await self._gateway.ask(wire.ListHosts(), list[Host], READ_WAIT_S)
        if not any(host.alive for host in hosts):
            raise HostGone("no host of the fleet can be reached")
        return json_answer({"ready": True})

    # ---- verbs

    async def open(self, request: Request) -> Response:
        body = await read_body(request, bodies.OpenBody)
        if body.world not in self._worlds:
            known = ", ".join(self._worlds)
            hint = "; one of your own is named when the fleet is started" if ":" in body.world else ""
            raise UnknownWorld(f"there is no world {body.world[:80]!r}; known are {known}{hint}", world=body.world[:80])
        if not 0 <= body.seed <= SEED_MAX:
            raise BadValue(f"a seed is 0 to {SEED_MAX}, not {body.seed}")
        verb = wire.OpenRequest(
            world=body.world,
            seed=body.seed,
            options=body.options,
            contract=body.contract,
            host=body.host,
            twin=body.twin,
            session=body.session,
        )
        return json_answer(await self._once(request, verb, Session), HTTPStatus.CREATED)

    async def move(self, request: Request, session: str) -> Response:
        body = await read_body(request, bodies.MoveBody)
        verb = wire.MoveRequest(session, body.host, body.mode, body.transport, body.fault, body.codec)
        move = await self._once(request, verb, Move)
        raise_refusal(move)
        return json_answer(move)

    async def park(self, request: Request, session: str) -> Response:
        body = await read_body(request, bodies.ParkBody)
        return json_answer(await self._once(request, wire.ParkRequest(session, body.fault), Session))

    async def resume(self, request: Request, session: str) -> Response:
        body = await read_body(request, bodies.ResumeBody)
        return json_answer(await self._once(request, wire.ResumeRequest(session, body.host, body.fault), Session))

    async def close(self, request: Request, session: str) -> Response:
        return json_answer(await self._once(request, wire.CloseRequest(session), Session))

    async def sabotage(self, request: Request, session: str) -> Response:
        body = await read_body(request, bodies.SabotageBody)
        if not 0 <= body.bit < 2**63:
            raise BadValue(f"a bit's number is 0 to {2**63 - 1}, not {body.bit}")
        await self._gateway.ask(wire.SabotageRequest(session, body.bit), None, READ_WAIT_S)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def qualify(self, request: Request) -> Response:
        qualification = await read_body(request, Qualification)
        await self._gateway.ask(wire.Qualify(qualification), None, READ_WAIT_S)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _once(self, request: Request, verb: wire.VerbRequest, answer: type[T]) -> T:
        key = request.headers.get("idempotency-key")
        message = verb if key is None else wire.Keyed(key, verb)
        return await self._gateway.ask(message, answer, VERB_WAIT_S)

    # ---- step

    async def step(self, request: Request, session: str) -> Response:
        body = await read_body(request, bodies.StepBody)
        if not 1 <= len(body.actions) <= ACTIONS_MAX:
            raise BadValue(f"a step takes 1 to {ACTIONS_MAX} actions, not {len(body.actions)}", limit=ACTIONS_MAX)
        if body.first is not None and not 1 <= body.first < 2**63:
            raise BadValue(f"actions are numbered from 1, so none is {body.first}")
        play = await self._gateway.play(session)
        ready = await play.ready()
        actions = [action_index(action, ready.session) for action in body.actions]
        first = self._first_of(request, session, body, ready.expected)
        shown = await play.step(first, actions, body.frames, STEP_WAIT_S)
        return json_answer(StepAnswer([step_block(one, body.frames) for one in shown]))

    def _first_of(self, request: Request, session: str, body: bodies.StepBody, expected: int) -> int | None:
        """The number of the first action; that of the first time, where the key was used before. Raises `KeyReused`."""
        key = request.headers.get("idempotency-key")
        if key is None:
            return body.first
        asked = StepKey(session, msgspec.json.encode(body), expected if body.first is None else body.first)
        used = self._step_keys.setdefault(key, asked)
        if (used.session, used.request) != (asked.session, asked.request):
            raise KeyReused("this idempotency key was used with another request", key=key[:200])
        while len(self._step_keys) > STEP_KEYS_MAX:
            self._step_keys.popitem(last=False)
        return used.first


def action_index(action: int | str, session: Session) -> int:
    """The number of an action given by name or number. Raises `BadValue`."""
    known = session.actions
    if isinstance(action, str):
        if action not in known:
            names = ", ".join(known) or "numbers only"
            raise BadValue(f"world {session.world} has no action {action[:40]!r}; it knows {names}")
        return known.index(action)
    least, below = (-1, 2**31) if session.readout.kind == "text" else (0, len(known))
    if not least <= action < below:
        raise BadValue(f"world {session.world} takes actions {least} to {below - 1}, not {action}")
    return action


def step_block(shown: Shown, frames: Frames) -> StepBlock:
    """A block with the frames asked for."""
    block = shown.block
    encoding, pieces = _pieces(block, frames)
    return StepBlock(
        block=block.block,
        number=block.number,
        frame=block.frame,
        epoch=block.epoch,
        host=shown.host,
        digest=block.digest,
        root=block.root,
        step_ms=block.step_ms,
        height=block.height,
        width=block.width,
        encoding=encoding,
        frames=tuple(pieces),
    )


def _pieces(block: wire.Block, frames: Frames) -> tuple[str, list[bytes]]:
    if frames == "jpeg" and block.payload:
        return block.encoding, list(split_frames(block.payload)) if block.encoding == "jpeg" else [block.payload]
    if frames == "raw" and block.raw is not None:
        if block.encoding == "text" or not block.frames:
            return "raw", [block.raw]
        size = len(block.raw) // block.frames
        return "raw", [block.raw[at : at + size] for at in range(0, len(block.raw), size)]
    return "none", []
