import gc
import threading
from dataclasses import replace
from weakref import ref

import pytest

from worldline.schema.inventory import Free, Kind
from worldline.schema.layout import Layout, Segment
from worldline.schema.remembered import remembered

LAYOUT = Layout((Segment("meta", 40, Kind.AUX, Free()),), (), 65_536)


def a_counting():
    asked = []

    @remembered
    def count(layout):
        asked.append(None)  # not the layout: it is to go
        return len(asked)

    return count, asked


def test_the_same_object_is_asked_about_once_and_an_equal_one_again():
    count, asked = a_counting()
    assert [count(LAYOUT), count(LAYOUT), count(replace(LAYOUT))] == [1, 1, 2]
    assert len(asked) == 2


def test_a_host_of_many_sessions_finds_each_one_s_again():
    count, asked = a_counting()
    layouts = [replace(LAYOUT) for _ in range(100)]
    for _ in range(2):
        assert [count(layout) for layout in layouts] == list(range(1, 101))
    assert len(asked) == 100


def test_another_layout_in_the_place_of_one_that_is_gone_is_asked_about_itself():
    count, _ = a_counting()
    places, made = set(), []
    for _ in range(200):
        layout = replace(LAYOUT)
        places.add(id(layout))
        made.append(count(layout))
        del layout
    assert len(places) < 200
    assert made == list(range(1, 201))


def test_what_was_refused_is_refused_again():
    @remembered
    def refuse(layout):
        raise ValueError(layout.leaf_bytes)

    for _ in range(2):
        with pytest.raises(ValueError, match="65536"):
            refuse(LAYOUT)


def test_a_layout_is_not_kept_for_being_remembered_and_what_was_made_of_it_goes_with_it():
    class Made:
        pass

    @remembered
    def make(layout):
        return Made()

    layout = replace(LAYOUT)
    gone, made = ref(layout), ref(make(layout))
    gc.collect()
    assert made() is not None
    del layout
    gc.collect()
    assert gone() is None
    assert made() is None


def test_several_threads_may_ask_at_once():
    @remembered
    def leaf_bytes(layout):
        return layout.leaf_bytes

    shared = [replace(LAYOUT, leaf_bytes=size) for size in range(8)]
    wrong = []

    def ask():
        try:
            for at in range(2000):
                asked = (shared[at % 8], replace(LAYOUT, leaf_bytes=at))
                wrong.extend(layout for layout in asked if leaf_bytes(layout) != layout.leaf_bytes)
        except Exception as error:  # noqa: BLE001 - told after the threads have ended
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
