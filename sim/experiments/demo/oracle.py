"""The judge of the demonstration: knows every event and change, and says what came not, twice or too late.

All clients of the demonstration live in one process, so their histories have one order, and the oracle writes
it down in terms of the publisher's position (how many events it has begun to publish):

    settled   the position when the awaited change returned: from there on it holds in the whole overlay
    arrived   the position of an event that a subscriber was given

An event published at position `p` met, on its way, values between the newest change settled before `p` and
the newest one issued before the event must have arrived; since the overlay keeps the order of a publisher,
that was at the latest when the subscriber got an event from `p` or later. These are the *values in question*,
one set of values unless the event travelled while a change did. What follows holds for any way the two may
have crossed (Jayaram et al., 3.3):

    missed      all values in question want the event, and the subscriber did not get it
    duplicate   the subscriber got it more than once (each time beyond the first counts)
    spurious    it came to the client when the values in force there no longer wanted it (STRICTNESS)
    stray       none of the values in question wants the event, and the subscriber got it

Events on which the values in question differ are *undecided*: they crossed a change, and may come or not.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from covey.sim.experiments.demo.strategies import Quote, Strategy, Values


@dataclass(slots=True)
class Change:
    """New values of a subscription, and the publisher's position when they had settled."""

    values: Values
    settled: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the oracle found at one subscriber, in the words of this module's docstring.

    `excused` events were wanted and lost with a broker that was killed on purpose.
    """

    delivered: int = 0
    missed: int = 0
    duplicate: int = 0
    spurious: int = 0
    stray: int = 0
    undecided: int = 0
    excused: int = 0
    missed_positions: tuple[int, ...] = ()


@dataclass(slots=True)
class History:
    """What one subscriber asked for and what it got, in the order in which it happened.

    The values that it started with count as settled before the first event; `subscribe` is awaited before any
    is published. `excused` are half-open ranges of positions that a killed broker may have swallowed.
    """

    strategy: Strategy
    changes: list[Change] = field(init=False)
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    """(position of the event, index of the newest change issued by then), in order of arrival."""
    excused: list[tuple[int, int]] = field(default_factory=list)
    spurious: int = 0
    """Events that the client kept from its user, having evaluated its filter again on newer values."""

    def __post_init__(self) -> None:
        self.changes = [Change(self.strategy.start, settled=0)]

    @property
    def values(self) -> Values:
        return self.changes[-1].values

    def issue(self, values: Values) -> Change:
        """Notes that a change to `values` is asked for."""
        self.changes.append(Change(values))
        return self.changes[-1]

    def arrive(self, position: int) -> None:
        """Notes that the subscriber was given the event at `position`."""
        self.arrivals.append((position, len(self.changes) - 1))

    @property
    def last_arrival(self) -> int:
        """The highest position of an event that arrived, -1 before the first."""
        return max((position for position, _ in self.arrivals), default=-1)

    def judge(self, events: list[Quote]) -> Verdict:
        """The verdict on all events published, in the order of their positions; O(events + changes)."""
        wants = self.strategy.wants
        times_delivered = [0] * len(events)
        spurious = self.spurious
        for position, newest in self.arrivals:
            times_delivered[position] += 1
            spurious += not wants(events[position], self.changes[newest].values)

        missed: list[int] = []
        stray = undecided = excused = 0
        settled = [change.settled for change in self.changes if change.settled is not None]
        latest = self._latest_changes(len(events))
        for position, event in enumerate(events):
            oldest = bisect_right(settled, position) - 1
            verdicts = {wants(event, change.values) for change in self.changes[oldest : latest[position] + 1]}
            if times_delivered[position]:
                stray += True not in verdicts
            elif verdicts == {True}:
                if any(low <= position < high for low, high in self.excused):
                    excused += 1
                else:
                    missed.append(position)
            undecided += len(verdicts) > 1
        return Verdict(
            delivered=len(self.arrivals),
            missed=len(missed),
            duplicate=sum(times - 1 for times in times_delivered if times > 1),
            spurious=spurious,
            stray=stray,
            undecided=undecided,
            excused=excused,
            missed_positions=tuple(missed),
        )

    def _latest_changes(self, events: int) -> list[int]:
        """For each position, the index of the newest change issued before that event must have arrived."""
        latest = [len(self.changes) - 1] * events
        reached = -1
        for position, newest in self.arrivals:
            for earlier in range(reached + 1, position + 1):
                latest[earlier] = newest
            reached = max(reached, position)
        return latest
