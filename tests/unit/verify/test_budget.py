"""What moves take of the processors while a session plays is bounded, and free while one is frozen."""

import asyncio
import threading

import pytest

from unit.verify.kit import Octets
from worldline.clock import ManualClock
from worldline.errors import BadValue
from worldline.schema.layout import Extent
from worldline.verify.budget import BURST_S, CORES_MIN, WAIT_S_MAX, Budget, Meter
from worldline.verify.lanes import JOB_BYTES, Lanes


class Ticking(ManualClock):
    """Each look at it takes a tenth of a second."""

    def monotonic_s(self) -> float:
        self.advance(0.1)
        return super().monotonic_s()


@pytest.fixture
def clock():
    return ManualClock()


def test_what_was_spent_beyond_a_burst_is_owed_until_its_cores_have_had_the_time(clock):
    budget = Budget(0.5, lambda: False, clock)
    budget.spend(BURST_S + 0.1)
    assert budget.owed_s == pytest.approx(0.2)
    clock.advance(0.15)
    assert budget.owed_s == pytest.approx(0.05)
    clock.advance(0.05)
    assert budget.owed_s == pytest.approx(0.0)


def test_a_rest_saves_up_one_burst_and_no_more(clock):
    budget = Budget(1.0, lambda: False, clock)
    clock.advance(3600)
    budget.spend(BURST_S)
    assert budget.owed_s == pytest.approx(0.0)
    budget.spend(0.01)
    assert budget.owed_s == pytest.approx(0.01)


def test_nobody_waits_for_long_whatever_was_spent(clock):
    budget = Budget(CORES_MIN, lambda: False, clock)
    budget.spend(3600.0)
    assert budget.owed_s == WAIT_S_MAX
    impatient = Budget(CORES_MIN, lambda: False, Ticking())
    impatient.spend(3600.0)
    impatient.wait()
    assert impatient.owed_s == WAIT_S_MAX


def test_while_it_is_lifted_nothing_is_owed_and_what_is_spent_does_not_count(clock):
    frozen = True
    budget = Budget(0.5, lambda: frozen, clock)
    budget.spend(100.0)
    assert budget.owed_s == 0.0
    frozen = False
    assert budget.owed_s == 0.0


def test_who_waits_goes_on_when_a_session_is_frozen(clock):
    frozen = threading.Event()
    budget = Budget(CORES_MIN, frozen.is_set, clock)
    budget.spend(100.0)
    waiting = threading.Thread(target=budget.wait)
    waiting.start()
    assert waiting.is_alive()
    frozen.set()
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_meter_counts_what_its_own_thread_used(clock):
    budget = Budget(1.0, lambda: False, clock)
    meter = Meter(budget)
    other = threading.Thread(target=lambda: sum(range(300_000)))
    other.start()
    other.join()
    meter.count()
    idle_s = budget.spent_s
    sum(range(300_000))
    meter.count()
    assert budget.spent_s > 2 * idle_s


def test_a_budget_of_no_processor_is_refused():
    for cores in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadValue):
            Budget(cores, lambda: False)


class Told(Octets):
    """Memory that tells how often it was read."""

    reads = 0

    def bytes_at(self, extent):
        self.reads += 1
        return super().bytes_at(extent)


async def test_lanes_begin_no_job_of_a_moves_before_what_was_spent_is_paid(clock):
    frozen = threading.Event()
    budget = Budget(1.0, frozen.is_set, clock)
    lanes, memory = Lanes(1, budget=budget), Told(JOB_BYTES)
    budget.spend(1.0)
    task = asyncio.create_task(lanes.digests(memory, [Extent(0, JOB_BYTES)]))
    for _ in range(50):
        await asyncio.sleep(0)
    assert memory.reads == 0
    frozen.set()
    assert len(await task) == 1
    lanes.close()


def test_lanes_read_at_once_what_an_engine_needs_at_its_boundary_and_count_it(clock):
    budget = Budget(1.0, lambda: False, clock)
    budget.spend(1.0)
    lanes = Lanes(1, budget=budget)
    [future] = lanes.submit(Octets(JOB_BYTES), [Extent(0, JOB_BYTES)])
    assert len(future.result(30)) == 1
    lanes.close()
    assert budget.spent_s > 1.0
