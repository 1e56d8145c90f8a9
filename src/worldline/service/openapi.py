"""`/openapi.json`, made from the very types that the handlers read and write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from worldline import __version__
from worldline.errors import BY_CODE
from worldline.runtime.fleet_messages import Operation as FleetOperation
from worldline.runtime.messages import Host, Move, Prewarmed, Session
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Receipt
from worldline.service.answers import ErrorAnswer
from worldline.service.bodies import (
    MoveBody,
    OpenBody,
    OperationBody,
    ParkBody,
    PrewarmBody,
    ResumeBody,
    SabotageBody,
    StepBody,
)
from worldline.service.fleet_paths import OperationList
from worldline.service.verbs import HostList, SessionList, SignerList, StepAnswer, Ticket, Worlds

REF = "#/components/schemas/{name}"
MEANING = {
    HTTPStatus.BAD_REQUEST: "The request's own words are wrong.",
    HTTPStatus.UNAUTHORIZED: "Host or Origin is not this gateway's, or its token was not shown.",
    HTTPStatus.NOT_FOUND: "Something named does not exist.",
    HTTPStatus.CONFLICT: "Not in this condition, or the guarantee could not be kept; nothing was changed.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is over 1 MiB.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "A fault of ours.",
    HTTPStatus.NOT_IMPLEMENTED: "An extra of the package is not installed.",
    HTTPStatus.SERVICE_UNAVAILABLE: "A process did not answer; this says nothing about what was done.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    body: type | None
    answer: type | None
    status: int = HTTPStatus.OK
    keyed: bool = False
    """Takes an idempotency key."""


SESSION = "/v1/sessions/{session}"
HOST = "/v1/hosts/{host}"
OPERATION = "/v1/operations/{operation}"
OPERATIONS = (
    Operation("get", "/v1/worlds", "listWorlds", "The worlds that can be opened.", None, Worlds),
    Operation("get", "/v1/hosts", "listHosts", "The hosts, their memory and their sessions.", None, HostList),
    Operation("get", "/v1/sessions", "listSessions", "All sessions, oldest first.", None, SessionList),
    Operation("post", "/v1/sessions", "open", "Opens a session at block 0.", OpenBody, Session, 201, keyed=True),
    Operation("get", SESSION, "describe", "One session.", None, Session),
    Operation("delete", SESSION, "close", "Ends a session, and its twin with it.", None, Session, keyed=True),
    Operation("post", f"{SESSION}/step", "step", "One block an action.", StepBody, StepAnswer, keyed=True),
    Operation("post", f"{SESSION}/move", "move", "To another host, bit for bit.", MoveBody, Move, keyed=True),
    Operation("post", f"{SESSION}/park", "park", "To a verified image.", ParkBody, Session, keyed=True),
    Operation("post", f"{SESSION}/resume", "resume", "Back from its image.", ResumeBody, Session, keyed=True),
    Operation("post", f"{SESSION}/sabotage", "sabotage", "Flips a bit, for proofs.", SabotageBody, None, 204),
    Operation("get", "/v1/moves/{move}", "getMove", "A move from the journal.", None, Move),
    Operation("get", "/v1/receipts/{receipt}", "getReceipt", "A receipt.", None, Receipt),
    Operation("post", f"{HOST}/cordon", "cordon", "It takes no more sessions.", None, Host),
    Operation("post", f"{HOST}/uncordon", "uncordon", "It takes sessions again.", None, Host),
    Operation("post", f"{HOST}/prewarm", "prewarm", "Engine and arenas ready.", PrewarmBody, Prewarmed),
    Operation("get", "/v1/operations", "listOperations", "The last ones, oldest first.", None, OperationList),
    Operation("post", "/v1/operations", "operate", "Many sessions, one aim.", OperationBody, FleetOperation, 201),
    Operation("get", OPERATION, "getOperation", "One operation.", None, FleetOperation),
    Operation("delete", OPERATION, "cancelOperation", "Nothing more is begun.", None, FleetOperation),
    Operation("get", "/v1/signers", "listSigners", "Keys under which hosts sign receipts.", None, SignerList),
    Operation("post", "/v1/qualifications", "qualify", "Records a pair of plans.", Qualification, None, 204),
    Operation("post", "/v1/tickets", "giveTicket", "Opens one WebSocket.", None, Ticket, 201),
    Operation("get", "/livez", "live", "This process serves.", None, dict[str, bool]),
    Operation("get", "/readyz", "ready", "Controller and a host can be reached.", None, dict[str, bool]),
)


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    types: set[Any] = {ErrorAnswer}
    types |= {kind for op in OPERATIONS for kind in (op.body, op.answer) if kind is not None}
    ordered = sorted(types, key=repr)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=REF)
    schema_of = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Worldline",
            "version": __version__,
            "description": "Error codes: " + ", ".join(sorted(BY_CODE)) + ". WebSockets are described in docs/http.md.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _operation(operation: Operation, schema_of: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": _responses(operation, schema_of),
    }
    if operation.body is not None:
        found["requestBody"] = {"content": _json(schema_of[operation.body]), "required": operation.body is not ParkBody}
    return found


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    if not operation.keyed:
        return named
    key = {"type": "string", "minLength": 1, "maxLength": 200}
    return [*named, {"name": "Idempotency-Key", "in": "header", "required": False, "schema": key}]


def _responses(operation: Operation, schema_of: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done."}
    if operation.answer is not None:
        done["content"] = _json(schema_of[operation.answer])
    errors = {
        str(int(status)): {"description": text, "content": _json(schema_of[ErrorAnswer])}
        for status, text in MEANING.items()
    }
    return {str(int(operation.status)): done, **errors}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
