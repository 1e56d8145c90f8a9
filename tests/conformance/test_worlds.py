"""Sessions of every world that ships, and of the tiny one, can be moved; the suite sees each planted fault."""

import pytest

from broken_worlds import BROKEN
from worldline.testing.causes import EXPLANATIONS, Cause
from worldline.testing.worlds import WORLD_CHECKS, check_world
from worldline.worlds.registry import build_world

WORLDS = {
    "tiny": ("worldline.testing.tiny:TinyWorld", {}),
    "load": ("load", {"bytes": "1.5MB", "layers": 2, "horizon_frames": 12}),
    "lm": ("lm", {"weights": "random", "context_tokens": 240}),
    "lm static": ("lm", {"weights": "random", "context_tokens": 240, "cache": "static"}),
    "lm sliding": ("lm", {"weights": "random", "context_tokens": 240, "cache": "sliding"}),
    "lm static sliding": (
        "lm",
        {
            "weights": "random",
            "context_tokens": 100,
            "cache": "static-sliding",
            "window_tokens": 99,
            "prompt": "A door.",
        },
    ),
    "diffusers": ("diffusers", {}),
    "reference": ("reference", {}),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request):
    name, options = WORLDS[request.param]
    return build_world(name, options)


@pytest.mark.parametrize("check", WORLD_CHECKS)
def test_world_conforms(world, check):
    findings = check_world(world, checks=[check])
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.__name__)
def test_planted_fault_is_found_by_the_check_made_for_it(fault):
    check, cause = BROKEN[fault]
    (finding, *_) = check_world(fault({}), checks=[check])
    assert (finding.check, finding.cause) == (check, cause)
    assert finding.sentence
    assert finding.remedy


def test_every_cause_is_explained_and_planted():
    assert EXPLANATIONS.keys() == set(Cause)
    assert {cause for _, cause in BROKEN.values()} == set(Cause)
