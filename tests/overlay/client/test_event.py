"""Events that wait for a subscription are evaluated again after it has moved (STRICTNESS)."""

import random

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType
from covey.matcher.filters.filter import parse
from covey.overlay.client.event import Claim, Part
from covey.overlay.core.client.actions import Matches
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Deliver

QUOTE = EventType("Quote", {"price": "int64"})
BELOW = parse("price < $limit", QUOTE)


def waiting(*prices: int, limit: int = 100) -> tuple[ClientSession, Part]:
    """A session with one subscription, and a part of events that matched it."""
    session = ClientSession("me", engine="naive")
    session.subscribe(BELOW, {"limit": limit})
    batch = EventBatch.from_pylist(QUOTE, [{"price": p} for p in prices], publisher="p", first_sequence=1)
    ones = np.ones(len(batch), np.int64)
    matches = session.matches(Deliver(batch, np.arange(len(batch) + 1), ones, session.epoch))
    (share,) = matches.divided()
    return session, Part(share, matches.epoch, Claim(1, 1, lambda: None))


def read(session: ClientSession, part: Part) -> tuple[int | None, int]:
    event, passed_over = part.next_event(session.strict_reader(1), session.epoch)
    return None if event is None else event["price"], passed_over


def test_events_of_an_unchanged_subscription_come_as_they_are() -> None:
    session, part = waiting(3, 1, 2)
    assert [read(session, part) for _ in range(3)] == [(3, 0), (1, 0), (2, 0)]
    assert part.start >= part.batch.count


def test_a_change_in_the_middle_of_a_part_decides_on_the_rest() -> None:
    session, part = waiting(5, 1, 7, 2, 9)
    assert read(session, part) == (5, 0)
    session.update(1, {"limit": 3})
    assert read(session, part) == (1, 0)
    assert read(session, part) == (2, 1)
    assert part.start < part.batch.count
    assert read(session, part) == (None, 1)
    assert part.start >= part.batch.count


def test_the_rest_of_a_part_that_was_begun_is_what_was_not_handed_out() -> None:
    session, part = waiting(5, 1, 7)
    read(session, part)
    assert [row["price"] for row in part.rest().to_pylist()] == [1, 7]
    matches = session.strict(part.matches(1))
    assert (matches.rows.tolist(), matches.ids.tolist()) == ([0, 1], [1, 1])
    session.update(1, {"limit": 3})
    matches = session.strict(matches)
    assert (matches.rows.tolist(), dict(matches.spurious)) == ([0], {1: 1})
    session.unsubscribe(1)
    assert not len(session.strict(matches).rows)


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_while_reading_hand_out_what_matches_then_and_count_the_others(seed: int) -> None:
    draw = random.Random(seed)
    prices = [draw.randrange(100) for _ in range(200)]
    session, part = waiting(*prices)
    limit, handed_out, spurious, row = 100, 0, 0, 0
    while part.start < part.batch.count:
        if draw.random() < 0.3:
            limit = draw.randrange(100)
            session.update(1, {"limit": limit})
        expected = next((i for i in range(row, 200) if prices[i] < limit), None)
        price, passed_over = read(session, part)
        assert price == (None if expected is None else prices[expected])
        spurious += passed_over
        handed_out += price is not None
        row = 200 if expected is None else expected + 1
    assert handed_out + spurious == 200


def test_strict_leaves_matches_of_unchanged_subscriptions_alone() -> None:
    session, part = waiting(1, 2)
    matches = part.matches(1)
    assert session.strict(matches) is matches
    assert isinstance(matches, Matches)
