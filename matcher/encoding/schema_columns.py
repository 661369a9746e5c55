"""The columns of an event type's attributes: one for each, and one for the ranks of each string.

Attributes have the lowest numbers, in order, then ranks. A widened event type gets columns beyond all that
were ever in use, derived ones (`columns.py`) included. Invariant: an attribute keeps its columns, so no row
changes when an engine is widened."""

from __future__ import annotations

import numpy as np

from covey.matcher.encoding.keys import Keys, largest_key
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import LAST

MOST_TEXTS = 1 << 20  # the most texts of an engine by default: an event's keys then take 8 MB


class SchemaColumns:
    """Attribute a has column `columns[a]`, a string also `ranks[a]`; `attributes` is the inverse of both, and
    `kinds` has the kind by column, without ranks."""

    def __init__(self, event_type: EventType) -> None:
        strings = [a for a, kind in enumerate(event_type.kinds) if kind is Kind.STRING]
        self.columns = list(range(len(event_type.kinds)))
        self.ranks = {attribute: len(self.columns) + place for place, attribute in enumerate(strings)}
        self._describe(event_type)

    def widen(self, event_type: EventType, first: int) -> None:
        """Give columns from `first` on to the new attributes of a schema that begins with the present one."""
        for attribute in range(len(self.columns), len(event_type.kinds)):
            self.columns.append(first)
            first += 1
            if event_type.kinds[attribute] is Kind.STRING:
                self.ranks[attribute] = first
                first += 1
        self._describe(event_type)

    def _describe(self, event_type: EventType) -> None:
        self.kinds = dict(zip(self.columns, event_type.kinds, strict=True))
        self.attributes = {column: a for a, column in (*enumerate(self.columns), *self.ranks.items())}
        self.top = max(self.attributes) + 1  # one more than the highest column

    def is_of_ranks(self, column: int) -> bool:
        return column in self.attributes and column not in self.kinds

    def tops(self) -> Keys:
        """The upper end of a test with only a lower bound, for each column up to the last attribute's."""
        tops = np.full(max(self.columns) + 1, LAST, dtype=np.int64)
        for column, kind in self.kinds.items():
            tops[column] = largest_key(kind)
        return tops
