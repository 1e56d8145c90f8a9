"""The service from Python: typed values in, typed values out, and the library's own errors.

    with Client("http://127.0.0.1:8700") as client:
        session = client.open("reference", seed=7)
        session.step("up", "up")
        session.move("b")

Every verb carries an idempotency key, so a request whose answer was lost is sent again and not done twice.
"""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from worldline.control.placement import Kind
from worldline.errors import BadValue, ControllerGone, Internal, TimedOut
from worldline.runtime.fleet_messages import Operation
from worldline.runtime.messages import Host, Move, Prewarmed, Session, Signer
from worldline.schema.contract import Contract
from worldline.schema.plan import Qualification
from worldline.schema.receipt import Mode, Receipt
from worldline.service.answers import ErrorAnswer
from worldline.service.bodies import ACTIONS_MAX, Frames, OperationBody
from worldline.service.fleet_paths import OperationList
from worldline.service.verbs import HostList, SessionList, SignerList, StepAnswer, StepBlock, Worlds
from worldline.worlds.protocol import OptionValue

URL = "http://127.0.0.1:8700"
CONNECT_WAIT_S = 5.0
ANSWER_WAIT_S = 330.0
"""Longer than the gateway waits for the controller."""
ATTEMPTS = 2

T = TypeVar("T")


class Client:
    """A connection to one gateway. Errors are those of `worldline.errors`; where nothing answers, `ControllerGone`.

    `token` is shown to a gateway that asks for one. `ca` is a file with the certificate of whoever signed the
    gateway's; without it the system's are trusted.
    """

    def __init__(self, url: str = URL, *, token: str | None = None, ca: Path | None = None) -> None:
        self.url = url.rstrip("/")
        timeout = httpx.Timeout(ANSWER_WAIT_S, connect=CONNECT_WAIT_S)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=self.url, timeout=timeout, trust_env=False, headers=headers, verify=_trust(ca)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; sessions play on."""
        self._http.close()

    # ---- reading

    def worlds(self) -> list[str]:
        """The names of the worlds that can be opened."""
        return self.get("/v1/worlds", Worlds).worlds

    def hosts(self) -> list[Host]:
        return self.get("/v1/hosts", HostList).hosts

    def sessions(self) -> list[Session]:
        """All that were ever opened, oldest first."""
        return self.get("/v1/sessions", SessionList).sessions

    def session(self, session: str) -> SessionHandle:
        """A handle; whether the session exists is found out when it is used."""
        return SessionHandle(self, session)

    def describe(self, session: str) -> Session:
        """Raises `UnknownSession`."""
        return self.get(f"/v1/sessions/{_quote(session)}", Session)

    def move(self, move: str) -> Move:
        """Raises `UnknownMove`."""
        return self.get(f"/v1/moves/{_quote(move)}", Move)

    def receipt(self, receipt: str) -> Receipt:
        """Raises `UnknownReceipt`."""
        return self.get(f"/v1/receipts/{_quote(receipt)}", Receipt)

    def signers(self) -> list[Signer]:
        """The public keys under which hosts of this fleet sign receipts, oldest first."""
        return self.get("/v1/signers", SignerList).signers

    # ---- verbs

    def open(  # noqa: PLR0913 - a verb whose options are given by name
        self,
        world: str,
        *,
        seed: int = 0,
        options: Mapping[str, OptionValue] | None = None,
        contract: Contract | None = None,
        host: str | None = None,
        twin: bool = False,
        session: str | None = None,
    ) -> SessionHandle:
        """After success the session is at block 0 of a host (`host`, or the one with most free memory), and so is its
        twin on another one; after a failure neither exists.
        """
        body = {
            "world": world,
            "seed": seed,
            "options": dict(options or {}),
            "contract": contract or Contract(),
            "host": host,
            "twin": twin,
            "session": session,
        }
        return SessionHandle(self, self.verb("POST", "/v1/sessions", body, Session).id)

    def record_qualification(self, qualification: Qualification) -> None:
        """After success T1 contracts that it satisfies may move between its two plans."""
        self.verb("POST", "/v1/qualifications", qualification, None)

    # ---- hosts, and operations over many sessions

    def cordon(self, host: str) -> Host:
        """After success the host takes no session; those on it play on."""
        found: Host = self.verb("POST", f"/v1/hosts/{_quote(host)}/cordon", None, Host)
        return found

    def uncordon(self, host: str) -> Host:
        """After success it takes sessions again."""
        found: Host = self.verb("POST", f"/v1/hosts/{_quote(host)}/uncordon", None, Host)
        return found

    def prewarm(
        self, host: str, world: str, *, slots: int = 1, options: Mapping[str, OptionValue] | None = None
    ) -> Prewarmed:
        """After success the host has the world's engine and so many arenas ready. Raises `NoCapacity`."""
        body = {"world": world, "options": dict(options or {}), "slots": slots}
        found: Prewarmed = self.verb("POST", f"/v1/hosts/{_quote(host)}/prewarm", body, Prewarmed)
        return found

    def operate(self, kind: Kind | str, host: str | None = None, **wishes: Any) -> Operation:
        """Begins a drain, an evacuation, a rebalance or a consolidation, which then runs on by itself.

        `wishes` are the fields of `OperationBody`; with `dry_run=True` the answer is the plan, and nothing was begun.
        """
        body = OperationBody(kind=Kind(kind), host=host, **wishes)
        found: Operation = self.verb("POST", "/v1/operations", body, Operation)
        return found

    def operations(self) -> list[Operation]:
        """The last ones, oldest first."""
        return self.get("/v1/operations", OperationList).operations

    def operation(self, operation: str) -> Operation:
        """Raises `UnknownOperation`."""
        return self.get(f"/v1/operations/{_quote(operation)}", Operation)

    def cancel(self, operation: str) -> Operation:
        """Nothing more of it is begun; what is under way ends as it would have."""
        found: Operation = self.verb("DELETE", f"/v1/operations/{_quote(operation)}", None, Operation)
        return found

    # ---- HTTP

    def get(self, path: str, answer: type[T]) -> T:
        """Reads a path as `answer`."""
        response = self._send(lambda: self._http.get(path))
        return _decode(response.content, answer)

    def verb(self, method: str, path: str, body: object, answer: type[T] | None) -> Any:
        """Sends a verb under a new idempotency key and returns its answer as `answer`."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        content = b"" if body is None else msgspec.json.encode(body)
        response = self._send(lambda: self._http.request(method, path, content=content, headers=headers))
        return None if answer is None else _decode(response.content, answer)

    def _send(self, send: Any) -> httpx.Response:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response: httpx.Response = send()
            except httpx.TimeoutException as error:
                raise TimedOut(f"{self.url} did not answer in time; this says nothing about what was done") from error
            except httpx.TransportError as error:
                if attempt == ATTEMPTS:
                    raise ControllerGone(f"no gateway answers at {self.url}: {error}", url=self.url) from error
            else:
                if response.is_error:
                    _raise(response)
                return response
        raise AssertionError("the last attempt raises")


@dataclass(frozen=True, slots=True)
class SessionHandle:
    """One session, by its id. Raises `UnknownSession`, `SessionClosed`, `StateLost` and the like when it is used."""

    client: Client
    id: str

    def describe(self) -> Session:
        """The session as the controller's record has it."""
        return self.client.describe(self.id)

    def step(self, *actions: int | str, first: int | None = None, frames: Frames = "none") -> list[StepBlock]:
        """One block for each action, by name or number, in order.

        After success each was applied once. After a failure, sending the same actions again under the same numbers
        (`first`) applies none twice. Raises `ActionGap`.
        """
        blocks: list[StepBlock] = []
        for start in range(0, len(actions), ACTIONS_MAX):
            number = first + start if first is not None else None
            body = {"actions": actions[start : start + ACTIONS_MAX], "first": number, "frames": frames}
            answer: StepAnswer = self.client.verb("POST", self._path("step"), body, StepAnswer)
            blocks += answer.blocks
        return blocks

    def move(
        self,
        host: str,
        *,
        mode: Mode | str = Mode.PRECOPY,
        transport: str = "tcp",
        fault: str | None = None,
        codec: str = "auto",
    ) -> Move:
        """After success `host` owns the session, with the receipt in the answer. A refusal is raised as its typed
        error: the session plays on where it was, and nothing was installed.
        """
        body = {"host": host, "mode": mode, "transport": transport, "fault": fault, "codec": codec}
        move: Move = self.client.verb("POST", self._path("move"), body, Move)
        return move

    def park(self, *, fault: str | None = None) -> Session:
        """After success the session is a verified image and no host owns it; after a failure it plays on."""
        session: Session = self.client.verb("POST", self._path("park"), {"fault": fault}, Session)
        return session

    def resume(self, host: str | None = None, *, fault: str | None = None) -> Session:
        """After success a host of an equal plan (`host`, or the one with most free memory) owns the session; after a
        failure it stays parked.
        """
        session: Session = self.client.verb("POST", self._path("resume"), {"host": host, "fault": fault}, Session)
        return session

    def close(self) -> Session:
        """After success nobody owns the session, and its twin is closed too."""
        session: Session = self.client.verb("DELETE", self._path(), None, Session)
        return session

    def sabotage(self, bit: int) -> None:
        """Flips one bit of the live state, for proofs. Only where the fleet allows faults."""
        self.client.verb("POST", self._path("sabotage"), {"bit": bit}, None)

    def _path(self, verb: str | None = None) -> str:
        path = f"/v1/sessions/{_quote(self.id)}"
        return path if verb is None else f"{path}/{verb}"


def connect(url: str = URL, *, token: str | None = None, ca: Path | None = None) -> Client:
    """A client of the gateway at `url`; see `Client`."""
    return Client(url, token=token, ca=ca)


def _trust(ca: Path | None) -> ssl.SSLContext | bool:
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise BadValue(f"{ca.name} is no file of certificates: {error.strerror}") from error


def _decode(content: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=answer)
    except msgspec.DecodeError as error:
        raise Internal(f"the gateway's answer is not a {answer.__name__}: {error}") from error


def _raise(response: httpx.Response) -> None:
    """Raises the typed error of an answer."""
    try:
        error = msgspec.json.decode(response.content, type=ErrorAnswer).error
    except (msgspec.DecodeError, json.JSONDecodeError):
        raise Internal(f"the gateway answered {response.status_code} without a reason") from None
    raise error.to_error()


def _quote(name: str) -> str:
    return quote(name, safe="")
