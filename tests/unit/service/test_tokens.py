"""A token is compared whole, a ticket opens one door once."""

import pytest

from worldline.clock import ManualClock
from worldline.errors import BadValue
from worldline.service.tokens import TICKET_S, TICKETS_MAX, Tickets, Token

TEXT = "correct-horse-battery"


def kept(tmp_path, text, mode=0o600):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", ["", "\n"])
def test_only_the_whole_token_is_taken(tmp_path, end):
    token = Token.read(kept(tmp_path, TEXT + end))
    assert token.is_shown_by(f"Bearer {TEXT}")
    assert token.is_shown_by(f"bearer  {TEXT}")
    for wrong in (
        "",
        "Bearer",
        "Bearer ",
        TEXT,
        f"Basic {TEXT}",
        f"Bearer {TEXT[:-1]}",
        f"Bearer {TEXT}x",
        "Bearer \udcff",
    ):
        assert not token.is_shown_by(wrong)


@pytest.mark.parametrize("text", ["", "short", "with a blank inside it", f"{TEXT}\n{TEXT}\n", "x" * 513, "ü" * 20])
def test_a_file_without_a_token_is_refused(tmp_path, text):
    with pytest.raises(BadValue, match="one line of 16"):
        Token.read(kept(tmp_path, text))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_token_that_others_may_read_is_refused(tmp_path, mode):
    with pytest.raises(BadValue, match="0600"):
        Token.read(kept(tmp_path, TEXT, mode))


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadValue, match="can't be read"):
        Token.read(tmp_path / "token")


def test_a_ticket_is_good_once_and_for_half_a_minute():
    clock = ManualClock()
    tickets = Tickets(clock)
    first, second, late = tickets.give(), tickets.give(), tickets.give()
    assert tickets.take(first)
    assert not tickets.take(first)
    clock.advance(TICKET_S)
    assert tickets.take(second)
    clock.advance(0.5)
    assert not tickets.take(late)
    assert not tickets.take("")


def test_unused_tickets_are_bounded():
    tickets = Tickets(ManualClock())
    oldest, *others = (tickets.give() for _ in range(TICKETS_MAX + 1))
    assert not tickets.take(oldest)
    assert all(tickets.take(ticket) for ticket in others)
