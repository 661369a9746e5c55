"""The oracle of a subscriber: each count of its verdict, on histories judged by hand."""

import pytest

from covey.sim.checkers.oracle import SubscriberHistory, Verdict

Step = int | tuple[float, int]
"""The position of an arriving event; or a new limit, and the position where it settles (0: never)."""

HISTORIES: dict[str, tuple[list[float], list[Step], Verdict]] = {
    # published prices, the history of the subscriber below 100, and its verdict
    "delivered once": ([90, 110, 95], [0, 2], Verdict(delivered=2, expected=2)),
    "not delivered": (
        [90, 110, 95],
        [2],
        Verdict(delivered=1, expected=2, missed=1, missed_positions=(0,)),
    ),
    "the last event": ([110, 95], [], Verdict(expected=1, missed=1, missed_positions=(1,))),
    "duplicates": ([90, 95], [0, 0, 1, 0], Verdict(delivered=4, expected=2, duplicate=2)),
    "matched by no values": ([110], [0], Verdict(delivered=1, stray=1, spurious=1)),
    "after an awaited change the new values alone": (
        [90, 95, 85],
        [0, (90.0, 1)],
        Verdict(delivered=1, expected=2, missed=1, missed_positions=(2,)),
    ),
    "a wider subscription misses what follows": (
        [150, 150],
        [(200.0, 1)],
        Verdict(expected=1, missed=1, undecided=1, missed_positions=(1,)),
    ),
    "across a change one side matches, delivered": (
        [210, 150],
        [(200.0, 2), 1],
        Verdict(delivered=1, undecided=1),
    ),
    "across a change one side matches": ([210, 150], [(200.0, 2)], Verdict(undecided=1)),
    "across a change both sides match": (
        [80, 110],
        [(90.0, 2)],
        Verdict(expected=1, missed=1, missed_positions=(0,)),
    ),
    "a later settled change settles those before it": (
        [90, 250],
        [(200.0, 0), (300.0, 1)],
        Verdict(expected=2, missed=2, missed_positions=(0, 1)),
    ),
    # Event 1 arrived before the change to 50 was issued, so event 0 met the limit 100 only.
    "a change behind a later event excuses nothing": (
        [90, 80],
        [1, (50.0, 2)],
        Verdict(delivered=1, expected=2, missed=1, missed_positions=(0,)),
    ),
}


def history(steps: list[Step]) -> SubscriberHistory[float, float]:
    subscriber = SubscriberHistory[float, float](lambda price, limit: price < limit, 100.0)
    for step in steps:
        if isinstance(step, int):
            subscriber.arrive(step)
        else:
            limit, settled = step
            change = subscriber.issue(limit)
            if settled:
                change.settled = settled
    return subscriber


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_has_its_verdict(name: str) -> None:
    prices, steps, verdict = HISTORIES[name]
    assert history(steps).judge(prices) == verdict


def test_an_event_delivered_after_a_change_that_it_does_not_match_is_spurious() -> None:
    subscriber = history([(90.0, 2), 0])
    subscriber.spurious = 3
    assert subscriber.judge([95, 110]) == Verdict(delivered=1, spurious=4, undecided=1)


def test_events_lost_with_a_killed_broker_are_excused_but_duplicates_are_not() -> None:
    subscriber = history([])
    subscriber.excused.append((1, 3))
    for position in (0, 2, 2):
        subscriber.arrive(position)
    assert subscriber.judge([90, 90, 90, 90]) == Verdict(
        delivered=3, expected=4, missed=1, duplicate=1, excused=1, missed_positions=(3,)
    )
