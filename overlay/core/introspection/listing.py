"""Bounds what one answer about a broker lists, so that rendering it never delays events.

Invariant: a bounded listing costs at most `TOTAL` items whatever the broker stores, long texts counting as
several; what is left off is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

DEFAULT_LISTED = 100
MAX_LISTED = 1_000
TOTAL = 2_000
_LONGEST_TEXT = 2_000
_ITEM_TEXT = 200
"""How many characters of text cost as much as an item."""


class Listing:
    """At most `listed` items of each list, and `TOTAL` of all; everything if it is None.

    `left_off` has the number of items that were left off, by list.
    """

    def __init__(self, listed: int | None) -> None:
        self.listed = listed
        self.left_off: dict[str, int] = {}
        self._left = TOTAL

    def first(self, items: Iterable[T], count: int, name: str) -> Iterator[T]:
        """The items of a list of `count` that are listed."""
        room = count if self.listed is None else min(count, self.listed)
        shown = 0
        for item in islice(items, room):
            if self.listed is not None and self._left <= 0:
                break
            self._left -= 1
            shown += 1
            yield item
        if shown < count:
            self.left_off[name] = count - shown

    def text(self, text: str) -> str:
        """The text, shortened where it is long."""
        if self.listed is None:
            return text
        self._left -= len(text) // _ITEM_TEXT
        if len(text) <= _LONGEST_TEXT:
            return text
        return f"{text[:_LONGEST_TEXT]} ... ({len(text):,} characters)"

    def of(self, *names: str) -> dict[str, int]:
        """What was left off of these lists, and forgets it."""
        return {name: self.left_off.pop(name) for name in names if name in self.left_off}

    def more(self, name: str, indent: str = "    ") -> list[str]:
        """The line for what was left off of a list, if anything was."""
        return [f"{indent}and {count:,} more" for count in self.of(name).values()]
