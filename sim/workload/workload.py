"""A workload: an event type, subscriptions, events, and updates of subscriptions. Everything is drawn by
numpy from a seed, identically on every machine. The ids of all groups together are 0, 1, 2, ..., in random
order, and a group loads with one `add_many`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher import EventBatch, EventType, Filter, parse

Column = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

_SUBSCRIPTIONS, _EVENTS, _MOVES = 1, 2, 3


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """Subscriptions that differ only in the values of their variables.

    `ids` is int64[n] ascending; `values` maps each variable of `filter` to an array of n values.
    """

    filter: Filter
    ids: Indices
    values: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> SubscriptionGroup:
        """Without copying."""
        return SubscriptionGroup(
            self.filter,
            self.ids[start:stop],
            {name: column[start:stop] for name, column in self.values.items()},
        )


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions of many groups in columns, in the order of their ids, as `Engine.add_all` takes them."""

    ids: Indices
    filters: list[Filter]
    numbers: Indices
    values: dict[str, Column]

    @classmethod
    def of(cls, groups: Sequence[SubscriptionGroup]) -> Subscriptions:
        """A column is 0 where a filter lacks its variable."""
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *[group.ids for group in groups]])
        numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        order = np.argsort(ids)
        starts = np.cumsum([0, *map(len, groups)]).tolist()
        columns: dict[str, list[tuple[int, Column]]] = {}
        for group, start in zip(groups, starts, strict=False):
            for name, column in group.values.items():
                columns.setdefault(name, []).append((start, column))
        values: dict[str, Column] = {}
        for name, parts in columns.items():
            whole = np.zeros(len(ids), dtype=np.result_type(*{part.dtype for _, part in parts}))
            for start, part in parts:
                whole[start : start + len(part)] = part
            values[name] = whole[order]
        return cls(ids[order], [group.filter for group in groups], numbers[order], values)

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> Subscriptions:
        """The subscriptions at positions `start` up to `stop`."""
        values = {name: column[start:stop] for name, column in self.values.items()}
        return Subscriptions(self.ids[start:stop], self.filters, self.numbers[start:stop], values)


class Workload(ABC):
    """The interface of workloads. All results are deterministic in (parameters, count, seed)."""

    name: str
    description: str
    event_type: EventType
    event_batch: int | None = None
    """Events per batch; None for the benchmark's default."""

    def subscriptions(self, count: int, *, seed: int = 0) -> list[SubscriptionGroup]:
        """`count` subscriptions with the ids 0 .. count - 1, grouped by filter."""
        return list(self._groups(count, np.random.default_rng([seed, _SUBSCRIPTIONS])))

    def events(self, count: int, *, seed: int = 0) -> EventBatch:
        """One batch of `count` events."""
        return self._events(count, np.random.default_rng([seed, _EVENTS]))

    def arrivals(self, groups: list[SubscriptionGroup]) -> list[list[SubscriptionGroup]]:
        """The groups in the batches in which they are added; one by default."""
        return [groups]

    def moves(self, group: SubscriptionGroup, *, seed: int = 0) -> dict[str, Column]:
        """New values of the variables that this workload updates, one per member of the group."""
        return self._moves(
            group, np.random.default_rng([seed, _MOVES, int(group.ids[0]) if len(group) else 0])
        )

    @abstractmethod
    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]: ...

    @abstractmethod
    def _events(self, count: int, rng: np.random.Generator) -> EventBatch: ...

    @abstractmethod
    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]: ...


def grouped(
    event_type: EventType,
    codes: Indices,
    texts: Mapping[int, str],
    values: Mapping[int, Mapping[str, Column]],
) -> Iterator[SubscriptionGroup]:
    """Groups of the subscriptions 0 .. len(codes) - 1 by their code, the key of the filter's text.

    `values[code]` are arrays over all subscriptions; each group receives its members' values.
    """
    for members in alike(codes):
        code = int(codes[members[0]])
        chosen = {name: column[members] for name, column in values[code].items()}
        yield SubscriptionGroup(parse(texts[code], event_type), members, chosen)


def alike(codes: Indices) -> list[Indices]:
    """The positions of equal codes, ascending, code by code."""
    if not len(codes):
        return []
    order = np.argsort(codes, kind="stable").astype(np.int64)
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def zipf_probabilities(count: int, exponent: float) -> npt.NDArray[np.float64]:
    """Probabilities of `count` ranks in proportion to 1 / rank ** exponent; exponent 0 is uniform."""
    weights = 1.0 / np.arange(1, count + 1, dtype=np.float64) ** exponent
    probabilities: npt.NDArray[np.float64] = weights / weights.sum()
    return probabilities
