"""How the page numbers actions: the module itself, in the browser it runs in."""

from typing import Any

from e2e.visitor import Visitor

STAY, FORWARD, LEFT = 0, 1, 3


def play(visitor: Visitor, script: str) -> Any:
    """What `script`, the body of a function of a new `pace` and a `drain` that sends all that may go out, returns."""
    return visitor.page.evaluate(
        f"""async () => {{
            const {{ Pace }} = await import(new URL("pace.js", document.baseURI));
            const pace = new Pace(0);
            const drain = () => {{
                const sent = [];
                for (let next = pace.next(); next; next = pace.next()) sent.push([next.number, next.action]);
                return sent;
            }};
            {script}
        }}"""
    )


def test_no_more_than_two_actions_are_unanswered(visitor: Visitor) -> None:
    sent = play(visitor, "pace.press(1); return [drain(), drain(), (pace.answered(1), drain())];")
    assert sent == [[[1, FORWARD], [2, FORWARD]], [], [[3, FORWARD]]]


def test_nothing_is_sent_while_no_key_is_held_and_the_world_does_not_run_on(visitor: Visitor) -> None:
    assert play(visitor, "return drain();") == []


def test_a_world_that_runs_on_stays_where_it_is(visitor: Visitor) -> None:
    assert play(visitor, "pace.runsOn = true; return drain();") == [[1, STAY], [2, STAY]]


def test_what_is_tapped_during_a_freeze_is_sent_after_it_in_order(visitor: Visitor) -> None:
    sent = play(visitor, "pace.runsOn = true; drain(); pace.tap(1); pace.tap(3); pace.answered(2); return drain();")
    assert sent == [[3, FORWARD], [4, LEFT]]


def test_a_paused_page_sends_nothing_and_forgets_nothing(visitor: Visitor) -> None:
    sent = play(
        visitor, "pace.paused = true; pace.tap(3); const none = drain(); pace.paused = false; return [none, drain()];"
    )
    assert sent == [[], [[1, LEFT]]]


def test_after_a_lost_connection_only_what_never_arrived_is_sent_again_under_its_number(visitor: Visitor) -> None:
    sent = play(visitor, "pace.tap(1); pace.tap(3); drain(); return pace.resume(2).map((s) => [s.number, s.action]);")
    assert sent == [[2, LEFT]]


def test_the_newest_of_two_held_keys_leads_and_the_older_one_takes_over_again(visitor: Visitor) -> None:
    sent = play(
        visitor,
        "pace.press(1); pace.press(3); drain(); pace.answered(2); const both = drain();"
        "pace.release(3); pace.answered(4); return [both, drain()];",
    )
    assert sent == [[[3, LEFT], [4, LEFT]], [[5, FORWARD], [6, FORWARD]]]


def test_an_action_whose_number_went_to_another_player_is_sent_again_under_the_next(visitor: Visitor) -> None:
    sent = play(
        visitor, "pace.tap(1); pace.tap(3); drain(); return pace.resume(3, 2).map((s) => [s.number, s.action]);"
    )
    assert sent == [[3, LEFT]]


def test_who_watches_sends_nothing_again_and_goes_on_with_the_number_that_is_due(visitor: Visitor) -> None:
    sent = play(
        visitor,
        "pace.tap(1); pace.tap(1); drain(); pace.watches = true; const none = pace.resume(2);"
        "pace.watches = false; pace.tap(3); return [none, drain()];",
    )
    assert sent == [[], [[2, LEFT]]]
