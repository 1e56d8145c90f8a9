"""What is not read again at a boundary is what it is taken to be, whatever the world declares or announces."""

import pytest

from worldline.clock import SystemClock
from worldline.runtime.host_engine import Engine, Read, Wish
from worldline.schema.inventory import Kind, Rule, Static
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import arena_capacity
from worldline.verify.lanes import Lanes
from worldline.worlds.load import LoadWorld

COMPARE = Wish(Read.ALL, withdraw=False)
OPTIONS = {"scale": 0.01, "layers": 2, "horizon_frames": 12, "vae": False}


@pytest.fixture
def lanes():
    lanes = Lanes(1)
    yield lanes
    lanes.close()


def opened(lanes, lies=None):
    world = LoadWorld(OPTIONS)
    engine = Engine.open(
        world, 3, Arena.create(arena_capacity(world.state_bytes_max), "readings"), SystemClock(), lanes
    )
    if not engine.survey(Wish(Read.NOTHING, withdraw=False)).digests or engine.arena.watch() is None:
        pytest.skip("this system has no asynchronous write protection (Linux 6.7)")
    engine.let_go_on()
    if lies is not None:
        lies(engine)
    return engine


def surveyed(engine, number):
    """A survey after one more block, of an engine that has been surveyed before; and the truth."""
    first = engine.survey(Wish(Read.NOTHING, withdraw=False))
    engine.keep_quiet(first.manifest)
    engine.step(number, 1, witness=False)
    survey = engine.finish(engine.survey(COMPARE))
    return survey, engine.cut()


def test_what_a_watched_boundary_knows_is_what_reading_everything_finds(lanes):
    engine = opened(lanes)
    for number in range(1, 5):
        survey, cut = surveyed(engine, number)
        assert survey.digests == cut.digests
        assert survey.root == cut.root
    engine.close()


def test_leaves_that_nobody_wrote_are_known_without_being_read(lanes):
    engine = opened(lanes)
    first = engine.survey(Wish(Read.NOTHING, withdraw=False))
    engine.keep_quiet(first.manifest)
    engine.step(1, 1, witness=False)
    survey = engine.survey(Wish(Read.DOUBTFUL, withdraw=False))
    known = sum(digest is not None for digest in survey.digests)
    assert 1 < known < len(survey.digests)
    engine.close()


def declares_all_static(engine):
    engine._rules = (Rule("*", Kind.CACHE, Static()),)


def announces_too_early(engine):
    live = engine._world_now
    write = live._write_layer

    def announce_then_write(i, pen):
        for tensor in live._tree["kv_cache1"][i].values():
            live.written(tensor)
        write(i, pen)

    live._write_layer = announce_then_write


@pytest.mark.parametrize("lies", [declares_all_static, announces_too_early])
def test_a_world_that_lies_about_its_writes_is_not_believed(lanes, lies):
    engine = opened(lanes, lies)
    for number in range(1, 5):
        survey, cut = surveyed(engine, number)
        assert survey.digests == cut.digests
    engine.close()


def test_a_write_after_the_frozen_survey_changes_nothing_and_a_thaw_brings_the_memory_back(lanes):
    engine = opened(lanes)
    engine.step(1, 1, witness=False)
    cut = engine.cut()
    survey = engine.survey(Wish(Read.NOTHING, withdraw=True))
    engine._world_now._tree["kv_cache1"][0]["k"].fill_(1)
    assert engine.finish(survey).root == cut.root
    engine.arena.give_back()
    assert engine.cut().root == cut.root
    engine.close()
