"""The gateway's process: HTTP, WebSockets and the page.

    python -m worldline.service.app --dir RUN_DIR --port 8700

It listens on the loopback address, or elsewhere with a token and TLS (`runtime.face`). Sessions play on while it is
away, and while the controller is.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket

from worldline.clock import SystemClock
from worldline.errors import BadValue, WorldlineError
from worldline.runtime.face import Face
from worldline.runtime.gateway import Gateway
from worldline.runtime.run_dir import GATEWAY_ADDRESS
from worldline.service.answers import error_answer, json_answer, on_bug, on_http_exception
from worldline.service.eventsocket import serve_events
from worldline.service.fleet_paths import FleetPaths
from worldline.service.guard import Access, Guard
from worldline.service.metrics import Metrics
from worldline.service.openapi import document
from worldline.service.playsocket import serve_play
from worldline.service.tokens import TICKET_S, Tickets, Token
from worldline.service.verbs import Ticket, VerbPaths
from worldline.worlds.registry import known_worlds

PAGE = Path(__file__).with_name("page")
WS_BYTES_MAX = 1024
"""Of one message from a client: an action has 13."""
STOP_WAIT_S = 2
PAGE_POLICY = "default-src 'self'; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class AppConfig:
    """What the gateway is told at its start."""

    run_dir: Path
    worlds: tuple[str, ...] = ()
    """Worlds at `module:factory` that may be opened beside the registered ones."""
    face: Face = field(default_factory=Face)


def build_app(config: AppConfig) -> FastAPI:
    """The ASGI application. Its links are made when it starts and undone when it ends.

    Raises `BadValue` for a token that can't be read.
    """
    tickets = Tickets(SystemClock())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        gateway = Gateway(config.run_dir, SystemClock())
        metrics = Metrics(gateway)
        gateway.listen(metrics)
        app.state.gateway, app.state.metrics = gateway, metrics
        worlds = sorted({*known_worlds(), *config.worlds})
        app.include_router(VerbPaths(gateway, worlds).router())
        app.include_router(FleetPaths(gateway, worlds).router())
        if PAGE.is_dir():
            app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
        try:
            yield
        finally:
            await gateway.close()

    app = FastAPI(title="Worldline", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.tickets = tickets
    app.add_middleware(Guard, access=access_of(config.face), tickets=tickets)
    app.middleware("http")(_count_and_mark)
    app.exception_handler(HTTPException)(on_http_exception)
    app.exception_handler(WorldlineError)(on_worldline_error)
    app.exception_handler(Exception)(on_bug)
    app.get("/openapi.json")(_openapi)
    app.get("/metrics")(_metrics)
    app.post("/v1/tickets")(_ticket)
    app.websocket("/v1/events")(_events)
    app.websocket("/v1/sessions/{session}/play")(_play)
    return app


def access_of(face: Face) -> Access:
    """What `face` asks of a request. Raises `BadValue`."""
    page = {f"/{path.relative_to(PAGE).as_posix()}" for path in PAGE.rglob("*") if path.is_file()}
    token = None if face.token_file is None else Token.read(face.token_file)
    return Access(face.reached_as, face.scheme, token, page | {"/", "/livez"})


async def on_worldline_error(_request: Request, error: Exception) -> Response:
    """Every typed error has its own status."""
    assert isinstance(error, WorldlineError)
    return error_answer(error)


async def _openapi() -> Response:
    return json_answer(document())


async def _ticket(request: Request) -> Response:
    tickets: Tickets = request.app.state.tickets
    return json_answer(Ticket(tickets.give(), TICKET_S), HTTPStatus.CREATED)


async def _metrics(request: Request) -> Response:
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def _events(socket: WebSocket) -> None:
    await serve_events(socket.app.state.gateway, socket)


async def _play(socket: WebSocket, session: str) -> None:
    metrics: Metrics = socket.app.state.metrics
    with metrics.players.track_inprogress():
        await serve_play(socket.app.state.gateway, socket, session)


async def _count_and_mark(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    route = request.scope.get("route")
    metrics: Metrics = request.app.state.metrics
    metrics.count_request(request.method, getattr(route, "path", "other") or "/", response.status_code)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = PAGE_POLICY
    response.headers["Cache-Control"] = "no-store"
    return response


def listen(face: Face, port: int) -> socket.socket:
    """A bound socket. Raises `BadValue` for a port in use."""
    address = face.address
    # asyncio turns Nagle's algorithm off only where the protocol is named; left on, an answer waits 40 ms for an ack.
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address, port))
    except OSError as error:
        bound.close()
        raise BadValue(f"port {port} of {address} can't be used: {error.strerror}", port=port) from error
    return bound


def tell_address(run_dir: Path, url: str) -> None:
    """Writes the address where the supervisor finds it: whole, or not at all."""
    draft = run_dir / f"{GATEWAY_ADDRESS}.{os.getpid()}"
    draft.write_text(url + "\n")
    draft.replace(run_dir / GATEWAY_ADDRESS)


async def serve(config: AppConfig, bound: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT."""
    server = uvicorn.Server(
        uvicorn.Config(
            build_app(config),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="websockets-sansio",
            ws_max_size=WS_BYTES_MAX,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=STOP_WAIT_S,
            lifespan="on",
            ssl_certfile=config.face.tls_cert,
            ssl_keyfile=config.face.tls_key,
        )
    )
    name, port = config.face.shown_as, bound.getsockname()[1]
    bound.listen()
    tell_address(config.run_dir, f"{config.face.scheme}://{f'[{name}]' if ':' in name else name}:{port}")
    await server.serve(sockets=[bound])


def main(argv: Sequence[str] | None = None) -> int:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m worldline.service.app")
    parser.add_argument("--dir", type=Path, required=True, help="the fleet's run directory")
    parser.add_argument("--address", default=Face().address, help="loopback, or with a token and TLS any other")
    parser.add_argument("--name", action="append", default=[], help="under which clients reach it")
    parser.add_argument("--token-file", type=Path, help="whose one line clients must show")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--port", type=int, default=8700, help="0 takes any free one")
    parser.add_argument("--world", action="append", default=[], help="a world at module:factory that may be opened")
    words = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        face = Face(words.address, tuple(words.name), words.token_file, words.tls_cert, words.tls_key)
        config = AppConfig(words.dir, tuple(words.world), face)
        access_of(face)
        face.check_tls()
        bound = listen(face, words.port)
    except WorldlineError as error:
        logging.getLogger(__name__).error("%s: %s", error.code, error)  # noqa: TRY400 - a sentence says it all
        return error.exit_code
    asyncio.run(serve(config, bound))
    return 0


if __name__ == "__main__":
    sys.exit(main())
