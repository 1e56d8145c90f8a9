"""A page that is asked for a token asks the person, once."""

import pytest
from playwright.sync_api import expect

from e2e.visitor import Visitor
from worldline.runtime.face import Face
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan
from worldline.service.client import Client

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    with Fleet.start(FleetPlan(hosts=("a",), face=Face(token_file=path))) as fleet:
        yield fleet


def test_the_page_asks_for_the_token_once_and_then_plays(guarded, browser):
    context = browser.new_context()
    page = context.new_page()
    guest = Visitor(page, guarded.url)
    page.goto(guarded.url)
    asked = page.get_by_role("dialog", name="Token")
    asked.get_by_label("Token").fill("not-the-right-token")
    asked.get_by_role("button", name="Go on").click()
    expect(asked.get_by_role("alert")).to_contain_text("does not take this token")
    asked.get_by_label("Token").fill(TOKEN)
    asked.get_by_label("Token").press("Enter")
    expect(page.locator("#summary")).to_contain_text("1 host")
    with Client(guarded.url, token=TOKEN) as client:
        session = client.open("load", options={"bytes": "5MB"})
        guest.wait_until("() => window.worldline.state.focus !== null")
        session.step(0, 0)
        guest.wait_until("() => window.worldline.log.length >= 1")
        page.reload()
        expect(page.locator("#summary")).to_contain_text("1 world")
        expect(asked).to_have_count(0)
        session.close()
    assert guest.page_errors == []
    context.close()
