"""Who may talk to the gateway: programs and pages of this machine.

A browser lets any site send requests to a loopback address, and a name that is re-bound to 127.0.0.1 makes them
same-origin. So `Host` must be a loopback name, and `Origin`, where a browser sends one, must be the gateway's own.
This holds for WebSockets too, which browsers let any site open.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from worldline.errors import Unauthenticated
from worldline.service.answers import error_answer

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
POLICY_VIOLATION = 1008


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            return await self._app(scope, receive, send)
        refused = refuse(Headers(scope=scope))
        if refused is None:
            return await self._app(scope, receive, send)
        if scope["type"] == "http":
            return await error_answer(refused)(scope, receive, send)
        await receive()
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": refused.sentence[:120]})
        return None


def refuse(headers: Headers) -> Unauthenticated | None:
    """Why a request with these headers is not served; None if it is."""
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or _name(f"//{hosts[0]}") not in LOOPBACK:
        return Unauthenticated("the Host header must be a loopback name", host=", ".join(hosts)[:200])
    if origins and (len(origins) != 1 or origins[0].lower() != f"http://{hosts[0]}".lower()):
        return Unauthenticated("pages of other origins may not use this gateway", origin=", ".join(origins)[:200])
    return None


def _name(netloc: str) -> str | None:
    try:
        return urlsplit(netloc).hostname
    except ValueError:
        return None
