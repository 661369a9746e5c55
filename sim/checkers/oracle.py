"""The oracle of one subscriber of one publisher, independent of the matcher: conditions are Python functions.

Positions are of the publisher's stream: how many events it had started to publish. A change has *settled*
when its awaited call returned, and holds in the whole overlay from there on. The *possible values* of the
event at position `p` run from the newest change settled before `p` to the newest one issued before the
subscriber gets an event from `p` or later: by then it must have arrived, since the overlay keeps the order of
a publisher. So the verdict holds however event and changes crossed (Jayaram et al., 3.3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Event = TypeVar("Event")
Values = TypeVar("Values")


@dataclass(slots=True)
class ValueChange(Generic[Values]):
    """New values of a subscription, and the publisher's position when they had settled."""

    values: Values
    settled: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of events of one subscriber.

    - expected: all possible values match; missed: expected and not delivered
    - excused: expected and lost with a broker that was killed on purpose
    - duplicate: delivered again; stray: delivered, though no possible values match
    - spurious: reached the client when its newest values no longer matched (STRICTNESS)
    - undecided: some possible values match and others do not, so either outcome is right
    """

    delivered: int = 0
    expected: int = 0
    missed: int = 0
    duplicate: int = 0
    spurious: int = 0
    stray: int = 0
    undecided: int = 0
    excused: int = 0
    missed_positions: tuple[int, ...] = ()


@dataclass(slots=True)
class SubscriberHistory(Generic[Event, Values]):
    """The changes of one subscriber and the events it received, in order; `matches` is its condition.

    The subscription with the values `start` must have settled before the first event is published.
    """

    matches: Callable[[Event, Values], bool]
    start: Values
    changes: list[ValueChange[Values]] = field(init=False)
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    """(position of the event, index of the newest change issued by then), in order of arrival."""
    excused: list[tuple[int, int]] = field(default_factory=list)
    """Half-open ranges of positions whose events may be lost with a killed broker."""
    spurious: int = 0

    def __post_init__(self) -> None:
        self.changes = [ValueChange(self.start, settled=0)]

    @property
    def values(self) -> Values:
        return self.changes[-1].values

    def issue(self, values: Values) -> ValueChange[Values]:
        self.changes.append(ValueChange(values))
        return self.changes[-1]

    def arrive(self, position: int) -> None:
        self.arrivals.append((position, len(self.changes) - 1))

    @property
    def last_arrival(self) -> int:
        """The highest position of a delivered event, -1 before the first."""
        return max((position for position, _ in self.arrivals), default=-1)

    def judge(self, events: Sequence[Event]) -> Verdict:
        """`events` are all published ones, by position. O(events x possible values)."""
        times_delivered = [0] * len(events)
        spurious = self.spurious
        for position, newest in self.arrivals:
            times_delivered[position] += 1
            spurious += not self.matches(events[position], self.changes[newest].values)

        missed: list[int] = []
        expected = stray = undecided = excused = 0
        settled = self._settled_positions()
        latest = self._latest_changes(len(events))
        for position, event in enumerate(events):
            oldest = bisect_right(settled, position) - 1
            outcomes = {
                self.matches(event, change.values) for change in self.changes[oldest : latest[position] + 1]
            }
            expected += outcomes == {True}
            undecided += len(outcomes) > 1
            if times_delivered[position]:
                stray += True not in outcomes
            elif outcomes == {True}:
                if any(low <= position < high for low, high in self.excused):
                    excused += 1
                else:
                    missed.append(position)
        return Verdict(
            delivered=len(self.arrivals),
            expected=expected,
            missed=len(missed),
            duplicate=sum(times - 1 for times in times_delivered if times > 1),
            spurious=spurious,
            stray=stray,
            undecided=undecided,
            excused=excused,
            missed_positions=tuple(missed),
        )

    def _settled_positions(self) -> list[int]:
        """By change, the position when it or a later one had settled; without unsettled ones at the end."""
        positions: list[int] = []
        for change in reversed(self.changes):
            if change.settled is not None:
                positions.append(min(change.settled, positions[-1]) if positions else change.settled)
            elif positions:
                positions.append(positions[-1])
        return positions[::-1]

    def _latest_changes(self, events: int) -> list[int]:
        """By position, the index of the newest change issued before that event must have arrived."""
        latest = [len(self.changes) - 1] * events
        reached = -1
        for position, newest in self.arrivals:
            for earlier in range(reached + 1, position + 1):
                latest[earlier] = newest
            reached = max(reached, position)
        return latest
