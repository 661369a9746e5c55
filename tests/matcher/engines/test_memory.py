"""`memory_bytes` is near what the process holds, Python's objects included."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType, create_engine, parse

WIDE = EventType("Wide", {f"a{i}": "int64" for i in range(16)})


def traced() -> tuple[int, int]:
    """The bytes of arrays, and those of Python's objects."""
    gc.collect()
    snapshot = tracemalloc.take_snapshot()
    sizes = []
    for of_arrays in (True, False):
        chosen = snapshot.filter_traces([tracemalloc.DomainFilter(of_arrays, np.lib.tracemalloc_domain)])
        sizes.append(sum(trace.size for trace in chosen.traces))
    return sizes[0], sizes[1]


@pytest.mark.parametrize("structures", [1, 500])
def test_memory_bytes_are_near_those_allocated(structures: int) -> None:
    create_engine("cluster", WIDE)  # compiles, and fills caches
    texts = [" and ".join(f"a{i} == $v{i}" for i in chosen) for chosen in combinations(range(16), 4)][
        :structures
    ]
    event = EventBatch.from_pylist(WIDE, [{f"a{i}": 1 for i in range(16)}])
    each = 60_000 // structures
    tracemalloc.start()
    try:
        before = traced()
        engine = create_engine("cluster", WIDE)
        for number, text in enumerate(texts):
            filter = parse(text, WIDE)
            values = {name: np.arange(each) % 35 for name in filter.variables}
            engine.add_many(np.arange(each) + number * each, filter, values)
            del filter, values
        engine.match(event).ids()
        sizes = engine.memory_bytes()
        arrays, objects = (after - start for after, start in zip(traced(), before, strict=True))
    finally:
        tracemalloc.stop()
    python = sizes.pop("plans, signatures and names")
    assert 0.3 * arrays < sum(sizes.values()) < 1.1 * arrays
    if structures > 1:
        assert 0.4 * objects < python < 1.2 * objects
    assert python < 20_000 + 5_000 * structures
