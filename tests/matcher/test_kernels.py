"""Kernels on small inputs, against plain Python models.

The suite runs these compiled; `test_compiling.py` runs them once more with NUMBA_DISABLE_JIT=1, where an
index out of bounds is an error and coverage is real.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType, compile_kernels
from covey.matcher.columns import Columns
from covey.matcher.engines import cluster_kernels as k
from covey.matcher.engines.cluster_store import ClusterStore
from covey.matcher.engines.ids import IdMap
from covey.matcher.keys import MISSING

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


@pytest.fixture(autouse=True)
def kernels() -> None:
    compile_kernels()


def numbers(values: object) -> Numbers:
    return np.array(values, dtype=np.int64)


def test_the_id_map_against_a_dict() -> None:
    choose = random.Random(1)
    ids = numbers(
        [choose.choice([-1, 1]) * (choose.randrange(2**62) if i % 2 else 64 * i) for i in range(200)]
    )
    map_, model = IdMap(), dict[int, int]()
    for _ in range(120):
        rows = choose.sample(range(200), choose.randrange(1, 12))
        entering = numbers([row for row in rows if int(ids[row]) not in model])
        leaving = numbers([row for row in rows if int(ids[row]) in model])
        map_.enter(ids, entering)
        map_.leave(ids, leaving)
        model.update((int(ids[row]), row) for row in entering.tolist())
        for row in leaving.tolist():
            del model[int(ids[row])]
        assert map_.find(ids, ids).tolist() == [model.get(i, -1) for i in ids.tolist()]
        assert (len(map_), map_.find_one(ids, int(ids[0]))) == (len(model), model.get(int(ids[0]), -1))


class Model:
    """Rows as a dict, and the answers that follow from it."""

    def __init__(self, access: dict[int, tuple[int, ...]], tests: dict[int, tuple[int, ...]]) -> None:
        self.store = ClusterStore()
        self.tables = {number: (self.store.table(columns), columns) for number, columns in access.items()}
        self.signatures = {n: (self.store.signature(columns), columns) for n, columns in tests.items()}
        self.rows: dict[int, tuple[int, int, list[int], list[list[int]]]] = {}

    def insert(self, count: int, table: int, signature: int, choose: random.Random) -> None:
        firsts = self.store.new_rows(count, 1)
        self.store.arrays.ids[firsts] = firsts + 1000
        self.store.arrays.rows[firsts, k.ROW_FIRST] = firsts
        self.store.arrays.rows[firsts, k.ROW_INTERFACE] = firsts % 70
        width, size = len(self.tables[table][1]), len(self.signatures[signature][1])
        keys = numbers([[choose.randrange(3) for _ in range(count)] for _ in range(width)]).reshape(
            width, count
        )
        bounds = numbers([[choose.randrange(4) for _ in range(count)] for _ in range(2 * size)])
        bounds = bounds.reshape(2 * size, count)
        lows, highs = bounds[:size].copy(), bounds[size:].copy()
        self.store.insert(firsts, self.tables[table][0], self.signatures[signature][0], keys, lows, highs)
        for i, row in enumerate(firsts.tolist()):
            both = [[int(a), int(b)] for a, b in zip(lows[:, i], highs[:, i], strict=True)]
            self.rows[row] = (table, signature, keys[:, i].tolist(), both)

    def remove(self, rows: list[int]) -> None:
        self.store.remove(numbers(rows))
        self.store.free_rows(numbers(rows), 1)
        for row in rows:
            del self.rows[row]

    def write(self, row: int, test: int, end: int, value: int) -> None:
        self.store.write(numbers([row]), 1 + 2 * test + end, numbers([value]))
        self.rows[row][3][test][end] = value

    def holds(self, row: int, event: list[int]) -> bool:
        table, signature, keys, bounds = self.rows[row]
        hashed = [event[column] for column in self.tables[table][1]]
        tested = [event[column] for column in self.signatures[signature][1]]
        return hashed == keys and all(low <= x <= high for x, (low, high) in zip(tested, bounds, strict=True))

    def check(self, choose: random.Random) -> None:
        events = [[choose.choice([MISSING, 0, 1, 2, 3]) for _ in range(4)] for _ in range(6)]
        matrix = numbers(events)
        offsets, ids = self.store.match(matrix, shared=choose.random() < 0.5, ordered=True)
        bits = np.zeros((len(events), 2), dtype=np.uint64)
        self.store.match_bits(matrix, bits, 70)
        for e, event in enumerate(events):
            expected = sorted(row for row in self.rows if self.holds(row, event))
            assert ids[offsets[e] : offsets[e + 1]].tolist() == [row + 1000 for row in expected]
            wanted = sum({1 << row % 70 for row in expected})
            assert int(bits[e, 0]) + (int(bits[e, 1]) << 64) == wanted
        for row, (table, signature, keys, bounds) in self.rows.items():
            found = self.store.read(numbers([row]), len(keys), len(bounds))
            assert found[0][:, 0].tolist() == keys
            assert [[int(a), int(b)] for a, b in zip(found[1][:, 0], found[2][:, 0], strict=True)] == bounds
            assert self.store.signatures_of(numbers([row])).tolist() == [self.signatures[signature][0]]
            assert table in self.tables


def test_the_store_against_a_model() -> None:
    choose = random.Random(2)
    model = Model({0: (), 1: (0,), 2: (1, 0)}, {0: (), 1: (2,), 2: (3, 2, 3)})
    for step in range(60):
        model.insert(choose.randrange(1, 12), choose.randrange(3), choose.randrange(3), choose)
        if step % 3 == 0:
            model.remove(choose.sample(sorted(model.rows), len(model.rows) // 2))
        for row in choose.sample(sorted(model.rows), min(3, len(model.rows))):
            if model.rows[row][3]:
                model.write(
                    row, choose.randrange(len(model.rows[row][3])), choose.randrange(2), choose.randrange(4)
                )
        model.check(choose)
    model.remove(sorted(model.rows))
    model.check(choose)
    arrays = model.store.arrays
    assert arrays.tables[:, k.TABLE_BUCKETS].sum() == arrays.signatures[:, k.SIGNATURE_ROWS].sum() == 0


def test_large_clusters_chain_blocks_and_lose_none() -> None:
    choose = random.Random(3)
    model = Model({0: ()}, {0: (2,)})
    model.insert(700, 0, 0, choose)
    model.check(choose)
    model.remove(choose.sample(sorted(model.rows), 500))
    model.insert(100, 0, 0, choose)
    model.check(choose)


def test_room_that_was_given_back_is_used_again() -> None:
    choose = random.Random(4)
    model = Model({0: (0,)}, {0: (2, 3)})
    for _ in range(3):
        model.insert(200, 0, 0, choose)
        top = int(model.store.arrays.state[k.POOL_TOP])
        model.remove(sorted(model.rows))
    assert int(model.store.arrays.state[k.POOL_TOP]) == top


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


def test_strings_of_equal_beginnings_and_lengths_have_their_own_codes() -> None:
    event_type = EventType("T", {"x": "string"})
    columns = Columns(event_type)
    columns.test([0])
    texts = ["", *(prefix + c for prefix in ("", "a", "ab", "é") for c in "abcé")] + [
        f"{i:03}" for i in range(90)
    ]
    codes = [columns.strings.code(text) for text in texts[::2]]
    keys, _ = columns.encode(EventBatch.from_pylist(event_type, [{"x": text} for text in [*texts, None]]))
    assert keys[:-1:2, 0].tolist() == codes
    assert set(keys[1:-1:2, 0].tolist()) == {0}
    assert keys[-1, 0] == MISSING
