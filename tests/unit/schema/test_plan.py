"""A plan mismatch names what differs."""

from __future__ import annotations

from dataclasses import replace

from worldline.schema.plan import Plan

PLAN = Plan("reference", (("capability", "AVX2"), ("torch", "2.13.0")), canary="aa", digest="d1")


def test_hosts_are_compared_by_what_all_their_worlds_share() -> None:
    facts = (("engine.weights", "w1"), ("torch.cpu_capability", "AVX2"))
    plan = replace(PLAN, facts=facts)
    other = replace(PLAN, world="lm", canary="bb", digest="d2", facts=(("engine.weights", "w2"), facts[1]))
    assert plan.host_digest == other.host_digest
    assert plan.host_digest != replace(plan, facts=(facts[0], ("torch.cpu_capability", "DEFAULT"))).host_digest


def test_equal_plans_have_no_differences() -> None:
    assert PLAN.differences(replace(PLAN)) == ()


def test_each_fact_that_differs_is_named() -> None:
    other = replace(PLAN, facts=(("capability", "DEFAULT"), ("threads", "1")), canary="bb", world="lm")
    assert PLAN.differences(other) == ("world", "capability", "threads", "torch", "canary")
