"""The oracle of moving boxes, on histories with a known verdict."""

import numpy as np

from covey.sim.experiments.pages.live_oracle import LiveOracle, Recipient, Rectangle

LEFT: Rectangle = (0.0, 10.0, 0.0, 10.0)
MIDDLE: Rectangle = (5.0, 15.0, 0.0, 10.0)


class World:
    """One publisher and one recipient with one box, and a clock that each call advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.oracle = LiveOracle(1, self._clock, "update")
        self.recipient: Recipient = self.oracle.recipient()
        self.recipient.settle(self.recipient.issue(0, LEFT))

    def _clock(self) -> float:
        self.now += 1.0
        return self.now

    def publish(self, *places: float) -> list[int]:
        return self.oracle.publish(0, np.array(places), np.full(len(places), 5.0)).tolist()

    def deliver(self, *numbers: int) -> None:
        self.recipient.deliver(np.zeros(len(numbers), np.int64), np.array(numbers, np.int64))

    def mark(self) -> None:
        """Two marks: the second judges what the first covers."""
        for _ in range(2):
            mark = self.oracle.close_chunk(0)
            assert mark is not None
            self.recipient.mark(0, mark)
            self.publish(900)

    def verdict(self) -> tuple[int, int, int, int, int]:
        """expected, missed, duplicate, stray, undecided"""
        self.oracle.judge()
        counts = self.oracle.total()
        return counts.expected, counts.missed, counts.duplicate, counts.stray, counts.undecided


def test_what_is_in_the_box_is_expected_once() -> None:
    world = World()
    inside, outside, again, lost = world.publish(1, 20, 2, 3)
    world.deliver(inside, again, again, outside)
    assert world.verdict() == (0, 0, 0, 0, 0)  # no mark has come
    world.mark()
    assert world.verdict() == (3, 1, 1, 1, 0)
    assert {kind for kind, *_ in world.oracle.faults} == {"missed", "duplicate"}
    assert lost == 3
    world.deliver(lost)  # too late
    world.publish(30)
    world.mark()
    world.verdict()
    assert world.oracle.total().late == 1


def test_events_that_cross_a_change_may_meet_either_rectangle() -> None:
    for delivered in (True, False):
        world = World()
        change = world.recipient.issue(0, MIDDLE)
        left, both, right = world.publish(1, 7, 12)
        world.recipient.settle(change)
        world.deliver(both, *([left, right] if delivered else []))
        world.mark()
        assert world.verdict() == (1, 0, 0, 0, 2)


def test_a_settled_change_is_in_force() -> None:
    world = World()
    world.recipient.settle(world.recipient.issue(0, MIDDLE))
    left, _, right = world.publish(1, 7, 12)
    world.deliver(left, right)
    world.mark()
    assert world.verdict() == (2, 1, 0, 1, 0)


def test_a_gapless_update_is_in_force_from_its_call() -> None:
    world = World()
    change = world.recipient.issue(0, MIDDLE, gapless=True)
    left, both, right = world.publish(1, 7, 12)
    world.deliver(left, both)
    world.mark()
    assert world.verdict() == (0, 0, 0, 0, 0)  # what it replays comes until it returns
    world.recipient.settle(change)
    assert world.verdict() == (0, 0, 0, 0, 0)  # it may wait for its reader
    world.mark()
    assert world.verdict() == (2, 1, 0, 1, 0)
    assert right == 2


def test_an_event_may_come_by_a_change_that_was_issued_behind_it() -> None:
    world = World()
    (right,) = world.publish(12)
    change = world.recipient.issue(0, MIDDLE, gapless=True)
    world.mark()
    assert world.verdict() == (0, 0, 0, 0, 0)
    world.recipient.settle(change)
    world.deliver(right)
    world.mark()
    assert world.verdict() == (0, 0, 0, 0, 1)
    assert world.oracle.total().faults == 0


def test_eras_have_counts_of_their_own_and_a_recipient_that_was_cut_off_is_not_judged() -> None:
    world = World()
    world.publish(1)
    world.mark()
    world.verdict()
    world.oracle.era = "subscribe-first"
    world.publish(2)
    world.mark()
    assert world.verdict()[:2] == (2, 2)
    assert {era: counts.missed for era, counts in world.oracle.counts.items()} == {
        "update": 1, "subscribe-first": 1
    }  # fmt: skip
    world.publish(3)
    mark = world.oracle.close_chunk(0)
    world.recipient.forgive()
    assert mark is not None
    world.recipient.mark(0, mark)
    assert world.verdict()[:2] == (2, 2)
    assert world.oracle.total().unjudged == 3  # with two that came with marks
