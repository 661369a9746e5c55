"""Which change a delivery answers."""

from __future__ import annotations

import random

from covey.matcher import EventType, parse
from covey.sim.checkers.changes import OPEN, Changes

TYPE = EventType("Trade", {"price": "int64"})
BELOW = parse("price < $limit", TYPE)


def test_nothing_is_answered_before_the_first_change() -> None:
    changes = Changes(BELOW, {"limit": 10})
    assert changes.deliver({"price": 5}) == []


def test_the_first_event_that_only_the_new_values_want_answers_a_change_and_no_later_one_does() -> None:
    changes = Changes(BELOW, {"limit": 10})
    assert changes.change({"limit": 20}) == 1
    assert changes.deliver({"price": 5}) == []
    assert changes.deliver({"price": 15}) == [1]
    assert changes.deliver({"price": 15}) == []


def test_a_change_stays_open_over_later_changes() -> None:
    changes = Changes(BELOW, {"limit": 10})
    assert [changes.change({"limit": limit}) for limit in (20, 5, 30)] == [1, 2, 3]
    assert changes.deliver({"price": 15}) == [1, 3]
    assert changes.deliver({"price": 7}) == []


def test_the_oldest_open_change_is_given_up_for_a_new_one() -> None:
    changes = Changes(BELOW, {"limit": 0})
    for step in range(OPEN + 5):
        changes.change({"limit": 10 if step % 2 == 0 else 0})
    answered = changes.deliver({"price": 5})
    assert answered == [number for number in range(6, OPEN + 6) if number % 2]
    assert len(changes._rows) <= OPEN + 2


def test_random_changes_agree_with_the_definition() -> None:
    draw = random.Random(3)
    limits = [50]
    opened: set[int] = set()
    changes = Changes(BELOW, {"limit": 50})
    for _ in range(400):
        if draw.random() < 0.5:
            limits.append(draw.randrange(100))
            opened.add(changes.change({"limit": limits[-1]}))
            continue
        price = draw.randrange(100)
        expected = [n for n in sorted(opened)[-OPEN:] if limits[n - 1] <= price < limits[n]]
        assert changes.deliver({"price": price}) == expected
        opened -= set(expected)
