"""Attributes of the last events of keys, in columns, so that a moved box is compared with all keys at once.

    columns[attribute]   int64  by row of a key table: the key of the value (`matcher/encoding/keys.py`)

Only what the filter of a view compares has a column, and only where its kind is a number, a time or a bool. A
column is brought up to date when it is read, by the rows with an event since the last time. The cuts of a
region are in the same order as keys, so an interval is two comparisons; strings, lists and calls have no
column, and a region with such is only bounded by the rest. Rejected: an engine, made for many filters and few
events (10 ms for 100,000 keys and a box; columns take under 1 ms), and an index over places, which every
event would have to update.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.covering.cuts import LINES, point_of
from covey.matcher.encoding.keys import float_keys
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import FIRST, LAST, MISSING, NAN_KEY

if TYPE_CHECKING:
    from covey.matcher.covering.cuts import Cut, Cuts
    from covey.matcher.covering.region import Region
    from covey.matcher.events.batch import EventBatch

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Parts = Iterable[tuple["EventBatch", Int64s, Int64s]]
"""Batches, positions in each, and the rows of these events."""

_NUMERIC = (Kind.INT64, Kind.FLOAT64, Kind.TIMESTAMP, Kind.BOOL)


class KeyColumns:
    """Columns of one table; `current[attribute]` is the batch up to which it was read."""

    def __init__(self) -> None:
        self.current: dict[str, int] = {}
        self._columns: dict[str, Int64s] = {}

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    def resize(self, rows: int) -> None:
        """Room for this many rows."""
        for name, column in self._columns.items():
            self._columns[name] = np.append(column, np.full(rows - len(column), MISSING, np.int64))

    def read(self, attribute: str, kind: Kind, rows: int, parts: Parts, current: int) -> None:
        """Take the values of events into a column of so many rows."""
        column = self._columns.get(attribute)
        if column is None:
            column = self._columns[attribute] = np.full(rows, MISSING, np.int64)
        for batch, places, own in parts:
            column[own] = _keys(batch, attribute, kind, places)
        self.current[attribute] = current

    def inside(self, region: Region, rows: Int64s) -> tuple[Int64s, bool]:
        """The rows that may be in a region, and whether these are exactly those that are. The columns of its
        attributes are to be read before; what has none bounds nothing.
        """
        if region.conjunctions is None:
            return rows, False
        inside, exact = np.zeros(len(rows), np.bool_), True
        for conjunction in region.conjunctions:
            within = np.ones(len(rows), np.bool_)
            for attribute, cuts in conjunction.cuts.items():
                if attribute in self._columns:
                    missing = LINES[region.event_type.attributes[attribute]].missing
                    within &= _between(self._columns[attribute][rows], cuts, missing)
                else:
                    exact = False
            inside |= within
            exact = exact and not conjunction.atoms
        return rows[inside], exact


def compared(region: Region) -> dict[str, Kind]:
    """The attributes of a region that can have columns."""
    kinds = region.event_type.attributes
    names = {name for conjunction in region.conjunctions or () for name in conjunction.cuts}
    return {name: kinds[name] for name in sorted(names) if kinds[name] in _NUMERIC}


def _between(keys: Int64s, cuts: Cuts, missing: Cut) -> Bools:
    """Which keys lie in the intervals between cuts, of which MISSING is `missing`."""
    inside = np.zeros(len(keys), np.bool_)
    for low, high in zip(cuts[::2], cuts[1::2], strict=True):
        if low > LAST or high <= missing:
            continue
        inside |= (keys >= max(low, FIRST)) & (keys <= max(min(high - 1, LAST), MISSING))
        if low <= missing:
            inside |= keys == MISSING
    return inside


def _keys(batch: EventBatch, attribute: str, kind: Kind, places: Int64s) -> Int64s:
    """The keys of the values of some events."""
    if batch.event_type.attributes.get(attribute) is not kind:
        return np.full(len(places), MISSING, np.int64)
    if batch.columns is not None:
        values, line = batch.columns.values(batch.event_type.index(attribute)), LINES[kind]
        chosen = [values[place] for place in places.tolist()]
        keys = [MISSING if value is None else point_of(line, value) for value in chosen]
        return np.array(keys, np.int64)
    column = batch.record_batch.column(attribute).take(pa.array(places))
    absent = column.is_null().to_numpy(zero_copy_only=False)
    if kind is Kind.FLOAT64:
        floats = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        found: Int64s = np.where(np.isnan(floats), NAN_KEY, float_keys(floats))
    else:
        found = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
    found[absent] = MISSING
    return found
