"""The oracle of a subscriber: each count of its verdict, on histories small enough to judge by hand."""

from covey.sim.checkers.oracle import SubscriberHistory, Verdict


def history() -> SubscriberHistory[float, float]:
    """A subscriber to prices below a limit, 100 at first; events are prices."""
    return SubscriberHistory(lambda price, limit: price < limit, 100.0)


def test_a_matching_event_delivered_once() -> None:
    subscriber = history()
    subscriber.arrive(0)
    subscriber.arrive(2)
    assert subscriber.judge([90, 110, 95]) == Verdict(delivered=2, expected=2)


def test_a_matching_event_not_delivered_is_missed() -> None:
    subscriber = history()
    subscriber.arrive(2)
    verdict = subscriber.judge([90, 110, 95])
    assert verdict == Verdict(delivered=1, expected=2, missed=1, missed_positions=(0,))


def test_the_last_event_can_be_missed() -> None:
    assert history().judge([110, 95]) == Verdict(expected=1, missed=1, missed_positions=(1,))


def test_each_delivery_after_the_first_is_a_duplicate() -> None:
    subscriber = history()
    for position in (0, 0, 1, 0):
        subscriber.arrive(position)
    assert subscriber.judge([90, 95]) == Verdict(delivered=4, expected=2, duplicate=2)


def test_an_event_that_no_values_match_is_stray_and_spurious() -> None:
    subscriber = history()
    subscriber.arrive(0)
    assert subscriber.judge([110]) == Verdict(delivered=1, stray=1, spurious=1)


def test_events_after_an_awaited_change_must_match_the_new_values_only() -> None:
    subscriber = history()
    subscriber.arrive(0)
    subscriber.issue(90.0).settled = 1
    verdict = subscriber.judge([90, 95, 85])
    assert verdict == Verdict(delivered=1, expected=2, missed=1, missed_positions=(2,))


def test_a_wider_subscription_misses_events_published_after_it_settled() -> None:
    subscriber = history()
    subscriber.issue(200.0).settled = 1
    verdict = subscriber.judge([150, 150])
    assert verdict == Verdict(expected=1, missed=1, undecided=1, missed_positions=(1,))


def test_an_event_that_crosses_a_change_and_matches_one_side_is_undecided() -> None:
    for delivered in (True, False):
        subscriber = history()
        subscriber.issue(200.0).settled = 2
        if delivered:
            subscriber.arrive(1)
        assert subscriber.judge([210, 150]) == Verdict(delivered=int(delivered), undecided=1)


def test_an_event_that_crosses_a_change_and_matches_both_sides_is_expected() -> None:
    subscriber = history()
    subscriber.issue(90.0).settled = 2
    assert subscriber.judge([80, 110]) == Verdict(expected=1, missed=1, missed_positions=(0,))


def test_a_later_settled_change_settles_those_before_it() -> None:
    subscriber = history()
    subscriber.issue(200.0)
    subscriber.issue(300.0).settled = 1
    verdict = subscriber.judge([90, 250])
    assert verdict == Verdict(expected=2, missed=2, missed_positions=(0, 1))


def test_a_change_issued_after_a_later_event_arrived_does_not_excuse_an_earlier_one() -> None:
    """Event 1 arrived before the change to 50 was issued, so event 0 met the limit 100 only."""
    subscriber = history()
    subscriber.arrive(1)
    subscriber.issue(50.0).settled = 2
    verdict = subscriber.judge([90, 80])
    assert verdict == Verdict(delivered=1, expected=2, missed=1, missed_positions=(0,))


def test_an_event_delivered_after_a_change_that_it_does_not_match_is_spurious() -> None:
    subscriber = history()
    subscriber.issue(90.0).settled = 2
    subscriber.arrive(0)
    subscriber.spurious = 3
    assert subscriber.judge([95, 110]) == Verdict(delivered=1, spurious=4, undecided=1)


def test_events_lost_with_a_killed_broker_are_excused_but_duplicates_are_not() -> None:
    subscriber = history()
    subscriber.excused.append((1, 3))
    for position in (0, 2, 2):
        subscriber.arrive(position)
    assert subscriber.judge([90, 90, 90, 90]) == Verdict(
        delivered=3, expected=4, missed=1, duplicate=1, excused=1, missed_positions=(3,)
    )
