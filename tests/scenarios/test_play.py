"""The play WebSocket: blocks in order over moves, hostile input, several connections, and play without a controller."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from worldline.errors import ControllerGone, SessionParked
from worldline.schema.contract import Contract
from worldline.service.client import Client
from worldline.service.octets import LEFT_OUT, SENT_AGAIN, read_block, write_ack, write_action

TINY = "worldline.testing.tiny:TinyWorld"
ROOMY = Contract(pause_bound_s=20.0, completion_deadline_s=60.0)
WAIT_S = 60


class Player:
    """A connection that keeps what it was told."""

    def __init__(self, fleet, session, query=""):
        url = f"{fleet.url.replace('http', 'ws')}/v1/sessions/{session}/play{query}"
        self._connecting = connect(url, compression=None, proxy=None)
        self.blocks, self.payloads, self.told = [], [], []

    def __enter__(self):
        self.socket = self._connecting.__enter__()
        return self

    def __exit__(self, *error):
        self._connecting.__exit__(*error)

    def hear(self):
        """One message; blocks are kept apart from texts."""
        message = self.socket.recv(timeout=WAIT_S)
        if isinstance(message, bytes):
            header, payload = read_block(message)
            self.blocks.append(header)
            self.payloads.append(payload)
            return header
        self.told.append(json.loads(message))
        return self.told[-1]

    def until(self, kind):
        while not (isinstance(told := self.hear(), dict) and told["kind"] == kind):
            pass
        return told

    def until_block(self, number):
        while not self.blocks or self.blocks[-1].block < number:
            self.hear()
        return self.blocks[-1]

    def act(self, number, action=1):
        self.socket.send(write_action(number, action))

    def play(self, blocks):
        """So many more blocks, one action at a time."""
        first = self.blocks[-1].block if self.blocks else 0
        for number in range(first + 1, first + blocks + 1):
            self.act(number)
            self.until_block(number)

    def close_code(self):
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.hear()
        return self.socket.close_code


def open_tiny(client, **wishes):
    return client.open(TINY, seed=7, **({"host": "a", "contract": ROOMY} | wishes))


def test_blocks_come_in_order_each_with_its_action_over_a_move_while_playing(fleet, client):
    session = open_tiny(client, twin=True)
    targets = [host for host in ("a", "b", "c") if host not in {"a", client.describe(f"{session.id}-twin").host}]
    with Player(fleet, session.id) as player:
        assert player.until("ready")["expected"] == 1
        mover = threading.Thread(target=lambda: [session.move(host) for host in (*targets, "a")])
        player.play(10)
        mover.start()
        while mover.is_alive():
            player.play(1)
        mover.join()
        player.play(5)
        while (verdict := player.until("twin"))["blocks"] < player.blocks[-1].block:
            pass
    assert [(b.block, b.number) for b in player.blocks] == [(n, n) for n in range(1, len(player.blocks) + 1)]
    assert [b.frame for b in player.blocks] == [3 * n for n in range(len(player.blocks))]
    assert [b.epoch for b in player.blocks] == sorted(b.epoch for b in player.blocks)
    assert {b.epoch for b in player.blocks} == {1, 2, 3}
    assert verdict["equal"]
    assert (verdict["differs"], verdict["unwitnessed"], verdict["skipped"]) == (None, 0, 0)
    gaps = [told for told in player.told if told["kind"] == "gap"]
    assert [(gap["source"], gap["target"], gap["epoch"]) for gap in gaps] == [
        ("a", targets[0], 2),
        (targets[0], "a", 3),
    ]
    assert all(payload for payload in player.payloads)


def test_a_twin_tells_of_the_first_block_after_a_flipped_bit(fleet, client):
    session = open_tiny(client, twin=True)
    with Player(fleet, session.id) as player:
        player.play(3)
        session.sabotage(4321)
        player.play(2)
        while player.until("twin")["equal"]:
            pass
    verdict = player.told[-1]
    assert (verdict["differs"], verdict["state_differs"], verdict["blocks"]) == (4, True, 3)


# ---- hostile input


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("hello", 1003),
        ('{"number": 1}', 1003),
        (b"", 1007),
        (b"\x01", 1007),
        (write_action(1, 0)[:-1], 1007),
        (write_action(1, 0) + b"x", 1007),
        (b"\x03" + write_action(1, 0)[1:], 1007),
        (b"\x01" + write_ack(1)[1:], 1007),
        (bytes(1000), 1007),
        (bytes(2000), 1009),
        ("x" * 100_000, 1009),
    ],
    ids=range(11),
)
def test_rubbish_is_answered_and_shown_the_door_and_the_session_plays_on(fleet, client, message, code):
    session = open_tiny(client)
    with Player(fleet, session.id) as good, Player(fleet, session.id) as bad:
        good.play(2)
        bad.until("ready")
        bad.socket.send(message)
        assert bad.close_code() == code
        if code != 1009:
            assert [told["code"] for told in bad.told if told["kind"] == "error"] == ["MALFORMED"]
        good.play(2)
    assert [block.block for block in good.blocks] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("number", "action", "code"),
    [(0, 0, "BAD_VALUE"), (2**64 - 1, 0, "BAD_VALUE"), (1, 5, "BAD_VALUE"), (1, -1, "BAD_VALUE"), (3, 0, "ACTION_GAP")],
)
def test_an_action_that_can_not_be_taken_is_told_and_the_connection_stays(fleet, client, number, action, code):
    with Player(fleet, open_tiny(client).id) as player:
        player.act(number, action)
        told = player.until("error")
        assert told["code"] == code
        assert told["facts"]["number"] == number
        player.play(2)


def test_a_repeated_action_is_applied_once(fleet, client):
    with Player(fleet, open_tiny(client).id) as player:
        for number in (1, 1, 2, 1, 2, 3):
            player.act(number)
        player.until_block(3)
        player.act(2, action=4)
        assert player.until("error")["facts"]["expected"] == 4
        player.act(4)
        assert [player.until_block(4).block, len(player.blocks)] == [4, 4]


def test_more_actions_than_may_be_unanswered_are_refused_by_name_and_the_rest_is_applied(fleet, client):
    with Player(fleet, open_tiny(client, options={"block_period_ms": 20}).id) as player:
        for number in range(1, 400):
            player.act(number)
        refused = player.until("error")
        assert refused["code"] == "TIMEOUT"
        expected = refused["facts"]["expected"]
        player.until_block(expected - 1)
    assert [block.block for block in player.blocks] == list(range(1, expected))


@pytest.mark.parametrize(
    ("session", "query", "code"),
    [
        ("s-nobody", "", 4404),
        ("S%20x", "", 4404),
        ("", "?after=x", 4400),
        ("", "?window=0", 4400),
        ("", "?window=1e9", 4400),
    ],
)
def test_what_can_not_be_played_is_told_and_closed_with_its_status(fleet, client, session, query, code):
    with Player(fleet, session or open_tiny(client).id, query) as player:
        assert player.close_code() == code
        assert player.told[0]["kind"] == "error"


def test_a_page_of_another_site_can_not_connect(fleet, client):
    url = f"{fleet.url.replace('http', 'ws')}/v1/sessions/{open_tiny(client).id}/play"
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        with (
            pytest.raises((InvalidStatus, ConnectionClosed)),
            connect(url, additional_headers=headers, proxy=None) as socket,
        ):
            socket.recv(timeout=WAIT_S)


# ---- several connections, windows, reconnects


def test_several_watch_and_the_newest_that_acts_drives(fleet, client):
    session = open_tiny(client)
    with Player(fleet, session.id) as first, Player(fleet, session.id) as second:
        first.play(2)
        second.until_block(2)
        second.act(3)
        first.until_block(3)
        drives = [(told["driving"], told["expected"]) for told in first.told if told["kind"] == "drive"]
        assert drives == [(True, 1), (False, 3)]
        first.act(4)
        assert first.until("error")["code"] == "ACTION_GAP"
        second.until_block(3)
        second.play(1)
        second.socket.close()
        first.until_block(4)
        first.play(1)
    assert [block.block for block in first.blocks] == [1, 2, 3, 4, 5]


def test_a_client_outside_its_window_gets_numbers_without_a_gap_and_the_newest_picture(fleet, client):
    session = open_tiny(client)
    with Player(fleet, session.id, "?window=1") as slow, Player(fleet, session.id) as quick:
        quick.play(12)
        slow.until_block(1)
        time.sleep(0.2)
        slow.socket.send(write_ack(1))
        slow.until_block(11)
        slow.socket.send(write_ack(11))
        slow.until_block(12)
    assert [block.block for block in slow.blocks] == list(range(1, 13))
    flags = [block.flags & LEFT_OUT for block in slow.blocks]
    assert flags == [0] + [LEFT_OUT] * 9 + [0, 0]
    assert [bool(payload) for payload in slow.payloads] == [not flag for flag in flags]


def test_a_player_who_comes_back_gets_the_blocks_in_between(fleet, client):
    session = open_tiny(client)
    with Player(fleet, session.id) as player:
        player.play(4)
    session.step(1, 1, 1)
    with Player(fleet, session.id, "?after=4") as player:
        ready = player.until("ready")
        assert (ready["block"], ready["number"], ready["expected"]) == (7, 7, 8)
        player.until_block(7)
        assert [(block.block, block.flags) for block in player.blocks] == [(n, SENT_AGAIN) for n in (5, 6, 7)]
        player.play(1)


def test_a_session_that_is_closed_closes_its_players(fleet, client):
    session = open_tiny(client)
    with Player(fleet, session.id) as player:
        player.play(1)
        session.close()
        assert player.close_code() == 1000
    with Player(fleet, session.id) as player:
        assert player.close_code() == 4409


def test_a_parked_session_tells_its_player_and_plays_on_after_the_resume(fleet, client):
    session = open_tiny(client)
    with Player(fleet, session.id) as player:
        player.play(2)
        session.park()
        player.act(3)
        assert player.until("error")["code"] == "SESSION_PARKED"
        session.resume("b")
        player.act(3)
        assert (player.until_block(3).host, player.blocks[-1].epoch) == ("b", 3)


def test_a_step_that_came_too_late_for_a_park_is_told_so_and_is_not_applied(fleet, client):
    """1 steps wait for their blocks  2 the session parks  3 those beyond it are refused at once  4 other actions with
    the same numbers play on.
    """
    session = client.open(TINY, seed=5, options={"block_period_ms": 20.0})
    with ThreadPoolExecutor(1) as threads, Client(fleet.url) as other, Player(fleet, session.id) as watcher:
        steps = threads.submit(other.session(session.id).step, *[1] * 64)
        watcher.until_block(2)
        parked = session.park()
        with pytest.raises(SessionParked) as refused:
            steps.result(WAIT_S)
    assert refused.value.facts["number"] > parked.cut_block
    session.resume()
    (block,) = session.step(2, first=parked.cut_block + 1)
    assert (block.block, block.number) == (parked.cut_block + 1, parked.cut_block + 1)
    session.close()


# ---- processes that end


def test_play_goes_on_while_the_controller_is_away_and_verbs_say_so(fleet, client):
    session = open_tiny(client)
    with Player(fleet, session.id) as player:
        player.play(3)
        pid = fleet.pid("controller")
        fleet.kill("controller")
        told = httpx.get(f"{fleet.url}/v1/sessions/{session.id}")
        while told.status_code == 200:  # until the gateway has seen the end
            told = httpx.get(f"{fleet.url}/v1/sessions/{session.id}")
        assert told.json()["error"]["code"] == ControllerGone.code
        player.play(10)
        fleet.wait_alive()
        assert fleet.pid("controller") != pid
        while httpx.get(f"{fleet.url}/readyz").status_code != 200:
            player.play(1)
        session.move("b")
        player.play(2)
    assert [block.block for block in player.blocks] == list(range(1, len(player.blocks) + 1))
    assert player.blocks[-1].host == "b"


def test_events_bring_a_snapshot_and_then_changes(fleet, client):
    with connect(f"{fleet.url.replace('http', 'ws')}/v1/events", proxy=None) as events:
        snapshot = json.loads(events.recv(timeout=WAIT_S))
        assert snapshot["type"] == "Snapshot"
        assert [host["id"] for host in snapshot["hosts"]] == ["a", "b", "c", "d"]
        session = open_tiny(client)
        session.move("b")
        seen = set()
        while not {"SessionChanged", "MoveChanged", "HostChanged"} <= seen:
            seen.add(json.loads(events.recv(timeout=WAIT_S))["type"])
