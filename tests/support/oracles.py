"""An engine's answers against those of the naive engine."""

from __future__ import annotations

import numpy as np

from covey.matcher import Engine, EventBatch
from covey.matcher.engines.reference.naive import NaiveEngine


def compare(engine: Engine, oracle: NaiveEngine, batch: EventBatch) -> None:
    """Ids and interfaces; the oracle evaluates its filters once for both."""
    (offsets, ids), (expected_offsets, expected_ids) = engine.match(batch), oracle.match(batch)
    assert ids.tolist() == expected_ids.tolist()
    assert offsets.tolist() == expected_offsets.tolist()
    words = engine.match_interfaces(batch)
    expected = np.zeros((len(batch), words.shape[1]), np.uint64)
    events = np.repeat(np.arange(len(batch)), np.diff(offsets))
    interfaces = np.array([oracle.interface_of(i) for i in ids.tolist()], np.int64)
    bits = np.uint64(1) << (interfaces % 64).astype(np.uint64)
    np.bitwise_or.at(expected, (events, interfaces // 64), bits)
    assert np.array_equal(words, expected)
