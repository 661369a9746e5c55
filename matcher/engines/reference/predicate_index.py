"""The predicate index, phase one of the two-phase algorithms (drawn in `index_kernels.py`)."""

from __future__ import annotations

import numpy as np

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import index_kernels as k
from covey.matcher.engines.reference.reference_store import ReferenceStore, Tests
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.events.int64 import FIRST, MISSING


def classes_of(lows: Keys, highs: Keys, tops: Keys) -> Numbers:
    """The class of every interval."""
    classes = np.where(lows == FIRST, k.BELOW, np.where(highs == tops, k.ABOVE, k.RANGE))
    return np.where(lows > highs, k.EMPTY, np.where(lows == highs, k.POINT, classes)).astype(np.int64)


def index_predicates(tests: Tests, store: ReferenceStore) -> tuple[k.Index, Numbers]:
    """An index of the predicates of tests, and the rank of each test's."""
    _, first, of_test = np.unique(tests.predicates, return_index=True, return_inverse=True)
    columns, lows, highs = tests.columns[first], tests.lows[first], tests.highs[first]
    width = int(columns.max(initial=-1)) + 1
    classes = classes_of(lows, highs, store.tops_of(columns))
    edges = np.where(classes == k.BELOW, highs, lows)
    segments = columns * k.CLASSES + classes
    order = np.lexsort((edges, segments))
    ends = np.searchsorted(segments[order], np.arange(width * k.CLASSES + 1))
    highs = highs[order]
    index = k.Index(
        segments=np.stack([ends[:-1], ends[1:]], axis=1).reshape(width, k.CLASSES, 2),
        tops=store.tops_of(np.arange(width)),
        edges=edges[order],
        highs=highs,
        near=_zones(highs, k.NEAR),
        far=_zones(highs, k.FAR),
        spans=np.zeros((len(order) + 1, 2), dtype=np.int64),
    )
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return index, ranks[of_test.reshape(-1)]


def index_bytes(index: k.Index) -> int:
    """Its memory, without working memory."""
    return sum(part.nbytes for part in index[:-1])


def _zones(highs: Keys, bits: int) -> Keys:
    """The largest of every 2**bits values."""
    padded = np.full(((len(highs) >> bits) + 1) << bits, MISSING, dtype=np.int64)
    padded[: len(highs)] = highs
    zones: Keys = padded.reshape(-1, 1 << bits).max(axis=1)
    return zones
