"""What is not read again at a boundary is what it is taken to be, whatever the world declares or announces."""

import threading

import pytest

from worldline.clock import SystemClock
from worldline.runtime.host_engine import Engine, Read, Wish
from worldline.runtime.host_readings import Readings
from worldline.schema.inventory import Kind, Rule, Static
from worldline.schema.layout import LEAF_BYTES_MIN, Extent, Layout, Manifest, Placement, Segment
from worldline.snapshot.arena import PAGE_BYTES, Arena
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


class Unreadable:
    """Memory that whoever reads it waits for."""

    def __init__(self):
        self.come = threading.Event()

    def bytes_at(self, extent):
        self.come.wait()
        return memoryview(bytes(extent.nbytes))


def test_what_was_read_before_is_forgotten_where_the_lanes_have_no_room_for_what_is_announced():
    lanes, unreadable = Lanes(1, jobs_max=1), Unreadable()
    engine = opened(lanes, declares_all_static)
    first = engine.survey(Wish(Read.NOTHING, withdraw=False))
    engine.keep_quiet(first.manifest)
    while lanes.queued_bytes:
        pass
    lanes.submit(unreadable, [Extent(0, 1)])
    engine.step(1, 1, witness=False)
    unreadable.come.set()
    survey = engine.finish(engine.survey(COMPARE))
    assert survey.digests == engine.cut().digests
    engine.close()
    lanes.close()


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


def test_a_leaf_that_shares_a_page_with_an_announced_one_is_not_taken_to_be_unwritten(lanes):
    half = PAGE_BYTES // 2
    segments = tuple(Segment(name, half, Kind.CACHE, Static()) for name in "ab")
    places = tuple(Placement(offset, half, resident=True) for offset in (0, half))
    manifest = Manifest(Layout(segments, (), LEAF_BYTES_MIN), places, block=1)
    with Arena.create(PAGE_BYTES, "neighbours") as arena:
        readings = Readings(arena, lanes)
        if not readings.watch():
            pytest.skip("this system has no asynchronous write protection (Linux 6.7)")
        readings.take(manifest)
        readings.keep_quiet(manifest)
        readings.settle()
        arena.bytes_at(Extent(0, 1))[0] = 1
        readings.announce(Extent(half, half))
        readings.end_block()
        readings.settle()
        first, second = readings.take(manifest)
        assert first is None and second is not None
