"""The gateway's process: HTTP, WebSockets and the page.

    python -m worldline.service.app --dir RUN_DIR --port 8700

It listens on the loopback address alone. Sessions play on while it is away, and while the controller is.
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
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket

from worldline.clock import SystemClock
from worldline.errors import BadValue, Unauthenticated, WorldlineError
from worldline.runtime.gateway import Gateway
from worldline.runtime.run_dir import GATEWAY_ADDRESS
from worldline.service.answers import error_answer, json_answer, on_bug, on_http_exception
from worldline.service.eventsocket import serve_events
from worldline.service.guard import LOOPBACK, Guard
from worldline.service.metrics import Metrics
from worldline.service.openapi import document
from worldline.service.playsocket import serve_play
from worldline.service.verbs import VerbPaths
from worldline.worlds.registry import known_worlds

PAGE = Path(__file__).with_name("page")
ADDRESS = "127.0.0.1"
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


def build_app(config: AppConfig) -> FastAPI:
    """The ASGI application. Its links are made when it starts and undone when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        gateway = Gateway(config.run_dir, SystemClock())
        metrics = Metrics(gateway)
        gateway.listen(metrics)
        app.state.gateway, app.state.metrics = gateway, metrics
        app.include_router(VerbPaths(gateway, sorted({*known_worlds(), *config.worlds})).router())
        if PAGE.is_dir():
            app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
        try:
            yield
        finally:
            await gateway.close()

    app = FastAPI(title="Worldline", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard)
    app.middleware("http")(_count_and_mark)
    app.exception_handler(HTTPException)(on_http_exception)
    app.exception_handler(WorldlineError)(on_worldline_error)
    app.exception_handler(Exception)(on_bug)
    app.get("/openapi.json")(_openapi)
    app.get("/metrics")(_metrics)
    app.websocket("/v1/events")(_events)
    app.websocket("/v1/sessions/{session}/play")(_play)
    return app


async def on_worldline_error(_request: Request, error: Exception) -> Response:
    """Every typed error has its own status."""
    assert isinstance(error, WorldlineError)
    return error_answer(error)


async def _openapi() -> Response:
    return json_answer(document())


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


def listen(address: str, port: int) -> socket.socket:
    """A bound socket. Raises `Unauthenticated` for an address that others can reach, `BadValue` for a port in use."""
    if address not in LOOPBACK:
        raise Unauthenticated(
            f"the gateway listens on the loopback address alone, not on {address}: it knows neither TLS nor tokens yet",
            address=address,
        )
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
        )
    )
    host, port = bound.getsockname()[:2]
    bound.listen()
    tell_address(config.run_dir, f"http://{f'[{host}]' if ':' in host else host}:{port}")
    await server.serve(sockets=[bound])


def main(argv: Sequence[str] | None = None) -> int:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m worldline.service.app")
    parser.add_argument("--dir", type=Path, required=True, help="the fleet's run directory")
    parser.add_argument("--address", default=ADDRESS, help="a loopback address")
    parser.add_argument("--port", type=int, default=8700, help="0 takes any free one")
    parser.add_argument("--world", action="append", default=[], help="a world at module:factory that may be opened")
    words = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        bound = listen(words.address, words.port)
    except WorldlineError as error:
        logging.getLogger(__name__).error("%s: %s", error.code, error)  # noqa: TRY400 - a sentence says it all
        return error.exit_code
    asyncio.run(serve(AppConfig(words.dir, tuple(words.world)), bound))
    return 0


if __name__ == "__main__":
    sys.exit(main())
