"""The statistics that a hashing configuration is chosen by: the rows in the store, and a sample of events.

The sample is some events of every batch, the newest `EVENTS` of them. Without any, events are assumed to be
distributed as the constants of the subscriptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster.tuning.costs import Equalities
from covey.matcher.engines.cluster.tuning.steps import Steps, in_steps
from covey.matcher.events.int64 import MISSING

EVENTS = 512
_PER_BATCH = 32
_SORTED_PER_UNIT = 8
_FEW_NARROWER = 1 / 64  # ranges that share the class of wider ones: a table of their own costs more probes


@dataclass(slots=True)
class EventSample:
    """Keys of some of `count` events; those of small batches are not copied, so nobody may write them."""

    count: int = 0
    _parts: deque[Keys] = field(default_factory=deque)
    _sampled: int = 0

    def add(self, keys: Keys) -> None:
        """Sample a batch; takes some microseconds."""
        events = len(keys)
        self.count += events
        if events > _PER_BATCH:
            keys = keys[:: events // _PER_BATCH][:_PER_BATCH].copy()
            events = _PER_BATCH
        if events:
            self._parts.append(keys)
            self._sampled += events
            while self._sampled > EVENTS:
                self._sampled -= len(self._parts.popleft())

    def keys(self, columns: int) -> Keys:
        """The sampled events that have so many columns: int64[n, columns]."""
        parts = [part[:, :columns] for part in self._parts if part.shape[1] >= columns]
        return np.concatenate(parts) if parts else np.zeros((0, columns), dtype=np.int64)

    def of_column(self, column: int) -> Keys:
        parts = [part[:, column] for part in self._parts if column < part.shape[1]]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SignatureUse:
    columns: tuple[int, ...]
    shapes: tuple[int, ...]
    rows: int

    @property
    def equal_columns(self) -> frozenset[int]:
        pairs = zip(self.columns, self.shapes, strict=True)
        return frozenset([column for column, shape in pairs if shape == Shape.EQUAL])


@dataclass(frozen=True, slots=True)
class RangeSample:
    """The two narrowest ranges of sampled rows, as `sample_ranges` writes them, and the rows' signatures."""

    signatures: npt.NDArray[np.int64]
    ranges: npt.NDArray[np.int64]  # [rows, 7]

    def span(self) -> tuple[int, int]:
        """Widths in codes that few of these ranges stay below, and that nearly all stay within."""
        widths = self.ranges[:, [1, 4]][self.ranges[:, [0, 3]] >= 0]
        if not len(widths):
            return 0, 1
        narrow, wide = np.quantile(widths, [_FEW_NARROWER, 0.999])
        return int(narrow), int(wide * 1.02) + 1


@dataclass(frozen=True, slots=True)
class Statistics:
    """`signatures` with rows, by number; all signatures' `lines` (`layout/arrays.py`), to which the choice of
    a configuration writes the hashed tests; `reaches` of the classes of ranges.
    """

    signatures: dict[int, SignatureUse]
    lines: npt.NDArray[np.int32]
    equalities: Equalities
    ranges: RangeSample
    reaches: Keys

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        return np.array(list(self.signatures), dtype=np.int64)


def selectivity(constants: Keys, events: Keys) -> tuple[float, int]:
    """The probability that an event has the constant of a subscription, and how many constants there are."""
    distinct, counts = np.unique(constants, return_counts=True)
    if not len(distinct):
        return 1.0, 1
    shares = counts / counts.sum()
    if not len(events):
        return float((shares**2).sum()), len(distinct)
    at = np.searchsorted(distinct, events).clip(max=len(distinct) - 1)
    passed = np.where((distinct[at] == events) & (events != MISSING), shares[at], 0.0)
    return max(float(passed.mean()), 1e-6), len(distinct)


def equalities(
    signatures: dict[int, SignatureUse],
    samples: Sequence[Keys],
    events: EventSample,
    moves: npt.NDArray[np.float64],
) -> Steps[Equalities]:
    """From samples[c] of the bounds on each column, and moves[c], new values of its equalities per event."""
    rows: dict[tuple[int, ...], int] = {}
    known = min(len(samples), len(moves))  # columns that are newer are left out
    for units, uses in in_steps(list(signatures.values())):
        for use in uses:
            equal = tuple(sorted(c for c in use.equal_columns if c < known))
            if equal:
                rows[equal] = rows.get(equal, 0) + use.rows
        yield units
    columns = tuple(sorted({column for equal in rows for column in equal}))
    place = {column: i for i, column in enumerate(columns)}
    has = np.zeros((len(rows), len(columns)), dtype=np.bool_)
    for g, equal in enumerate(rows):
        has[g, [place[column] for column in equal]] = True
    measured = []
    for c in columns:
        measured.append(selectivity(samples[c], events.of_column(c)))
        yield len(samples[c]) // _SORTED_PER_UNIT
    return Equalities(
        columns,
        has,
        np.array(list(rows.values()), dtype=np.float64),
        np.array([passed for passed, _ in measured]),
        np.array([distinct for _, distinct in measured], dtype=np.float64),
        moves[list(columns)],
    )
