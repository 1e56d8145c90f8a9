"""The page as people use it, against real processes in a real browser."""

import json
import re

import pytest
from playwright.sync_api import WebSocketRoute, expect

from e2e.visitor import LOAD_OPTIONS, PATIENCE_MS, Visitor
from worldline.runtime.fleet import Fleet
from worldline.service.client import Client

AHEAD_MAX = 2
"""Of pace.js: actions that may be unanswered."""


def assert_unbroken(visitor: Visitor) -> None:
    """Every block was shown once and in order, and applied the action of its own number."""
    blocks = visitor.blocks
    first = blocks[0]["block"]
    assert [shown["block"] for shown in blocks] == list(range(first, first + len(blocks)))
    assert all(shown["number"] == shown["block"] for shown in blocks)
    epochs = [shown["epoch"] for shown in blocks]
    assert epochs == sorted(epochs)


def see_twin_equal(visitor: Visitor) -> None:
    """The twin is equal now and for some blocks to come."""
    verdict = visitor.stage.locator(".verdict", has_text="equal for")
    expect(verdict).to_be_visible(timeout=PATIENCE_MS)
    before = verdict.inner_text()
    visitor.see_more_blocks(3)
    expect(verdict).to_have_text(re.compile(r"^equal for [\d\u2009]+ blocks$"), timeout=PATIENCE_MS)
    expect(verdict).not_to_have_text(before, timeout=PATIENCE_MS)


def test_a_visitor_starts_a_world_and_walks_through_it_with_the_keys(visitor: Visitor) -> None:
    visitor.start()
    visitor.stage.get_by_text("run on by itself").click()
    still = visitor.last_block
    before = visitor.picture()
    visitor.page.keyboard.down("ArrowUp")
    visitor.see_block(still + 6)
    visitor.page.keyboard.up("ArrowUp")
    assert visitor.picture() != before
    assert_unbroken(visitor)
    see_frames = visitor.stage.get_by_text(re.compile(r"block [\d\u2009]+ · frame [\d\u2009]+")).first
    expect(see_frames).to_be_visible()


def test_without_a_key_and_without_running_on_the_world_stands_still(visitor: Visitor) -> None:
    visitor.start(twin=False)
    visitor.stage.get_by_text("run on by itself").click()
    visitor.wait_until("id => window.worldline.players.get(id).pace.unanswered === 0", visitor.session)
    still = visitor.last_block
    for _ in range(3):
        visitor.stage.get_by_role("button", name="left").click()
    visitor.see_block(still + 3)
    visitor.wait_until("id => window.worldline.players.get(id).pace.unanswered === 0", visitor.session)
    assert visitor.last_block == still + 3


def test_a_tile_dragged_while_walking_moves_the_world_without_a_gap(visitor: Visitor) -> None:
    visitor.start()
    visitor.page.keyboard.down("d")
    visitor.see_more_blocks(3)
    target = visitor.another_host()
    visitor.drag(visitor.lane(target))
    visitor.see_tile_in(visitor.lane(target))
    visitor.see_more_blocks(5)
    visitor.page.keyboard.up("d")
    assert_unbroken(visitor)
    assert {shown["epoch"] for shown in visitor.blocks} == {1, 2}
    receipt = visitor.page.locator("aside > .journal .receipt").first
    expect(receipt.get_by_role("img", name="equal")).to_be_visible()
    expect(visitor.stage.locator("[data-gauge=freeze] output")).to_have_text(re.compile(r"[\d.]+ m?s"))
    see_twin_equal(visitor)
    with visitor.page.expect_download() as download:
        receipt.get_by_role("link", name="Download the receipt").click()
    facts = json.loads(download.value.path().read_text())
    assert facts["session"] == visitor.session
    assert facts["target"] == target
    assert facts["source_root"] == facts["target_root"]


def test_the_menu_moves_as_the_drag_does_by_handing_memory_over(visitor: Visitor) -> None:
    visitor.start()
    target = visitor.another_host()
    visitor.stage.get_by_text("shared memory").click()
    visitor.choose_in_menu(f"Move to {target}")
    visitor.see_tile_in(visitor.lane(target))
    visitor.see_more_blocks(5)
    assert_unbroken(visitor)
    see_twin_equal(visitor)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("flip a byte", "CORRUPT"),
        ("cut the link", "LINK_CUT"),
        ("kill the target", "HOST_GONE|LINK_CUT"),
        ("lie about success", "CORRUPT"),
        ("write late", "CORRUPT"),
    ],
)
def test_a_planted_fault_is_refused_in_words_and_the_world_goes_on_at_its_source(
    visitor: Visitor, fleet: Fleet, fault: str, code: str
) -> None:
    visitor.start()
    source, target = visitor.host, visitor.another_host()
    fleet.wait_alive(target)
    visitor.stage.get_by_text(fault).click()
    visitor.stage.get_by_role("button", name=f"Move to {target}").click()
    expect(visitor.alert).to_contain_text(re.compile(code), timeout=PATIENCE_MS)
    expect(visitor.alert).to_contain_text(f"The world goes on at {source}.")
    visitor.see_tile_in(visitor.lane(source))
    visitor.see_more_blocks(5)
    assert_unbroken(visitor)
    assert {shown["epoch"] for shown in visitor.blocks} == {1}
    see_twin_equal(visitor)


def test_a_fault_is_planted_once_and_the_next_move_is_honest(visitor: Visitor) -> None:
    visitor.start(twin=False)
    target = visitor.another_host()
    visitor.stage.get_by_text("cut the link").click()
    visitor.stage.get_by_role("button", name=f"Move to {target}").click()
    expect(visitor.alert).to_be_visible(timeout=PATIENCE_MS)
    visitor.stage.get_by_role("button", name=f"Move to {target}").click()
    visitor.see_tile_in(visitor.lane(target))
    expect(visitor.alert).to_be_hidden()
    visitor.see_more_blocks(3)
    assert_unbroken(visitor)


def test_a_parked_world_lies_on_the_shelf_and_goes_on_where_it_stopped(visitor: Visitor) -> None:
    visitor.start()
    visitor.see_more_blocks(3)
    visitor.choose_in_menu("Park")
    visitor.see_tile_in(visitor.shelf)
    parked_at = visitor.last_block
    target = visitor.another_host()
    visitor.choose_in_menu(f"Resume on {target}")
    visitor.see_tile_in(visitor.lane(target))
    visitor.see_block(parked_at + 5)
    assert_unbroken(visitor)
    see_twin_equal(visitor)


def test_a_flipped_bit_of_live_state_is_seen_at_the_twin(visitor: Visitor) -> None:
    visitor.start()
    see_twin_equal(visitor)
    answer = visitor.page.request.post(
        f"{visitor.url}/v1/sessions/{visitor.session}/sabotage",
        data={"bit": 4321},
        headers={"Idempotency-Key": f"flip-{visitor.session}"},
    )
    assert answer.ok, answer.text()
    differs = visitor.stage.locator(".verdict", has_text="differs first in block")
    expect(differs).to_be_visible(timeout=PATIENCE_MS)


def test_a_world_whose_host_died_is_told_as_lost_and_why(visitor: Visitor, fleet: Fleet) -> None:
    visitor.start(twin=False)
    host = visitor.host
    picture = visitor.picture()
    fleet.kill(host)
    visitor.see_tile_in(visitor.shelf)
    expect(visitor.stage).to_contain_text(f"host {host} ended")
    assert visitor.picture() != blank(visitor)
    assert picture != blank(visitor)
    fleet.wait_alive(host)


def blank(visitor: Visitor) -> str:
    """What an empty picture of the same size would be."""
    pixels: str = visitor.stage.locator("canvas").first.evaluate(
        """canvas => {
            const other = document.createElement("canvas");
            [other.width, other.height] = [canvas.width, canvas.height];
            return other.toDataURL();
        }"""
    )
    return pixels


def test_a_tile_dropped_on_the_shelf_is_parked(visitor: Visitor) -> None:
    visitor.start(twin=False)
    visitor.drag(visitor.shelf)
    visitor.see_tile_in(visitor.shelf)
    expect(visitor.stage.get_by_role("button", name="Resume on a")).to_be_enabled()


def test_a_gateway_that_was_killed_comes_back_and_play_goes_on_by_number(visitor: Visitor, fleet: Fleet) -> None:
    visitor.start()
    visitor.see_more_blocks(3)
    fleet.kill("gateway")
    visitor.wait_until("id => !window.worldline.players.get(id).connected", visitor.session)
    visitor.wait_until("id => window.worldline.players.get(id).connected", visitor.session)
    visitor.see_more_blocks(5)
    shown = [block["block"] for block in visitor.blocks]
    missed = visitor.page.evaluate("id => window.worldline.players.get(id).missed", visitor.session)
    told = [block for first, last in missed for block in range(first, last + 1)]
    assert sorted({*shown, *told}) == list(range(shown[0], shown[-1] + 1))
    assert shown == sorted(set(shown))
    see_twin_equal(visitor)


def test_play_goes_on_where_the_blocks_of_all_unanswered_actions_went_with_the_gateway(
    visitor: Visitor, fleet: Fleet
) -> None:
    swallowed: list[bytes] = []
    swallow = False

    def between(page_side: WebSocketRoute) -> None:
        def from_gateway(message: str | bytes) -> None:
            if swallow and isinstance(message, bytes):
                swallowed.append(message)
            else:
                page_side.send(message)

        page_side.connect_to_server().on_message(from_gateway)

    visitor.page.route_web_socket(re.compile("/play"), between)
    visitor.come()  # only sockets opened from now on are seen
    visitor.start(twin=False)
    visitor.see_more_blocks(2)
    swallow = True
    visitor.wait_for(lambda: len(swallowed) >= AHEAD_MAX, "the page waits for blocks that nobody keeps")
    fleet.kill("gateway")
    visitor.wait_until("id => !window.worldline.players.get(id).connected", visitor.session)
    swallow = False
    visitor.wait_until("id => window.worldline.players.get(id).connected", visitor.session)
    visitor.see_more_blocks(5)


def test_a_wrong_option_is_refused_in_the_dialog_and_nothing_starts(visitor: Visitor) -> None:
    before = visitor.page.evaluate("window.worldline.state.players().length")
    visitor.ask_for("load", {"colour": "blue"})
    expect(visitor.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("BAD_VALUE", timeout=PATIENCE_MS)
    assert visitor.page.evaluate("window.worldline.state.players().length") == before


def test_a_seed_that_is_no_number_is_told_before_anything_is_asked(visitor: Visitor) -> None:
    visitor.ask_for("load", LOAD_OPTIONS, seed="")
    expect(visitor.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("whole number")


def test_to_look_at_a_world_is_not_to_play_it(visitor: Visitor, fleet: Fleet) -> None:
    with Client(fleet.url) as client:
        visitor.session = client.open("load", options=LOAD_OPTIONS).id
    visitor.started.append(visitor.session)
    visitor.wait_until("id => window.worldline.players.get(id)?.connected", visitor.session)
    visitor.wait_until("id => window.worldline.state.focus?.id === id", visitor.session)
    expect(visitor.stage.get_by_role("checkbox", name="run on by itself")).not_to_be_checked()
    visitor.page.keyboard.press("ArrowUp")
    visitor.see_block(1)
    visitor.wait_until("id => window.worldline.players.get(id).pace.unanswered === 0", visitor.session)
    assert visitor.last_block == 1


def test_a_second_page_takes_over_without_a_word_of_trouble_and_so_does_the_first_again(visitor: Visitor) -> None:
    visitor.start(twin=False)
    second = Visitor(visitor.page.context.new_page(), f"{visitor.url}/#{visitor.session}")
    second.session = visitor.session
    second.come()
    second.stage.get_by_text("run on by itself").click()
    second.see_block(1)
    for person in (visitor, second):
        person.page.evaluate(
            """id => {
                const player = window.worldline.players.get(id);
                window.troubles = [];
                player.addEventListener("change", () => player.trouble && window.troubles.push(player.trouble.code));
            }""",
            visitor.session,
        )
    for drives, watches in [(second, visitor), (visitor, second)] * 2:
        expect(watches.stage.get_by_text("Another page walks here")).to_be_visible(timeout=PATIENCE_MS)
        drives.see_more_blocks(2)
        for key in ("ArrowUp", "ArrowLeft"):
            watches.page.keyboard.press(key)
    assert [person.page.evaluate("window.troubles") for person in (visitor, second)] == [[], []]
    second.page.close()


def test_a_closed_world_leaves_the_page(visitor: Visitor) -> None:
    visitor.start()
    visitor.choose_in_menu("Close")
    expect(visitor.tile).to_have_count(0)
    visitor.started.clear()


def test_nothing_is_wider_than_a_phone(visitor: Visitor) -> None:
    visitor.start()
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 390
    expect(visitor.stage.get_by_role("button", name="forward")).to_be_visible()


def test_a_drained_host_is_marked_and_who_was_put_to_sleep_wakes_at_a_key(visitor: Visitor, fleet: Fleet) -> None:
    visitor.start(twin=False)
    visitor.stage.get_by_text("run on by itself").click()
    home = visitor.page.locator(".lane", has=visitor.page.locator(f'[data-session="{visitor.session}"]'))
    name = home.get_attribute("data-host")
    home.get_by_role("button", name="Drain").click()
    lane = visitor.page.locator(f'.lane[data-host="{name}"]')
    expect(lane.get_by_text("cordoned")).to_be_visible(timeout=PATIENCE_MS)
    expect(visitor.page.locator(".operation", has_text=f"drain {name}")).to_contain_text("done", timeout=PATIENCE_MS)
    lane.get_by_role("button", name="Uncordon").click()
    expect(lane.get_by_text("cordoned")).to_be_hidden(timeout=PATIENCE_MS)
    still = visitor.last_block
    with Client(fleet.url) as client:
        client.operate("consolidate", idle_s=0.0, warm_slots=0)
        expect(visitor.stage.get_by_text("press a key to go on")).to_be_visible(timeout=PATIENCE_MS)
        visitor.page.keyboard.down("ArrowUp")
        visitor.see_block(still + 3)
        visitor.page.keyboard.up("ArrowUp")
        assert_unbroken(visitor)
        for host in client.hosts():
            client.uncordon(host.id)
