"""What a hashing configuration is chosen by: the subscriptions that there are, and a sample of the events
seen.

The engine keeps the sample itself: some events of every batch, the newest `EVENTS` of them. Until there are
any, events are taken to be like the subscriptions' constants.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.encoding.keys import MISSING, Keys
from covey.matcher.engines.cluster.tuning.costs import Equalities

EVENTS = 512
_PER_BATCH = 32


@dataclass(slots=True)
class EventSample:
    """Keys of some of the events seen, and how many there were."""

    seen: int = 0
    _parts: deque[Keys] = field(default_factory=lambda: deque(maxlen=EVENTS // _PER_BATCH))

    def note(self, keys: Keys) -> None:
        """A batch of events has been matched; cost: some microseconds."""
        self.seen += len(keys)
        if len(keys):
            self._parts.append(keys[:: max(1, len(keys) // _PER_BATCH)][:_PER_BATCH].copy())

    def keys(self, columns: int) -> Keys:
        """The sampled events that have so many columns, int64[n, columns]; those before a column came have
        not.
        """
        parts = [part[:, :columns] for part in self._parts if part.shape[1] >= columns]
        return np.concatenate(parts) if parts else np.zeros((0, columns), dtype=np.int64)

    def of_column(self, column: int) -> Keys:
        """The keys of the sampled events on a column."""
        parts = [part[:, column] for part in self._parts if column < part.shape[1]]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def selectivity(constants: Keys, events: Keys) -> tuple[float, int]:
    """The probability that an event has the constant of a subscription, and how many different constants
    there are.
    """
    known, counts = np.unique(constants, return_counts=True)
    if not len(known):
        return 1.0, 1
    shares = counts / counts.sum()
    if not len(events):
        return float((shares**2).sum()), len(known)
    at = np.searchsorted(known, events).clip(max=len(known) - 1)
    passed = np.where((known[at] == events) & (events != MISSING), shares[at], 0.0)
    return max(float(passed.mean()), 1e-6), len(known)


def equalities(
    signatures: dict[int, tuple[tuple[int, ...], tuple[int, ...], int]],
    samples: Keys,
    counts: npt.NDArray[np.int64],
    events: EventSample,
    moves: npt.NDArray[np.float64],
) -> Equalities:
    """Statistics of the equalities of signatures, number: (columns, shapes, rows), and samples[c,
    :counts[c]] of the bounds on each column, and moves[c], how many new values of them come with every event.
    """
    rows: dict[tuple[int, ...], int] = {}
    for columns, shapes, count in signatures.values():
        equal = tuple(sorted({c for c, s in zip(columns, shapes, strict=True) if s == Shape.EQUAL}))
        if equal:
            rows[equal] = rows.get(equal, 0) + count
    known = tuple(sorted({column for equal in rows for column in equal}))
    place = {column: i for i, column in enumerate(known)}
    has = np.zeros((len(rows), len(known)), dtype=np.bool_)
    for g, equal in enumerate(rows):
        has[g, [place[column] for column in equal]] = True
    measured = [selectivity(samples[c, : counts[c]], events.of_column(c)) for c in known]
    return Equalities(
        known,
        has,
        np.array(list(rows.values()), dtype=np.float64),
        np.array([passed for passed, _ in measured]),
        np.array([distinct for _, distinct in measured], dtype=np.float64),
        moves[list(known)],
    )
