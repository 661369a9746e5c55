"""Kernels on small inputs, against plain Python models. The suite runs these compiled; `test_compiling.py`
runs them with NUMBA_DISABLE_JIT=1, where an index out of bounds is an error and coverage is real."""

import random

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType
from covey.matcher.encoding.columns import Columns
from covey.matcher.engines.rows.ids import IdMap
from covey.matcher.engines.rows.row_kernels import NONE
from covey.matcher.events.int64 import MISSING
from covey.matcher.jit import sort_kernels as k
from covey.matcher.jit.kernel import INTERPRETED

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def numbers(values: object) -> Numbers:
    return np.array(values, dtype=np.int64)


def test_the_id_map_against_a_dict() -> None:
    choose = random.Random(1)
    ids = numbers(
        [choose.choice([-1, 1]) * (choose.randrange(2**62) if i % 2 else 64 * i) for i in range(200)]
    )
    by_row = ids.view(np.int32).reshape(-1, 2)
    map_, model = IdMap(), dict[int, int]()
    for _ in range(120):
        rows = choose.sample(range(200), choose.randrange(1, 12))
        entering = numbers([row for row in rows if int(ids[row]) not in model])
        leaving = numbers([row for row in rows if int(ids[row]) in model])
        map_.enter(by_row, entering)
        map_.remove(by_row, leaving)
        model.update((int(ids[row]), row) for row in entering.tolist())
        for row in leaving.tolist():
            del model[int(ids[row])]
        assert map_.find(by_row, ids).tolist() == [model.get(i, -1) for i in ids.tolist()]
        assert (len(map_), map_.find_one(by_row, int(ids[0]))) == (len(model), model.get(int(ids[0]), -1))


@pytest.mark.parametrize("step", [1, -3, 2**32, 2**56 + 2**20])
def test_the_id_map_takes_few_bytes_and_shrinks(step: int) -> None:
    count = 200 if INTERPRETED else 20_000
    ids, rows, map_ = step * (numbers(range(count)) - count // 2), numbers(range(count)), IdMap()
    by_row = ids.view(np.int32).reshape(-1, 2)
    if abs(step) == 1:
        by_row = by_row[:, :1].copy()
    for few in np.array_split(rows, 50):
        map_.enter(by_row[: 5 * few[-1] // 4 + 2], few)
    assert map_.nbytes < max(7 * count, 300)
    assert map_.find(by_row, ids).tolist() == rows.tolist()
    assert map_.first_known(by_row, numbers([2**62 + 1, 2**62 + 2])) == NONE
    few = np.random.default_rng(step % 7).permutation(rows)
    for leaving in np.array_split(few[count // 50 :], 30):
        map_.remove(by_row, leaving)
    assert map_.nbytes < max(count, 300)
    kept = set(few[: count // 50].tolist())
    assert map_.find(by_row, ids).tolist() == [row if row in kept else -1 for row in rows.tolist()]


@pytest.mark.parametrize("size", [0, 1, 2, 17, 300])
def test_ids_are_sorted_whatever_their_order(size: int) -> None:
    choose = random.Random(size)
    for order in ("random", "falling", "rising", "same"):
        values = [choose.randrange(-(2**63), 2**63) for _ in range(size)]
        if order != "random":
            values = [5] * size if order == "same" else sorted(values, reverse=order == "falling")
        padded = numbers([9, *values, -9])
        k.sort_range(padded, 1, size + 1)
        assert padded.tolist() == [9, *sorted(values), -9]


def test_strings_of_equal_beginnings_and_lengths_have_ids_of_their_own() -> None:
    event_type = EventType("T", {"x": "string"})
    columns = Columns(event_type)
    columns.test([0])
    texts = ["", *(prefix + c for prefix in ("", "a", "ab", "é") for c in "abcé")] + [
        f"{i:03}" for i in range(90)
    ]
    ids = [columns.strings.id_of(text) for text in texts[::2]]
    keys = columns.encode(EventBatch.from_pylist(event_type, [{"x": text} for text in [*texts, None]]))
    assert keys[:-1:2, 0].tolist() == ids
    assert set(keys[1:-1:2, 0].tolist()) == {0}
    assert keys[-1, 0] == MISSING
