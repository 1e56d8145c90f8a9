"""One fleet of real processes for all scenarios that leave it as they found it."""

import pytest

from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.service.client import Client

TINY = "worldline.testing.tiny:TinyWorld"
MEMORY_BYTES = 256 << 20


@pytest.fixture(scope="session")
def fleet():
    """Hosts a, b, c of one plan and d of another; faults allowed."""
    plan = FleetPlan(
        hosts=("a", "b", "c", "d"),
        faults=True,
        worlds=(TINY,),
        memory_bytes=MEMORY_BYTES,
        cpu_capabilities={"d": "default"},
    )
    with Fleet.start(plan) as started:
        yield started


@pytest.fixture
def client(fleet):
    with Client(fleet.url) as connected:
        yield connected
        for session in connected.sessions():
            if session.status != "closed" and session.twin_of is None:
                connected.session(session.id).close()
