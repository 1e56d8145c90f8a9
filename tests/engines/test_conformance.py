"""Sessions of engines whose code is a checkout can be moved; so says the public suite, over the engine's own code."""

import pytest

from worldline.testing.worlds import WORLD_CHECKS, check_world
from worldline.worlds.checkouts import PLACES
from worldline.worlds.registry import build_world

OPTIONS = {"matrix-game-2": {"horizon_frames": 24}}
"""Small sizes are the defaults; a horizon no longer than what is played saves digesting the rest."""


@pytest.fixture(scope="module", params=sorted(PLACES))
def world(request, needs_checkout):
    needs_checkout(request.param)
    return build_world(request.param, OPTIONS.get(request.param, {}))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", WORLD_CHECKS)
def test_engine_conforms(world, check):
    findings = check_world(world, checks=[check])
    assert not findings, "\n".join(map(str, findings))
