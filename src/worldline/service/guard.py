"""Who may talk to the gateway.

A browser lets any site send requests to a loopback address, and a name that is re-bound to 127.0.0.1 makes them
same-origin. So `Host` must be one of the gateway's names, and `Origin`, where a browser sends one, must be the
gateway's own. This holds for WebSockets too, which browsers let any site open. Where there is a token, everything but
the page's own files and `/livez` is for those who show it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from worldline.errors import Unauthenticated
from worldline.runtime.face import LOOPBACK
from worldline.service.answers import error_answer
from worldline.service.tokens import Tickets, Token

POLICY_VIOLATION = 1008
CHALLENGE = 'Bearer realm="worldline"'


@dataclass(frozen=True, slots=True)
class Access:
    """What is asked of a request."""

    names: Collection[str] = LOOPBACK
    scheme: str = "http"
    token: Token | None = None
    open_paths: Collection[str] = ()
    """Served without the token."""


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access, tickets: Tickets) -> None:
        self._app = app
        self._access = access
        self._tickets = tickets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        refused = refuse(headers, self._access)
        stranger = None if refused is not None else self._refuse_stranger(scope, headers)
        if refused is None and stranger is None:
            return await self._app(scope, receive, send)
        error = refused or stranger
        assert error is not None
        if scope["type"] == "http":
            answer = error_answer(error)
            if stranger is not None:
                answer.headers["WWW-Authenticate"] = CHALLENGE
            return await answer(scope, receive, send)
        await receive()
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": error.sentence[:120]})
        return None

    def _refuse_stranger(self, scope: Scope, headers: Headers) -> Unauthenticated | None:
        token = self._access.token
        if token is None or (scope["type"] == "http" and scope["path"] in self._access.open_paths):
            return None
        shown = headers.getlist("authorization")
        if len(shown) == 1 and token.is_shown_by(shown[0]):
            return None
        if scope["type"] == "websocket" and not shown and self._has_ticket(scope):
            return None
        return Unauthenticated("this gateway serves those who show its token")

    def _has_ticket(self, scope: Scope) -> bool:
        asked = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=16).get("ticket", [])
        return len(asked) == 1 and self._tickets.take(asked[0])


def refuse(headers: Headers, access: Access | None = None) -> Unauthenticated | None:
    """Why a request with these headers is not served, whoever sent it; None if it may be."""
    access = access or Access()
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or _name(f"//{hosts[0]}") not in access.names:
        names = "a loopback name" if set(access.names) == LOOPBACK else "a name of this gateway"
        return Unauthenticated(f"the Host header must be {names}", host=", ".join(hosts)[:200])
    if origins and (len(origins) != 1 or origins[0].lower() != f"{access.scheme}://{hosts[0]}".lower()):
        return Unauthenticated("pages of other origins may not use this gateway", origin=", ".join(origins)[:200])
    return None


def _name(netloc: str) -> str | None:
    try:
        return urlsplit(netloc).hostname
    except ValueError:
        return None
