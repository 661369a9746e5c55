"""The stores of all engines, row by row, against a model that evaluates every interval. Like
`test_kernels.py`, this runs compiled, and once more uncompiled from `test_compiling.py`."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from covey.matcher import EventType, create_engine, parse
from covey.matcher.engines.cluster.store import ClusterStore
from covey.matcher.engines.cluster.tuning.configuration import Policy
from covey.matcher.engines.reference.counting import CountingStore
from covey.matcher.engines.reference.propagation import PropagationStore
from covey.matcher.engines.reference.rete import ReteStore
from covey.matcher.engines.reference.scan import ScanStore
from covey.matcher.engines.reference.search_tree import SearchTreeStore
from covey.matcher.engines.rows.row_kernels import ROW_INTERFACE
from covey.matcher.engines.rows.store import RowStore
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.int64 import FIRST, INFINITY_KEY, LAST, MISSING, NAN_KEY, NOTHING

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

TYPE = EventType("T", {"a": "int64", "b": "int64", "c": "float64", "d": "string"})
COLUMNS = 6  # the four attributes, and two derived columns
Interval = tuple[int, int]

STORES: dict[str, Callable[[], RowStore]] = {
    "cluster": lambda: ClusterStore(TYPE, Policy.of("adaptive")),
    "cluster, dynamic, in two threads": lambda: ClusterStore(TYPE, Policy.of("dynamic"), 2),
    "cluster, propagation": lambda: ClusterStore(TYPE, Policy.of("propagation")),
    "counting": lambda: CountingStore(TYPE),
    "propagation": lambda: PropagationStore(TYPE, lookahead=True),
    "scan": lambda: ScanStore(TYPE),
    "rete": lambda: ReteStore(TYPE),
    "search_tree": lambda: SearchTreeStore(TYPE, None, True, True),
    "search_tree, nothing factored": lambda: SearchTreeStore(TYPE, 0, True, True),
    "search_tree, all factored": lambda: SearchTreeStore(TYPE, 4, True, True),
    "search_tree, as the first paper has it": lambda: SearchTreeStore(TYPE, 0, False, False),
    "search_tree, star edges always followed": lambda: SearchTreeStore(TYPE, 1, True, False),
}


def interval(choose: random.Random, column: int) -> Interval:
    """An interval that a plan may give a column."""
    if column >= 4:
        return choose.choice([(0, 0), (1, 1)])
    top = INFINITY_KEY if column == 2 else LAST
    low, high = sorted(choose.choices(range(8), k=2))
    forms = [
        (low, low),
        (low, low),
        (low, high),
        (FIRST, high),
        (low, top),
        (FIRST, LAST),
        (MISSING, MISSING),
        (high, low),
        (NOTHING, top),
        (FIRST, MISSING),
        (NAN_KEY, NAN_KEY) if column == 2 else (low, high),
    ]
    return choose.choice(forms)


def key(choose: random.Random, column: int) -> int:
    if choose.random() < 0.15:
        return MISSING
    if column >= 4:
        return choose.randrange(2)
    if column == 2 and choose.random() < 0.2:
        return choose.choice([NAN_KEY, INFINITY_KEY])
    return choose.choice([FIRST, LAST]) if choose.random() < 0.05 else choose.randrange(8)


class Model:
    def __init__(self, store: RowStore, choose: random.Random) -> None:
        self.store = store
        self.choose = choose
        self.rows: dict[int, tuple[tuple[int, ...], list[Interval]]] = {}

    def insert(self, count: int) -> None:
        size = self.choose.choice([0, 1, 2, 2, 3, 3, 4, 6])
        columns = tuple(sorted(self.choose.choices(range(COLUMNS), k=size)))
        rows = self.store.new_rows(count, 1)
        tests = {int(row): [interval(self.choose, column) for column in columns] for row in rows}
        shape = (size, count)
        lows = np.array([[t[i][0] for t in tests.values()] for i in range(size)], np.int64).reshape(shape)
        highs = np.array([[t[i][1] for t in tests.values()] for i in range(size)], np.int64).reshape(shape)
        self.store.arrays.ids[rows, 0] = rows + 1000
        self.store.arrays.rows[rows, ROW_INTERFACE] = rows % 70
        signature = self.store.signature(columns)
        self.store.insert(rows, signature, lows, highs)
        self.rows |= {row: (columns, each) for row, each in tests.items()}

    def some(self) -> tuple[tuple[int, ...], np.ndarray[tuple[int], np.dtype[np.int64]]]:
        columns = self.choose.choice(list(self.rows.values()))[0]
        alike = [row for row, (c, _) in self.rows.items() if c == columns]
        chosen = self.choose.sample(alike, self.choose.randrange(1, len(alike) + 1))
        return columns, np.array(chosen, dtype=np.int64)

    def remove(self) -> None:
        if self.rows:
            _, rows = self.some()
            self.store.remove(rows)
            self.store.free_rows(rows, 1)
            for row in rows.tolist():
                del self.rows[row]

    def write(self) -> None:
        if not self.rows:
            return
        columns, rows = self.some()
        if columns:
            test = self.choose.randrange(len(columns))
            fresh = [interval(self.choose, columns[test]) for _ in rows]
            for end in (0, 1):
                values = np.array([each[end] for each in fresh], dtype=np.int64)
                self.store.write_parts(rows, [1 + 2 * test + end], values.reshape(1, -1))
            for row, each in zip(rows.tolist(), fresh, strict=True):
                self.rows[row][1][test] = each

    def check(self, events: int) -> None:
        keys = [[key(self.choose, column) for column in range(COLUMNS)] for _ in range(events)]
        matrix = np.array(keys, dtype=np.int64).reshape(events, COLUMNS)
        self.store.begin_match(matrix)
        offsets, ids = self.store.ids(matrix, shared=True)
        counts = self.store.counts(matrix, shared=True)
        bits = np.zeros((events, 2), dtype=np.uint64)
        self.store.set_interfaces(matrix, bits, 70)
        for e, event in enumerate(keys):
            expected = [
                row
                for row, (columns, tests) in sorted(self.rows.items())
                if all(low <= event[c] <= high for c, (low, high) in zip(columns, tests, strict=True))
            ]
            assert sorted(ids[offsets[e] : offsets[e + 1]].tolist()) == [row + 1000 for row in expected]
            assert counts[e] == len(expected)
            interfaces = {row % 70 for row in expected}
            assert {i for i in range(70) if int(bits[e, i // 64]) >> (i % 64) & 1} == interfaces
        for row in self.choose.sample(sorted(self.rows), min(5, len(self.rows))):
            columns, tests = self.rows[row]
            lows, highs = self.store.read(np.array([row]), len(columns))
            assert list(zip(lows[:, 0].tolist(), highs[:, 0].tolist(), strict=True)) == tests


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("seed", range(3))
def test_rows_under_churn(name: str, seed: int) -> None:
    choose = random.Random(seed)
    model = Model(STORES[name](), choose)
    for _ in range(60):
        action = choose.choice(["insert", "insert", "remove", "write", "write"])
        if action == "insert":
            model.insert(choose.choice([1, 1, 5, 40]))
        elif action == "remove":
            model.remove()
        else:
            model.write()
        model.check(choose.choice([0, 1, 6]))
    while model.rows:
        model.remove()
    model.check(5)
    model.insert(20)
    model.check(5)


@pytest.mark.parametrize("name", STORES)
def test_rows_change_after_they_were_arranged(name: str) -> None:
    """Enough rows that waiting ones are sorted, arranged or planted before the changes."""
    choose = random.Random(7)
    model = Model(STORES[name](), choose)
    for _ in range(12):
        model.insert(150)
    model.check(8)
    for _ in range(12):
        model.write()
        model.remove()
        model.insert(60)
        model.check(2)


def test_equal_predicates_share_a_number_while_rows_have_them() -> None:
    store = CountingStore(TYPE)
    rows = store.new_rows(3, 1)
    lows, highs = np.array([[1, 1, 2], [3, 3, 3]]), np.array([[1, 1, 9], [LAST, LAST, LAST]])
    signature = store.signature((0, 1))
    store.insert(rows, signature, lows, highs)
    assert store.summary() == "3 predicates, 3 young rows"
    store.remove(rows[:1])
    assert store.summary() == "3 predicates, 2 young rows"
    store.remove(rows[1:])
    assert store.summary() == "0 predicates, 0 young rows"
    store.insert(rows, store.signature((0, 1)), lows, highs)
    assert store.summary() == "3 predicates, 3 young rows"


def test_the_noncanonical_engine_evaluates_trees() -> None:
    engine, oracle = create_engine("noncanonical", TYPE), create_engine("naive", TYPE)
    texts = [
        "(a == 1 or b > 2) and (c < 3 or not exists c)",
        "a != 1 and (b in (1, 2) or (c >= 1 and c <= 2 and d == 'x'))",
        "(a == $v or (b == $v and (c == 1 or c == 2))) and d != 'y'",
        "a not in (1, 2) or d prefix 'x' or exists b",
        "true",
    ]
    for i, text in enumerate(texts):
        values = {"v": 1} if "$v" in text else {}
        engine.add(i, parse(text, TYPE), values)
        oracle.add(i, parse(text, TYPE), values)
    choose = random.Random(3)
    rows: list[dict[str, object]] = [
        {
            "a": choose.choice([None, 1, 2, 3]),
            "b": choose.choice([None, 1, 3]),
            "c": choose.choice([None, 1.0, 2.5, float("nan")]),
            "d": choose.choice([None, "x", "xy", "y"]),
        }
        for _ in range(60)
    ]
    batch = EventBatch.from_pylist(TYPE, rows)
    for value in (1, 3):
        engine.update(2, {"v": value})
        oracle.update(2, {"v": value})
        for ours, theirs in zip(engine.match(batch).ordered(), oracle.match(batch).ordered(), strict=True):
            assert ours.tolist() == theirs.tolist()
    text = engine.explain(rows[0], 0)
    assert "of these predicates" in text
    assert "(1 or 2)" in text
