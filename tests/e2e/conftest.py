"""A real fleet and a real Chromium: what a person would have in front of them."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from e2e.visitor import Visitor
from worldline.runtime.fleet import Fleet
from worldline.runtime.fleet_plan import FleetPlan

FLAGS = ["--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-gpu"]


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    with Fleet.start(FleetPlan(hosts=("a", "b", "c"), faults=True)) as started:
        yield started


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = os.environ.get("WORLDLINE_CHROMIUM") or shutil.which("chromium")
    assert chromium, "no Chromium here: scripts/ensure_chromium.sh installs one, or WORLDLINE_CHROMIUM names one"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visitor(fleet: Fleet, browser: Browser) -> Iterator[Visitor]:
    """Somebody with the page open, and nothing started yet. What they leave open is closed after them."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    guest = Visitor(context.new_page(), fleet.url)
    guest.come()
    yield guest
    guest.leave()
    context.close()
    assert guest.page_errors == []
