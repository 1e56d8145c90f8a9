"""The paths of `/v1` about hosts and about operations over many sessions."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from fastapi import APIRouter, Request, Response

from worldline.errors import UnknownWorld
from worldline.runtime import fleet_messages as wire
from worldline.runtime.fleet_messages import Operation
from worldline.runtime.gateway import READ_WAIT_S, Gateway
from worldline.runtime.messages import Host, Prewarmed
from worldline.service import bodies
from worldline.service.answers import json_answer
from worldline.service.bodies import read_body

PLAN_WAIT_S = 300.0
"""A host that never had a world builds its engine before it can say whether it may take a session."""


class OperationList(msgspec.Struct, frozen=True):
    operations: list[Operation]


class FleetPaths:
    """Handlers, bound to one gateway."""

    def __init__(self, gateway: Gateway, worlds: Sequence[str]) -> None:
        self._gateway = gateway
        self._worlds = list(worlds)

    def router(self) -> APIRouter:
        router = APIRouter()
        for method, path, handler in (
            ("POST", "/v1/hosts/{host}/cordon", self.cordon),
            ("POST", "/v1/hosts/{host}/uncordon", self.uncordon),
            ("POST", "/v1/hosts/{host}/prewarm", self.prewarm),
            ("GET", "/v1/operations", self.operations),
            ("POST", "/v1/operations", self.operate),
            ("GET", "/v1/operations/{operation}", self.get_operation),
            ("DELETE", "/v1/operations/{operation}", self.cancel),
        ):
            router.add_api_route(path, handler, methods=[method], response_model=None)
        return router

    async def cordon(self, host: str) -> Response:
        return json_answer(await self._gateway.ask(wire.CordonRequest(host, True), Host, READ_WAIT_S))

    async def uncordon(self, host: str) -> Response:
        return json_answer(await self._gateway.ask(wire.CordonRequest(host, False), Host, READ_WAIT_S))

    async def prewarm(self, request: Request, host: str) -> Response:
        body = await read_body(request, bodies.PrewarmBody)
        if body.world not in self._worlds:
            known = ", ".join(self._worlds)
            raise UnknownWorld(f"there is no world {body.world[:80]!r}; known are {known}", world=body.world[:80])
        wish = wire.PrewarmRequest(host, body.world, body.options, body.slots)
        return json_answer(await self._gateway.ask(wish, Prewarmed, PLAN_WAIT_S))

    async def operations(self) -> Response:
        found = await self._gateway.ask(wire.ListOperations(), list[Operation], READ_WAIT_S)
        return json_answer(OperationList(found))

    async def operate(self, request: Request) -> Response:
        body = await read_body(request, bodies.OperationBody)
        wish = wire.OperationRequest(**msgspec.structs.asdict(body))
        return json_answer(await self._gateway.ask(wish, Operation, PLAN_WAIT_S), HTTPStatus.CREATED)

    async def get_operation(self, operation: str) -> Response:
        return json_answer(await self._gateway.ask(wire.GetOperation(operation), Operation, READ_WAIT_S))

    async def cancel(self, operation: str) -> Response:
        return json_answer(await self._gateway.ask(wire.CancelOperation(operation), Operation, READ_WAIT_S))
