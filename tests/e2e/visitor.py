"""What a person does on the page and what they see, in their words."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

PATIENCE_MS = 60_000
"""For a busy two-core machine; no test waits this long on a quiet one."""
POLL_MS = 25
PAUSE_BOUND_MS = 20_000
"""So that a busy machine refuses no move which a test wants done."""
LOAD_OPTIONS = {"bytes": "4MB", "block_period_ms": 60}


class Visitor:
    """One person in front of one page. `session` is the one they started last."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.session = ""
        self.started: list[str] = []
        self.page_errors: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.page_errors.append(str(error)))

    def come(self) -> None:
        self.page.goto(self.url)
        self.wait_until("() => window.worldline?.state.connected")

    def leave(self) -> None:
        for session in self.started:
            self.page.request.delete(f"{self.url}/v1/sessions/{session}", headers={"Idempotency-Key": f"end-{session}"})

    def wait_until(self, claim: str, argument: Any = None) -> None:
        """Until the page's own state makes the claim true. Playwright's own wait evaluates strings inside the page,
        which the page's security policy forbids.
        """
        self.wait_for(lambda: self.page.evaluate(claim, argument), f"{claim} with {argument}")

    def wait_for(self, come_true: Callable[[], bool], claim: str) -> None:
        """Until it has come true, while the page goes on."""
        deadline_s = time.monotonic() + PATIENCE_MS / 1000
        while not come_true():
            assert time.monotonic() < deadline_s, f"never came true: {claim}"
            self.page.wait_for_timeout(POLL_MS)

    # ---- what they do

    def ask_for(self, world: str, options: dict[str, Any], seed: str = "1", twin: bool = True) -> None:
        """Fills the dialog in and asks; what comes of it is for the caller to see."""
        self.page.get_by_role("button", name="Start a world").first.click()
        dialog = self.page.get_by_role("dialog")
        dialog.locator(f"input[name=world][value='{world}']").check()
        dialog.get_by_label("Seed").fill(seed)
        dialog.get_by_role("checkbox").set_checked(twin)
        dialog.get_by_text("More", exact=True).click()
        dialog.get_by_label("Pause bound, ms").fill(str(PAUSE_BOUND_MS))
        dialog.get_by_label("Options of the world, as JSON").fill(json.dumps(options))
        dialog.get_by_role("button", name="Start", exact=True).click()

    def start(self, world: str = "load", options: dict[str, Any] = LOAD_OPTIONS, twin: bool = True) -> str:
        known = set(self.page.evaluate("[...window.worldline.state.sessions.keys()]"))
        self.ask_for(world, options, twin=twin)
        expect(self.page.get_by_role("dialog")).to_be_hidden(timeout=PATIENCE_MS)
        self.wait_until("known => !known.includes(window.worldline.state.focus?.id)", sorted(known))
        self.session = self.page.evaluate("window.worldline.state.focus.id")
        self.started.append(self.session)
        self.see_block(1)
        return self.session

    def drag(self, target: Locator, **steps: Any) -> None:
        """Takes the tile and drops it on `target`, as a hand does: down, across, up."""
        handle = self.tile.locator(".grip")
        here, there = box(handle), box(target)
        mouse = self.page.mouse
        mouse.move(here[0], here[1])
        mouse.down()
        mouse.move(here[0] + 20, here[1] + 10, steps=3)
        mouse.move(there[0], there[1], steps=8)
        expect(target).to_have_class(has("over"))
        mouse.up()

    def choose_in_menu(self, words: str) -> None:
        self.tile.get_by_role("button").click()
        self.tile.get_by_role("menuitem", name=words).click()

    # ---- what they see

    @property
    def tile(self) -> Locator:
        return self.page.locator(f".tile[data-session='{self.session}']")

    @property
    def stage(self) -> Locator:
        return self.page.get_by_role("region", name="The session in focus")

    @property
    def alert(self) -> Locator:
        return self.stage.get_by_role("alert")

    def lane(self, host: str) -> Locator:
        return self.page.locator(f".lane[data-host='{host}']")

    @property
    def shelf(self) -> Locator:
        return self.page.locator(".shelf")

    def see_tile_in(self, place: Locator) -> None:
        expect(place.locator(f".tile[data-session='{self.session}']")).to_be_visible(timeout=PATIENCE_MS)

    @property
    def host(self) -> str:
        host: str = self.page.evaluate("id => window.worldline.state.sessions.get(id).host", self.session)
        return host

    def another_host(self) -> str:
        """A host with neither the session nor its twin."""
        taken = self.page.evaluate(
            """id => [...window.worldline.state.sessions.values()]
                .filter((session) => session.id === id || session.twin_of === id).map((session) => session.host)""",
            self.session,
        )
        return next(host for host in "abc" if host not in taken)

    @property
    def blocks(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = self.page.evaluate(
            "id => window.worldline.log.filter((shown) => shown.session === id)", self.session
        )
        return shown

    @property
    def last_block(self) -> int:
        return int(self.blocks[-1]["block"]) if self.blocks else 0

    def see_block(self, block: int) -> None:
        """Waits until this block or a later one was shown."""
        self.wait_until("([id, block]) => window.worldline.players.get(id)?.block >= block", [self.session, block])

    def see_more_blocks(self, count: int) -> None:
        self.see_block(self.last_block + count)

    def picture(self, caption: str = "The world") -> str:
        """The pixels of a picture, as text that can be compared."""
        canvas = self.stage.get_by_role("figure").filter(has_text=caption).locator("canvas")
        pixels: str = canvas.evaluate("canvas => canvas.toDataURL()")
        return pixels


def box(locator: Locator) -> tuple[float, float]:
    """The middle of what is seen."""
    bounds = locator.bounding_box()
    assert bounds is not None
    return bounds["x"] + bounds["width"] / 2, bounds["y"] + bounds["height"] / 2


def has(word: str) -> Any:
    return re.compile(rf"\b{word}\b")
