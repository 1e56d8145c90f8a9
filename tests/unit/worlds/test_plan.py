import json
import os
import subprocess
import sys

import pytest

from worldline.schema.plan import Plan
from worldline.testing.tiny import TinyWorld
from worldline.worlds.load import LoadWorld
from worldline.worlds.plan import plan_of

PROGRAM = """
import json, sys, torch
torch.set_num_threads(1)
from worldline.worlds.plan import plan_of
from worldline.worlds.registry import build_world
plan = plan_of(build_world(sys.argv[1], json.loads(sys.argv[2])))
print(json.dumps([plan.world, plan.facts, plan.canary, plan.digest]))
"""
WORLDS = {"reference": {}, "load": {}, "lm": {"weights": "random"}}


def plan_in_process(world, capability):
    """The plan of a fresh process whose torch may use these CPU kernels."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, world, json.dumps(WORLDS[world])],
        env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    name, facts, canary, digest = json.loads(done.stdout.splitlines()[-1])
    return Plan(name, tuple((key, value) for key, value in facts), canary, digest)


def cpu_flags():
    with open("/proc/cpuinfo") as text:  # noqa: PTH123  # not a file of ours
        return text.read()


@pytest.mark.skipif("avx2" not in cpu_flags(), reason="this CPU has no AVX2, so torch has only one set of kernels")
@pytest.mark.parametrize("world", WORLDS)
def test_other_cpu_kernels_are_another_plan_and_the_canary_sees_them(world):
    plain, wide = plan_in_process(world, "default"), plan_in_process(world, "avx2")
    assert plain.differences(wide) == ("torch.cpu_capability", "canary")
    assert plain.digest != wide.digest


def test_two_processes_of_one_machine_have_one_plan():
    assert plan_in_process("load", "default") == plan_in_process("load", "default")


def test_equal_worlds_have_equal_plans():
    assert plan_of(TinyWorld({})) == plan_of(TinyWorld({}))


def test_a_world_of_other_facts_has_another_plan():
    plain, other = plan_of(TinyWorld({})), plan_of(TinyWorld({"flavour": "sour"}))
    assert plain.differences(other) == ("engine.flavour",)
    assert plain.digest != other.digest


def test_the_canary_of_a_large_world_is_small():
    world = LoadWorld({})
    assert world.canary_world().state_bytes_max < world.state_bytes_max / 100


def test_every_fact_is_text_and_sorted():
    facts = plan_of(TinyWorld({})).facts
    assert list(facts) == sorted(facts)
    assert all(type(text) is str for fact in facts for text in fact)
