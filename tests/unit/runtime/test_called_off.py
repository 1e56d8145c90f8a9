"""A move that is called off while its cut is being taken: the session plays on in its own memory.

1 the engine's thread takes the cut  2 the loop calls the move off and lets the session go  3 the cut withdraws the
arena  4 the next block is made.
"""

from worldline.clock import SystemClock
from worldline.runtime.host_engine import Engine, Read, Wish
from worldline.snapshot.arena import Arena
from worldline.snapshot.memory import arena_capacity
from worldline.testing.tiny import TinyWorld


def an_engine():
    world = TinyWorld({})
    return Engine.open(world, 7, Arena.create(arena_capacity(world.state_bytes_max), "x"), SystemClock())


def test_the_next_block_and_the_next_cut_are_those_of_a_session_that_was_never_cut():
    cut, twin = an_engine(), an_engine()
    for number in (1, 2, 3):
        assert cut.step(number, number, False).shown.digest == twin.step(number, number, False).shown.digest
        cut.survey(Wish(Read.ALL, withdraw=True, rows=False))
        assert cut.arena.withdrawn
    assert cut.step(4, 1, False).shown.digest == twin.step(4, 1, False).shown.digest
    cut.survey(Wish(Read.ALL, withdraw=True, rows=False))
    assert cut.cut().root == twin.cut().root
    cut.close()
    twin.close()
