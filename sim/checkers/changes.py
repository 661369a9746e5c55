"""Which changes of a subscription a delivery answers (the *delay* of Jayaram et al., section 5.2).

The first delivered event that matches Φ' and not Φ answers a change from Φ to Φ'. A change stays open until
then, whatever changes follow: if only answers before the next change counted, a subscription that changes
faster than the overlay would show its fast answers only.

Invariant: the values of every open change, those before it, and the newest are stored; at most `OPEN`
changes are open, and a new one evicts the oldest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from covey.overlay.core.moving.motion import still
from covey.sim.checkers.columns import Columns

if TYPE_CHECKING:
    from covey.matcher import Filter

OPEN = 256


class Changes:
    """The changes of one subscription: 0 stands for the initial values."""

    def __init__(self, filter: Filter, values: Mapping[str, Any]) -> None:
        self.newest = 0
        self._open: list[int] = []
        self._columns = Columns(filter)
        self._rows: dict[int, int] = {}
        self._values: dict[int, Mapping[str, Any]] = {}
        self._keep(0, values)

    def _keep(self, number: int, values: Mapping[str, Any]) -> None:
        self._values[number] = values
        row = self._rows[number] = self._columns.add(number, values)
        self._columns.ready[row] = True

    def change(self, values: Mapping[str, Any]) -> int:
        """All values after a change; the number of the change."""
        self.newest += 1
        self._open.append(self.newest)
        del self._open[:-OPEN]
        self._keep(self.newest, values)
        self._evict()
        return self.newest

    def deliver(self, event: Mapping[str, Any], at_ns: int = 0) -> list[int]:
        """The changes that the delivery of an event answers; `at_ns` is its entry into the overlay.

        Cost: one columnwise evaluation; with Motion one for each open change.
        """
        if not self._open:
            return []
        matching = set(self._columns.matching(event, lambda number: still(self._values[number], at_ns)))
        answered = [number for number in self._open if number in matching and number - 1 not in matching]
        if answered:
            self._open = [number for number in self._open if number not in answered]
            self._evict()
        return answered

    def _evict(self) -> None:
        needed = {self.newest, *self._open, *(number - 1 for number in self._open)}
        for number in self._rows.keys() - needed:
            self._columns.discard(self._rows.pop(number))
            del self._values[number]
