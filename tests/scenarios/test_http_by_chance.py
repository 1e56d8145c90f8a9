"""Requests drawn from the OpenAPI document, right ones and wrong ones: every answer is one that the document has."""

import copy
import time

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from worldline.schema.contract import Contract
from worldline.service.client import Client
from worldline.service.openapi import OPERATIONS

TINY = "worldline.testing.tiny:TinyWorld"
ROOMY = Contract(pause_bound_s=20.0, completion_deadline_s=60.0)
HELD_TO = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")


@pytest.fixture(scope="module")
def document(fleet):
    """The gateway's own, but with names and values that there are, so that right requests are often served."""
    with Client(fleet.url) as client:
        spare = [client.open(TINY, seed=7, host="a", contract=ROOMY) for _ in range(5)]
        parked = client.open(TINY, seed=7, host="a", contract=ROOMY)
        moved = client.open(TINY, seed=7, host="a", contract=ROOMY)
        receipt = moved.move("b").receipt
        parked.park()
        wide = client.open(TINY, seed=7, host="c", contract=ROOMY)
        sessions = [parked.id, moved.id, wide.id]
        planned = client.operate("rebalance").id
        told = copy.deepcopy(httpx.get(f"{fleet.url}/openapi.json").json())
        for operations in told["paths"].values():
            for method, operation in operations.items():
                known = {
                    "session": [one.id for one in spare] if method == "delete" else sessions,
                    "move": [receipt.move],
                    "receipt": [receipt.id],
                    "host": ["d"],
                    "operation": [planned],
                }
                for parameter in operation["parameters"]:
                    if parameter["in"] == "path":
                        parameter["schema"] = {"enum": [*known[parameter["name"]], "none-such"]}
        bodies = told["components"]["schemas"]
        for body, name, values in (
            ("OpenBody", "world", [TINY, TINY, "nowhere"]),
            ("OpenBody", "host", ["a", "b", None, "nowhere"]),
            ("OpenBody", "session", [None]),
            ("OpenBody", "contract", [{}, {"pause_bound_s": 5.0, "completion_deadline_s": 1.0}]),
            ("MoveBody", "host", ["a", "b", "c", "nowhere"]),
            ("MoveBody", "transport", ["tcp", "shm", "pigeon"]),
            ("MoveBody", "fault", [None, None, "flip", "earthquake"]),
            ("ResumeBody", "host", ["a", "b", None, "nowhere"]),
            ("OperationBody", "dry_run", [True]),  # this fleet is others' too
            ("OperationBody", "host", ["d", None, "nowhere"]),
            ("PrewarmBody", "world", [TINY, "nowhere"]),
            ("PrewarmBody", "options", [{}]),
        ):
            bodies[body]["properties"][name] = {"enum": values}
        bodies["StepBody"]["properties"]["actions"] |= {"items": {"enum": [0, 1, 2, 3, "left"]}, "minItems": 1}
        bodies["StepBody"]["properties"]["first"] = {"enum": [None, None, None, 1, 10**18]}
        loaded = schemathesis.openapi.from_dict(told)
        loaded.config.update(base_url=fleet.url)
        yield loaded
        for operation in client.operations():
            client.cancel(operation.id)
        while any(operation.outcome is None for operation in client.operations()):
            time.sleep(0.05)
        client.prewarm("d", TINY, slots=0)
        for host in "abcd":
            client.uncordon(host)
        for session in client.sessions():
            if session.status != "closed" and session.twin_of is None:
                client.session(session.id).close()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_answer_is_one_that_the_document_has(document, operation, mode):
    drawn = document[operation.path][operation.method.upper()]

    @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=drawn.as_strategy(generation_mode=mode))
    def ask(case):
        response = case.call(timeout=60)
        assert response.status_code < 500 or response.status_code == 503, response.text
        case.validate_response(response, checks=CHECKS.get_by_names(HELD_TO))

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "there is no right request"
