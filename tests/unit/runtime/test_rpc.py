"""The RPC between processes of a fleet, over real sockets."""

import asyncio
import contextlib
import logging
import os
import struct
from pathlib import Path

import msgspec
import pytest

from worldline.errors import (
    BadValue,
    ControllerGone,
    HostGone,
    Internal,
    Malformed,
    NoCapacity,
    TimedOut,
    Unavailable,
)
from worldline.runtime import rpc


class Add(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    left: int
    right: int


class Fail(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    how: str


class Tick(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    n: int
    payload: bytes = b""


async def until(claim):
    """Returns when `claim()` holds; the test's own time limit ends it otherwise."""
    while not claim():  # noqa: ASYNC110 - what is waited for is a count of the system's, which tells nobody
        await asyncio.sleep(0.005)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


GONE = ControllerGone("the server is gone")


class Echo:
    """A server that adds, fails as asked, and answers a tick with two."""

    def __init__(self):
        self.ticks = []
        self.closed = []
        self.hold = asyncio.Event()

    async def on_message(self, peer, message):
        match message:
            case Add():
                return message.left + message.right
            case Fail(how="typed"):
                raise NoCapacity("too little memory", needed_bytes=7)
            case Fail(how="hold"):
                await self.hold.wait()
                return 1
            case Fail():
                raise RuntimeError("a bug")
            case Tick():
                self.ticks.append(message.n)
                peer.notify(Tick(message.n + 1))
                return None

    async def on_closed(self, peer):
        self.closed.append(peer)


@pytest.fixture
async def echo(tmp_path):
    handler = Echo()
    server = await rpc.serve(tmp_path / "run" / "s.sock", Add | Fail | Tick, handler.on_message, handler.on_closed)
    handler.server = server
    yield handler
    await server.close()


@contextlib.asynccontextmanager
async def connected(echo, on_message=None, accepts=Tick):
    peer = await rpc.connect(echo.server.path, accepts, on_message, GONE)
    try:
        yield peer
    finally:
        await peer.close()


async def test_a_request_is_answered(echo):
    async with connected(echo) as peer:
        assert await peer.call(Add(2, 3), int, 5) == 5


async def test_many_requests_at_once_each_get_their_own_answer(echo):
    async with connected(echo) as peer:
        answers = await asyncio.gather(*(peer.call(Add(n, n), int, 10) for n in range(600)))
    assert answers == [2 * n for n in range(600)]


async def test_a_slow_request_does_not_hold_up_the_next(echo):
    async with connected(echo) as peer:
        slow = asyncio.create_task(peer.call(Fail("hold"), int, 10))
        assert await peer.call(Add(1, 1), int, 5) == 2
        echo.hold.set()
        assert await slow == 1


async def test_an_error_arrives_as_the_class_that_was_raised_with_its_facts(echo):
    async with connected(echo) as peer:
        with pytest.raises(NoCapacity, match="too little memory") as caught:
            await peer.call(Fail("typed"), None, 5)
    assert caught.value.facts == {"needed_bytes": 7}


async def test_a_bug_in_a_handler_is_answered_as_internal_and_logged_with_its_traceback(echo, caplog):
    async with connected(echo) as peer:
        with caplog.at_level(logging.ERROR), pytest.raises(Internal, match="a bug"):
            await peer.call(Fail("untyped"), None, 5)
        assert await peer.call(Add(1, 1), int, 5) == 2
    assert "RuntimeError: a bug" in caplog.text


async def test_notices_are_handled_in_order_on_both_sides(echo):
    got = []
    last = asyncio.Event()

    async def on_message(_, tick):
        await asyncio.sleep(0)
        got.append(tick.n)
        if tick.n == 200:
            last.set()

    async with connected(echo, on_message) as peer:
        for n in range(200):
            peer.notify(Tick(n))
        await asyncio.wait_for(last.wait(), 10)
    assert echo.ticks == list(range(200))
    assert got == list(range(1, 201))


async def test_a_call_from_the_handler_of_a_notice_to_its_own_peer_is_refused_instead_of_waiting_for_ever(echo):
    outcome = asyncio.get_running_loop().create_future()

    async def on_message(peer, _):
        try:
            await peer.call(Add(1, 1), int, 5)
        except Internal as error:
            outcome.set_result(error)

    async with connected(echo, on_message) as peer:
        peer.notify(Tick(1))
        assert "wait for ever" in str(await asyncio.wait_for(outcome, 5))


async def test_a_call_without_an_answer_in_time_is_timed_out_and_its_late_answer_dropped(echo):
    async with connected(echo) as peer:
        with pytest.raises(TimedOut):
            await peer.call(Fail("hold"), int, 0.01)
        echo.hold.set()
        assert await peer.call(Add(1, 1), int, 5) == 2


async def test_calls_in_flight_fail_with_the_error_of_the_connection_when_the_server_ends(echo):
    async with connected(echo) as peer:
        call = asyncio.create_task(peer.call(Fail("hold"), int, None))
        assert await peer.call(Add(1, 1), int, 5) == 2
        await echo.server.close()
        with pytest.raises(ControllerGone):
            await call
        with pytest.raises(ControllerGone):
            await peer.call(Add(1, 1), int, 5)
        with pytest.raises(ControllerGone):
            peer.notify(Tick(1))


async def test_a_handler_goes_on_when_its_caller_is_gone_and_the_close_is_told_at_once(echo):
    async with connected(echo) as peer:
        call = asyncio.create_task(peer.call(Fail("hold"), int, None))
        assert await peer.call(Add(1, 1), int, 5) == 2
    with pytest.raises(ControllerGone):
        await call
    await until(lambda: echo.closed)
    assert not echo.server.peers
    echo.hold.set()
    async with connected(echo) as peer:
        assert await peer.call(Add(1, 1), int, 5) == 2


async def test_nobody_listening_raises_the_error_given(tmp_path):
    with pytest.raises(HostGone):
        await rpc.connect(tmp_path / "none.sock", Tick, None, HostGone("host a is gone"))


async def test_a_request_that_is_not_expected_is_answered_as_malformed_and_the_connection_lives(echo):
    async with connected(echo) as peer:
        with pytest.raises(Malformed):
            await peer.call({"type": "Nonsense"}, None, 5)
        assert await peer.call(Add(1, 1), int, 5) == 2


async def test_an_answer_of_another_type_is_malformed(echo):
    async with connected(echo) as peer:
        with pytest.raises(Malformed):
            await peer.call(Add(1, 1), str, 5)


@pytest.mark.parametrize(
    "rubbish",
    [
        struct.pack("<IBQ", 2**32 - 1, 1, 1),
        struct.pack("<IBQ", 1, 9, 1) + b"x",
        struct.pack("<IBQ", 1, 4, 0) + b"\xc1",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["too long", "unknown kind", "undecodable notice", "another protocol"],
)
async def test_a_peer_that_breaks_the_framing_is_disconnected_and_others_play_on(echo, rubbish):
    async with connected(echo) as bystander:
        reader, writer = await asyncio.open_unix_connection(str(echo.server.path))
        writer.write(rubbish)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await writer.wait_closed()
        assert await bystander.call(Add(1, 1), int, 5) == 2


async def test_a_peer_that_does_not_read_is_disconnected_and_never_skipped_over(echo):
    hold = asyncio.Event()

    async def on_message(*_):
        await hold.wait()

    async with connected(echo, on_message) as peer:
        assert await peer.call(Add(1, 1), int, 5) == 2
        (slow,) = echo.server.peers
        with pytest.raises(Unavailable):
            for n in range(256):
                slow.notify(Tick(n, bytes(1024 * 1024)))
        assert slow.closed
        hold.set()


async def test_drain_waits_until_the_other_side_has_read(echo):
    got = 0

    async def on_message(_, tick):
        nonlocal got
        got += len(tick.payload)

    async with connected(echo, on_message) as peer:
        assert await peer.call(Add(1, 1), int, 5) == 2
        (server_side,) = echo.server.peers
        for n in range(300):
            server_side.notify(Tick(n, bytes(1024 * 1024)))
            await server_side.drain()
        assert await peer.call(Add(1, 1), int, 5) == 2
    assert got == 300 * 1024 * 1024


async def test_the_socket_is_for_this_user_alone(echo):
    assert echo.server.path.stat().st_mode & 0o777 == 0o600
    assert echo.server.path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_directory_that_others_may_enter_is_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(BadValue, match="0700"):
        await rpc.serve(tmp_path / "open" / "s.sock", Add, None)


async def test_a_second_server_at_one_path_is_refused_and_the_first_is_unharmed(echo):
    with pytest.raises(BadValue, match="another process"):
        await rpc.serve(echo.server.path, Add, echo.on_message)
    async with connected(echo) as peer:
        assert await peer.call(Add(1, 1), int, 5) == 2


async def test_a_stale_socket_file_is_replaced_and_another_file_is_not(tmp_path):
    path = tmp_path / "run" / "s.sock"
    handler = Echo()
    path.parent.mkdir(mode=0o700)
    first = await asyncio.start_unix_server(lambda *_: None, path=str(path))
    first.close()
    await first.wait_closed()
    if not path.exists():  # from Python 3.13 on asyncio removes it itself
        os.mknod(path, 0o140600)
    server = await rpc.serve(path, Add, handler.on_message)
    await server.close()
    path.write_text("precious")
    with pytest.raises(BadValue):
        await rpc.serve(path, Add, handler.on_message)
    assert path.read_text() == "precious"


async def test_a_path_too_long_for_a_socket_is_refused(tmp_path):
    with pytest.raises(BadValue, match="too long"):
        await rpc.serve(tmp_path / ("x" * 100) / "s.sock", Add, None)


async def test_a_reconnecting_peer_finds_a_restarted_server_and_subscribes_again(tmp_path):
    path = tmp_path / "run" / "s.sock"
    handler = Echo()
    greeted = []

    async def greet(peer):
        greeted.append(await peer.call(Add(1, 1), int, 5))

    client = rpc.Reconnecting(path, Tick, None, GONE, greet)
    with pytest.raises(ControllerGone):
        await client.call(Add(1, 1), int, 5)
    for _ in range(2):
        server = await rpc.serve(path, Add | Fail | Tick, handler.on_message)
        await client.ready(10)
        assert await client.call(Add(2, 3), int, 5) == 5
        await server.close()
    await until(lambda: not client.connected)
    with pytest.raises(ControllerGone):
        await client.ready(0.01)
    await client.close()
    assert greeted == [2, 2]


async def test_a_server_leaves_nothing_behind_after_many_connections(echo):
    before = (open_files(), len(asyncio.all_tasks()))
    for n in range(50):
        async with connected(echo) as peer:
            assert await peer.call(Add(n, 1), int, 5) == n + 1
    await until(lambda: (open_files(), len(asyncio.all_tasks())) == before)
    assert len(echo.closed) == 50
