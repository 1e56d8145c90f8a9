"""What is checked before a byte moves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from worldline.control.admission import HostSide, Image, Load, Wish, admit, check_rates
from worldline.errors import (
    BadValue,
    BandwidthShort,
    ByteOrderRefused,
    DeadlineMissed,
    HostGone,
    NoCapacity,
    PlanMismatch,
    WorldlineError,
)
from worldline.schema.contract import Contract, Tier
from worldline.schema.ids import HostId
from worldline.schema.plan import Plan, Qualification
from worldline.schema.receipt import Mode

PLAN = Plan("reference", (("kernel", "avx2"), ("torch", "2")), "c1", "d1")
OTHER = Plan("reference", (("kernel", "default"), ("torch", "2")), "c2", "d2")
SOURCE = HostSide(
    HostId("a"), alive=True, byte_order="little", plan=PLAN, memory_free_bytes=0, transports=("tcp", "shm")
)
TARGET = replace(SOURCE, host=HostId("b"), memory_free_bytes=1000)
T1 = Contract(tier=Tier.T1, readout_psnr_db_min=40.0)
WISH = Wish(Mode.FREEZE, "tcp", Contract(pause_bound_s=1.0, completion_deadline_s=10.0), Load(900, 1000))


def qualification(psnr_db_worst: float) -> Qualification:
    return Qualification(f"q{psnr_db_worst}", "d1", "d2", "reference", 60, 60.0, psnr_db_worst, 3)


def test_two_equal_hosts_with_room_are_admitted() -> None:
    admission = admit(WISH, SOURCE, TARGET)
    assert (admission.qualification, admission.predicted_pause_s) == (None, None)


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        (replace(SOURCE, alive=False), TARGET, HostGone),
        (SOURCE, replace(TARGET, alive=False), HostGone),
        (SOURCE, replace(TARGET, transports=("shm",)), BadValue),
        (SOURCE, replace(TARGET, byte_order="big"), ByteOrderRefused),
        (SOURCE, replace(TARGET, plan=OTHER), PlanMismatch),
        (SOURCE, replace(TARGET, memory_free_bytes=999), NoCapacity),
    ],
)
def test_each_thing_that_is_wrong_has_its_own_error(
    source: HostSide, target: HostSide, error: type[WorldlineError]
) -> None:
    with pytest.raises(error) as caught:
        admit(WISH, source, target)
    assert caught.value.facts


def test_a_plan_mismatch_names_what_differs() -> None:
    with pytest.raises(PlanMismatch, match="differ in kernel, canary"):
        admit(WISH, SOURCE, replace(TARGET, plan=OTHER))


def test_plans_with_one_digest_less_in_common_are_not_equal() -> None:
    with pytest.raises(PlanMismatch, match="differ in digest"):
        admit(WISH, SOURCE, replace(TARGET, plan=replace(PLAN, digest="d9")))


def test_t1_takes_a_qualified_pair_and_cites_its_run() -> None:
    wish = replace(WISH, contract=T1, qualification=qualification(45.0))
    admission = admit(wish, SOURCE, replace(TARGET, plan=OTHER))
    assert admission.qualification == qualification(45.0)


@pytest.mark.parametrize(
    "run",
    [None, qualification(39.9), qualification(math.nan), replace(qualification(99.0), target_plan="d3")],
)
def test_t1_refuses_a_pair_that_is_unqualified_or_below_the_bound(run: Qualification | None) -> None:
    with pytest.raises(PlanMismatch):
        admit(replace(WISH, contract=T1, qualification=run), SOURCE, replace(TARGET, plan=OTHER))


def test_t1_refuses_the_pair_the_other_way_round() -> None:
    wish = replace(WISH, contract=T1, qualification=qualification(50.0))
    with pytest.raises(PlanMismatch, match="never qualified"):
        admit(wish, replace(SOURCE, plan=OTHER), TARGET)


def test_a_resume_checks_the_image_in_the_sources_place() -> None:
    wish = replace(WISH, mode=Mode.RESUME)
    admit(wish, Image("little", PLAN), TARGET)
    with pytest.raises(ByteOrderRefused):
        admit(wish, Image("big", PLAN), TARGET)
    with pytest.raises(PlanMismatch):
        admit(wish, Image("little", OTHER), TARGET)


CONTRACT = Contract(pause_bound_s=1.0, completion_deadline_s=10.0)


def test_a_freeze_is_refused_when_all_of_the_state_does_not_fit_the_pause() -> None:
    assert check_rates(Mode.FREEZE, CONTRACT, Load(900, 0, bytes_per_s=1000.0, overhead_s=0.1)) == 1.0
    with pytest.raises(DeadlineMissed):
        check_rates(Mode.FREEZE, CONTRACT, Load(901, 0, bytes_per_s=1000.0, overhead_s=0.1))


def test_a_pre_copy_is_refused_when_the_link_is_slower_than_state_and_rewriting_ask() -> None:
    load = Load(5000, 0, dirty_bytes_per_s=500.0, bytes_per_s=1000.0, overhead_s=0.0)
    assert check_rates(Mode.PRECOPY, CONTRACT, load) == 0.0
    with pytest.raises(BandwidthShort):
        check_rates(Mode.PRECOPY, CONTRACT, replace(load, dirty_bytes_per_s=501.0))
    with pytest.raises(DeadlineMissed):
        check_rates(Mode.PRECOPY, CONTRACT, replace(load, state_bytes=10_001))


def test_a_rate_that_was_not_measured_refuses_nothing_and_one_that_is_no_rate_does() -> None:
    assert check_rates(Mode.FREEZE, CONTRACT, Load(10**12, 0)) is None
    with pytest.raises(BadValue):
        check_rates(Mode.FREEZE, CONTRACT, Load(1, 0, bytes_per_s=0.0))
