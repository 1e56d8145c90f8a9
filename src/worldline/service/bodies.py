"""What clients send: JSON bodies, checked field by field. An unknown field is an error, so that a misspelt one is not
ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from fastapi import Request

from worldline.control.placement import Kind
from worldline.errors import BadValue
from worldline.schema.contract import Contract
from worldline.schema.receipt import Mode

BODY_BYTES_MAX = 1024 * 1024
ACTIONS_MAX = 64
"""Of one step request."""
SLOTS_MAX = 64
"""Prewarmed on one host for one world."""
WARM_SLOTS_MAX = 1_000_000
"""For which a consolidation keeps room."""

Frames: TypeAlias = Literal["none", "jpeg", "raw"]
Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What passes between our processes; JSON's own have no end."""
Option: TypeAlias = str | Integer | float | bool
T = TypeVar("T")


class TooLarge(BadValue):
    """A body over the limit."""

    http_status = 413


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all."""


class OpenBody(Body, frozen=True):
    """`POST /v1/sessions`."""

    world: str
    seed: int = 0
    options: dict[str, Option] = {}
    contract: Contract = Contract()
    host: str | None = None
    twin: bool = False
    session: str | None = None


class StepBody(Body, frozen=True):
    """`POST /v1/sessions/{id}/step`."""

    actions: list[int | str]
    first: int | None = None
    frames: Frames = "none"


class MoveBody(Body, frozen=True):
    """`POST /v1/sessions/{id}/move`."""

    host: str
    mode: Mode = Mode.PRECOPY
    transport: str = "tcp"
    fault: str | None = None
    codec: str = "auto"


class ParkBody(Body, frozen=True):
    """`POST /v1/sessions/{id}/park`."""

    fault: str | None = None


class ResumeBody(Body, frozen=True):
    """`POST /v1/sessions/{id}/resume`."""

    host: str | None = None
    fault: str | None = None


class SabotageBody(Body, frozen=True):
    """`POST /v1/sessions/{id}/sabotage`."""

    bit: int


class OperationBody(Body, frozen=True):
    """`POST /v1/operations`. The fields are those of `runtime.fleet_messages.OperationRequest`."""

    kind: Kind
    host: str | None = None
    dry_run: bool = False
    mode: Mode = Mode.PRECOPY
    transport: str = "tcp"
    park: bool = False
    idle_s: float = 60.0
    hosts_min: int = 1
    warm_slots: Annotated[int, msgspec.Meta(ge=0, le=WARM_SLOTS_MAX)] | None = None
    at_once: int = 1
    every_s: float | None = None


class PrewarmBody(Body, frozen=True):
    """`POST /v1/hosts/{host}/prewarm`."""

    world: str
    options: dict[str, Option] = {}
    slots: Annotated[int, msgspec.Meta(ge=0, le=SLOTS_MAX)] = 1


async def read_body(request: Request, kind: type[T]) -> T:
    """The request's body as `kind`; an empty one counts as `{}`. Raises `BadValue`, and `TooLarge` before it has all
    of it.
    """
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise TooLarge(f"a body may have {BODY_BYTES_MAX} bytes", limit=BODY_BYTES_MAX)
    return parse_body(bytes(data), kind)


def parse_body(data: bytes, kind: type[T]) -> T:
    """See `read_body`. Raises `BadValue`, also for what JSON can say and no other process can be told."""
    try:
        body = msgspec.json.decode(data or b"{}", type=kind)
        msgspec.msgpack.encode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError) as error:
        raise BadValue(f"the body is not what is expected here: {error}") from error
    return body
