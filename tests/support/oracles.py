"""An engine's answers against another's, usually the naive one's."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from covey.matcher import Engine, EventBatch, Filter, Matches
from covey.matcher.engine import bits_of, create_engine


def compare(engine: Engine, oracle: Engine, batch: EventBatch) -> None:
    """Ids, counts and interfaces; the oracle evaluates its filters once for all."""
    expected = oracle.match(batch)
    check_matches(engine.match(batch), expected)
    assert np.array_equal(engine.match(batch).counts, expected.counts)
    bits, expected_bits = engine.match(batch).interfaces(), expected.interfaces()
    words = min(bits.shape[1], expected_bits.shape[1])
    assert np.array_equal(bits[:, :words], expected_bits[:, :words])
    assert not bits[:, words:].any()
    assert not expected_bits[:, words:].any()
    check_one_event(engine, batch.slice(len(batch) // 2, 1), oracle)


def compare_under_churn(
    engine: Engine,
    filter: Filter,
    values: Callable[[np.random.Generator, int, float], Mapping[str, Any]],
    batch: EventBatch,
    check: Callable[[], int],
    *,
    size: int,
) -> None:
    """Compare an engine with the naive one while so many subscriptions of a filter come, move and go.
    `values` draws values for a number of them, at a growing spread; `check` counts where they are."""
    engines = [engine, create_engine("naive", engine.event_type)]

    def change(step: int, count: int, moved: int, spread: float) -> None:
        for each in engines:
            draw = np.random.default_rng(step)
            chosen = draw.choice(size, count, replace=False)
            each.update_many(chosen, values(draw, count, spread))
            each.update(int(chosen[0]), {name: v[0] for name, v in values(draw, 1, spread).items()})
            each.remove_many(chosen[:moved])
            each.add_many(chosen[:moved], filter, values(draw, moved, 1.0), interface=3)

    for each in engines:
        draw = np.random.default_rng(1)
        each.add_many(np.arange(size), filter, values(draw, size, 1.0), interface=np.arange(size) % 90)
    compare(*engines, batch)
    assert check() >= 2
    for step in range(3):
        change(step, 250, 100, (1 + step) / 3)
        check()
        compare(*engines, batch)
        assert check() >= 2
    for first in (0, 1):
        for each in engines:
            each.remove_many(np.arange(first, size, 2))
        check()
        compare(*engines, batch)
    assert check() == 0


def check_one_event(engine: Engine, event: EventBatch, oracle: Engine) -> None:
    """`event_ids` and `event_interfaces` for one event, in Arrow columns and in packed ones."""
    if not len(event):
        return
    expected = oracle.match(event)
    for batch in (event, EventBatch.from_pylist(event.event_type, event.to_pylist())):
        ids = engine.event_ids(batch)
        assert ids.dtype == np.int64
        assert ids.tolist() == expected.ordered()[1].tolist()
        assert engine.event_interfaces(batch) == bits_of(expected.interfaces())


def check_matches(matches: Matches, expected: Matches) -> None:
    """The ids of every event, in any order and form."""
    offsets, ids = matches
    expected_offsets, expected_ids = expected.ordered()
    assert offsets.dtype == ids.dtype == np.int64
    assert offsets.tolist() == expected_offsets.tolist()
    same, ascending = matches.ordered()
    assert same.tolist() == expected_offsets.tolist()
    assert ascending.tolist() == expected_ids.tolist()
    lists = [part.tolist() for part in np.split(expected_ids, expected_offsets[1:-1])][: len(matches)]
    assert [sorted(part) for part in matches.to_arrow().to_pylist()] == lists
    assert [sorted(part.tolist()) for part in matches.per_event()] == lists
    assert [sorted(matches[event].tolist()) for event in range(len(matches))] == lists
    assert matches.counts.tolist() == [len(part) for part in lists]


def check_products(engine: Engine, batch: EventBatch, expected: Matches) -> None:
    """Every product of `Matches`, by its own search, and from cached ids."""
    assert engine.match(batch).counts.tolist() == expected.counts.tolist()
    assert engine.match(batch).any().tolist() == expected.any().tolist()
    assert engine.match(batch).interfaces().tolist() == expected.interfaces().tolist()
    assert engine.match(batch).ordered()[1].tolist() == expected.ordered()[1].tolist()
    matches = engine.match(batch)
    check_matches(matches, expected)
    assert matches.any().tolist() == expected.any().tolist()
    assert matches.interfaces().tolist() == expected.interfaces().tolist()
