"""A maximal rate per key, for the client library and the gateway: what waits, and what is superseded
meanwhile. Without I/O.

Invariant: between two departures lie at least `1 / rate` seconds, and each has every key at most once. So
there is one timer per subscription however many keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_FEW_BYTES = 16_384
"""So many bytes may wait before events of a key are conflated."""


class RateGate(Generic[T]):
    """`conflate` returns items without superseded events, and how many each has lost; `size` is in bytes."""

    def __init__(
        self,
        rate: float,
        conflate: Callable[[Sequence[T]], tuple[list[T], list[tuple[T, int]]]],
        size: Callable[[T], int],
    ) -> None:
        self._pause_s = 1 / rate
        self._conflate_all = conflate
        self._size = size
        self._next_s = float("-inf")
        self._items: list[T] = []
        self._bytes = 0
        self._conflated_from = 0
        self.lost: list[tuple[T, int]] = []
        """Superseded events, for the caller to take."""

    def put(self, item: T) -> None:
        """O(log n) per event: items are conflated whenever twice as much waits as after the last time."""
        self._items.append(item)
        self._bytes += self._size(item)
        if self._bytes > max(_FEW_BYTES, self._conflated_from):
            self._conflate()
            self._conflated_from = 2 * self._bytes

    def _conflate(self) -> None:
        self._items, lost = self._conflate_all(self._items)
        self._bytes = sum(map(self._size, self._items))
        self.lost += lost

    @property
    def pending_bytes(self) -> int:
        return self._bytes

    def due_s(self) -> float | None:
        """When waiting items may leave; None without any."""
        return self._next_s if self._items else None

    def take(self, now_s: float) -> list[T]:
        if not self._items or now_s < self._next_s:
            return []
        self._next_s = now_s + self._pause_s
        return self.flush()

    def flush(self) -> list[T]:
        if self._items:
            self._conflate()
        items, self._items, self._bytes, self._conflated_from = self._items, [], 0, 0
        return items
