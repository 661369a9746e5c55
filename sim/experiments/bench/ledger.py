"""What a subscriber that keeps changing one value is owed and gets: the books of `covey bench change`.

Everything is entered in the order in which it happens in one process, so no clocks are compared. An event is
owed if it matches every version of the subscription from the last one that has taken effect, at the moment it
is published, up to its delivery. The stream of one publisher is in order: when a later event comes and one
that is owed has not, that one was *missed*. A change excuses what it does not match. *Stale* is an event that
does not match the newest value when it is handed out, *duplicate* one that was handed out before.
"""

from __future__ import annotations

from collections.abc import Callable

Matches = Callable[[int, int], bool]
"""Whether an event of this sort matches a filter with this value."""


class Ledger:
    """The books of one subscriber and one publisher; events are numbered from 0, `matches` judges them."""

    def __init__(self, matches: Matches, value: int) -> None:
        self.published = self.owed = self.delivered = 0
        self.missed = self.duplicate = self.stale = 0
        self.changes = 0
        self.first_new_ns: list[int] = []
        """From a change to the first event that it alone asked for, where one came before the next change."""
        self._matches = matches
        self._versions = [value]
        self._settled = 0
        self._sorts: list[int] = []
        self._open: dict[int, int] = {}
        self._seen: set[int] = set()
        self._changed_ns = 0

    def change(self, value: int, now_ns: int) -> int:
        """The subscriber asks for another value from now on; the number of this version."""
        self._versions.append(value)
        self.changes += 1
        self._changed_ns = now_ns
        for event in [event for event, sort in self._open.items() if not self._matches(sort, value)]:
            del self._open[event]
        return len(self._versions) - 1

    def settle(self, version: int) -> None:
        """This version and all before it have taken effect in the overlay."""
        self._settled = max(self._settled, version)

    def publish(self, sort: int) -> int:
        """An event is published; its number."""
        number = len(self._sorts)
        self._sorts.append(sort)
        self.published += 1
        if all(self._matches(sort, value) for value in set(self._versions[self._settled :])):
            self._open[number] = sort
            self.owed += 1
        return number

    def deliver(self, number: int, now_ns: int) -> None:
        """An event is handed out."""
        self.delivered += 1
        sort = self._sorts[number]
        if number in self._seen:
            self.duplicate += 1
            return
        self._seen.add(number)
        if not self._matches(sort, self._versions[-1]):
            self.stale += 1
        elif self._changed_ns and not self._matches(sort, self._versions[-2]):
            self.first_new_ns.append(now_ns - self._changed_ns)
            self._changed_ns = 0
        while self._open:
            oldest = next(iter(self._open))
            if oldest > number:
                break
            del self._open[oldest]
            self.missed += oldest != number

    def close(self) -> None:
        """All is quiet: what is still owed was missed."""
        self.missed += len(self._open)
        self._open.clear()
