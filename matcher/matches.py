"""The subscriptions that match the events of a batch, computed on demand.

`Engine.match` encodes a batch and returns `Matches`; each product (counts, ids, interfaces) is a search of
its own, cached. So counts and interfaces never touch ids, and ids are sorted only by `ordered`. Invariant:
all products are over the subscriptions at the time of `match`. A change of the engine ends the validity:
products computed before remain, others raise `StaleMatchesError`."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.errors import CoveyError, StaleMatchesError

Int64s = npt.NDArray[np.int64]

_FEW_IDS = 1024  # up to here, working memory is taken for all ids at once


class Searched(Protocol):
    """The part of an engine that `Matches` uses: `version` counts its changes."""

    @property
    def guard(self) -> AbstractContextManager[object]: ...

    @property
    def version(self) -> int: ...


class Search(ABC):
    """A batch of events, encoded for an engine; each method is one search."""

    def __init__(self, engine: Searched, events: int) -> None:
        self.engine, self.version, self.events = engine, engine.version, events

    def compute(self, product: str) -> Any:
        """A product by its method's name; `StaleMatchesError` if the engine has changed."""
        with self.engine.guard:
            if self.engine.version != self.version:
                raise StaleMatchesError(
                    f"matches: subscriptions changed before {product!r} was computed, expected it to be "
                    "asked for before the engine's next change"
                )
            return getattr(self, product)()

    @abstractmethod
    def counts(self) -> Int64s:
        """As `Matches.counts`."""

    def any(self) -> npt.NDArray[np.bool_]:
        return self.counts() > 0

    @abstractmethod
    def interfaces(self) -> npt.NDArray[np.uint64]:
        """As `Matches.interfaces`."""

    @abstractmethod
    def ids(self) -> tuple[Int64s, Int64s]:
        """As `Matches.ids`."""


class _NoEngine:
    """The engine of matches that were computed without one."""

    guard = nullcontext()
    version = 0


class _IdsAlone(Search):
    """Known ids in place of a search, without interfaces."""

    def __init__(self, offsets: Int64s, ids: Int64s) -> None:
        super().__init__(_NoEngine(), len(offsets) - 1)
        self._answer = offsets, ids

    def counts(self) -> Int64s:
        return np.diff(self._answer[0])

    def interfaces(self) -> npt.NDArray[np.uint64]:
        raise CoveyError("matches of ids alone: they have no interfaces")

    def ids(self) -> tuple[Int64s, Int64s]:
        return self._answer


class Matches:
    """The matching subscriptions of every event of a batch; the module states how long it is valid. `offsets,
    ids = matches` unpacks `ids()`, `len(matches)` is the number of events, and `matches[i]` are the ids of
    event i. If other threads change the engine, hold its `guard` from `match` to the last product."""

    __slots__ = ("_any", "_counts", "_ids", "_interfaces", "_ordered", "_search")

    def __init__(self, search: Search) -> None:
        self._search = search
        self._any: npt.NDArray[np.bool_] | None = None
        self._counts: Int64s | None = None
        self._ids: tuple[Int64s, Int64s] | None = None
        self._interfaces: npt.NDArray[np.uint64] | None = None
        self._ordered: tuple[Int64s, Int64s] | None = None

    @classmethod
    def of(cls, offsets: Int64s, ids: Int64s) -> Matches:
        """Matches computed without an engine, from ids that ascend within each event."""
        matches = cls(_IdsAlone(offsets, ids))
        matches._ids = matches._ordered = offsets, ids
        return matches

    @property
    def counts(self) -> Int64s:
        """The number of matching subscriptions by event, int64[n_events]."""
        if self._counts is None:
            self._counts = self._search.compute("counts") if self._ids is None else np.diff(self._ids[0])
        return self._counts

    def any(self) -> npt.NDArray[np.bool_]:
        """Whether some subscription matches each event, bool[n_events]."""
        if self._any is None:
            known = self._counts is not None or self._ids is not None
            self._any = self.counts > 0 if known else self._search.compute("any")
        return self._any

    def interfaces(self) -> npt.NDArray[np.uint64]:
        """A bit set per event, uint64[n_events, words]: bit i % 64 of word i // 64 is set if interface i
        matches.

        There are words for the highest interface ever added. The search of an event ends once all interfaces
        in use match."""
        if self._interfaces is None:
            self._interfaces = self._search.compute("interfaces")
        return self._interfaces

    def ids(self) -> tuple[Int64s, Int64s]:
        """Offsets, int64[n_events + 1], and ids, int64[offsets[-1]]: `ids[offsets[i]:offsets[i + 1]]` are
        event i's, each once, in no stated order."""
        if self._ids is None:
            self._ids = self._search.compute("ids")
        return self._ids

    def ordered(self) -> tuple[Int64s, Int64s]:
        """As `ids`, ascending within each event. Sorting costs about 5 ns per id."""
        if self._ordered is None:
            is_fresh = self._ids is None
            offsets, ids = self.ids()
            self._ordered = offsets, _ascending(offsets, ids if is_fresh else ids.copy())
            if is_fresh:
                self._ids = self._ordered
        return self._ordered

    def to_arrow(self) -> pa.LargeListArray:
        """The ids of every event as a list of int64, without a copy of `ids`."""
        offsets, ids = self.ids()
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids))

    def per_event(self) -> Iterator[Int64s]:
        """The ids by event: views of `ids`."""
        offsets, ids = self.ids()
        return (ids[start:end] for start, end in pairwise(offsets.tolist()))

    def __getitem__(self, event: int) -> Int64s:
        """The ids of one event; `IndexError` for one outside the batch."""
        offsets, ids = self.ids()
        try:
            event = range(len(self))[operator.index(event)]
        except IndexError:
            raise IndexError(f"event {event}: expected one of {len(self)}") from None
        return ids[offsets[event] : offsets[event + 1]]

    def __iter__(self) -> Iterator[Int64s]:
        return iter(self.ids())

    def __len__(self) -> int:
        return self._search.events


def _ascending(offsets: Int64s, ids: Int64s) -> Int64s:
    from covey.matcher.jit.sort_kernels import DIGIT_BITS, sort_events

    most = len(ids) if len(ids) <= _FEW_IDS else int((offsets[1:] - offsets[:-1]).max(initial=0))
    if most > 1:
        sort_events(offsets, ids, np.empty(most, np.int64), np.empty(1 << DIGIT_BITS, np.int64))
    return ids
