"""The oracle of the demonstration: each of its words, on histories small enough to judge by hand."""

from __future__ import annotations

from typing import Any

from covey.sim.experiments.demo.oracle import History, Verdict
from covey.sim.experiments.demo.strategies import BUSY_DAYS, BUY_LOWER, MOVING_BAND, STRATEGIES, Strategy

BELOW = Strategy(
    name="below",
    broker="b1",
    filter="price < $limit",
    start={"limit": 100.0},
    wants=lambda quote, values: quote["price"] < values["limit"],
    move=lambda quote, values: {"limit": quote["price"]},
)


def events(*prices: float) -> list[dict[str, Any]]:
    return [{"price": price} for price in prices]


def test_what_is_wanted_and_comes_once_is_right() -> None:
    history = History(BELOW)
    history.arrive(0)
    history.arrive(2)
    assert history.judge(events(90, 110, 95)) == Verdict(delivered=2)


def test_a_wanted_event_that_never_comes_is_missed() -> None:
    history = History(BELOW)
    history.arrive(2)
    assert history.judge(events(90, 110, 95)) == Verdict(delivered=1, missed=1, missed_positions=(0,))


def test_the_last_event_counts_as_missed_too() -> None:
    assert History(BELOW).judge(events(110, 95)) == Verdict(missed=1, missed_positions=(1,))


def test_each_delivery_beyond_the_first_is_a_duplicate() -> None:
    history = History(BELOW)
    for position in (0, 0, 1, 0):
        history.arrive(position)
    assert history.judge(events(90, 95)) == Verdict(delivered=4, duplicate=2)


def test_an_event_that_nobody_asked_for_is_stray_and_spurious() -> None:
    history = History(BELOW)
    history.arrive(0)
    assert history.judge(events(110)) == Verdict(delivered=1, stray=1, spurious=1)


def test_events_after_an_awaited_change_are_judged_by_the_new_values_alone() -> None:
    history = History(BELOW)
    history.arrive(0)
    history.issue({"limit": 90.0}).settled = 1
    assert history.judge(events(90, 95, 85)) == Verdict(delivered=1, missed=1, missed_positions=(2,))


def test_a_widened_subscription_misses_what_comes_after_the_wait() -> None:
    history = History(BELOW)
    history.issue({"limit": 200.0}).settled = 1
    assert history.judge(events(150, 150)) == Verdict(missed=1, undecided=1, missed_positions=(1,))


def test_while_a_change_travels_an_event_that_only_one_side_wants_may_come_or_not() -> None:
    for arrived in (True, False):
        history = History(BELOW)
        history.issue({"limit": 200.0}).settled = 2
        if arrived:
            history.arrive(1)
        assert history.judge(events(210, 150)) == Verdict(delivered=int(arrived), undecided=1)


def test_while_a_change_travels_an_event_that_both_sides_want_must_come() -> None:
    history = History(BELOW)
    history.issue({"limit": 90.0}).settled = 2
    assert history.judge(events(80, 110)) == Verdict(missed=1, missed_positions=(0,))


def test_an_event_must_have_come_before_a_later_one_and_cannot_be_excused_by_a_change_after_that() -> None:
    """Event 1 came before the change to 50 was even issued, so event 0 had its chance at 100."""
    history = History(BELOW)
    history.arrive(1)
    history.issue({"limit": 50.0}).settled = 2
    assert history.judge(events(90, 80)) == Verdict(delivered=1, missed=1, missed_positions=(0,))


def test_an_event_given_after_a_newer_change_no_longer_wants_it_is_spurious() -> None:
    history = History(BELOW)
    history.issue({"limit": 90.0}).settled = 2
    history.arrive(0)
    history.spurious = 3
    assert history.judge(events(95, 110)) == Verdict(delivered=1, spurious=4, undecided=1)


def test_what_a_killed_broker_may_have_swallowed_is_excused_and_counted_but_duplicates_are_not() -> None:
    history = History(BELOW)
    history.excused.append((1, 3))
    for position in (0, 2, 2):
        history.arrive(position)
    judged = history.judge(events(90, 90, 90, 90))
    assert judged == Verdict(delivered=3, missed=1, duplicate=1, excused=1, missed_positions=(3,))


def test_the_strategies_move_on_what_they_want() -> None:
    quote = {"firm": "IBM", "price": 100.0, "volume": 10}
    assert BUY_LOWER.wants(quote, {"limit": 100.5})
    assert BUY_LOWER.move(quote, {"limit": 100.5}) == {"limit": 100.0}
    assert not BUY_LOWER.wants(quote, {"limit": 100.0})

    apple = quote | {"firm": "AAPL"}
    band = MOVING_BAND.move(apple, MOVING_BAND.start)
    assert band == {"low": 96.0, "high": 104.0}
    prices = (95.9, 96.0, 104.0, 104.1)
    assert [MOVING_BAND.wants(apple | {"price": p}, band) for p in prices] == [True, False, False, True]

    microsoft = quote | {"firm": "MSFT"}
    usual = {"usual": 1000.0}
    volumes = (700, 701, 800, 2000, 2001)
    assert [BUSY_DAYS.wants(microsoft | {"volume": v}, usual) for v in volumes] == [False, *[True] * 4]
    moved = [BUSY_DAYS.move(microsoft | {"volume": v}, usual)["usual"] for v in volumes[1:]]
    assert moved == [900.0, 1000.0, 1000.0, 1300.0]
    assert len({strategy.broker for strategy in STRATEGIES}) == 3
