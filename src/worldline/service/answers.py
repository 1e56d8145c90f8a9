"""What clients get: JSON of the same values as in the library, and every error in one envelope."""

from __future__ import annotations

import logging
from http import HTTPStatus

import msgspec
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from worldline.errors import Internal, WorldlineError
from worldline.runtime.error_record import ErrorRecord

JSON = "application/json"

log = logging.getLogger(__name__)


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every answer that is an error."""

    error: ErrorRecord


def json_answer(value: object, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def error_answer(error: WorldlineError) -> Response:
    return json_answer(ErrorAnswer(ErrorRecord.of(error)), error.http_status)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: an unknown path, a method that a path does not have."""
    assert isinstance(error, HTTPException)
    code = {HTTPStatus.NOT_FOUND: "UNKNOWN_PATH", HTTPStatus.METHOD_NOT_ALLOWED: "METHOD"}.get(
        HTTPStatus(error.status_code), "BAD_VALUE"
    )
    sentence = f"{request.method} {request.url.path[:200]}: {HTTPStatus(error.status_code).phrase.lower()}"
    answer = json_answer(ErrorAnswer(ErrorRecord(code, sentence, {})), error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def on_bug(_request: Request, error: Exception) -> Response:
    """A fault of ours: named, told in the log, and without its inside for the client."""
    log.error("a request failed for a reason of ours", exc_info=error)
    return error_answer(Internal(f"the gateway failed: {type(error).__name__}"))
