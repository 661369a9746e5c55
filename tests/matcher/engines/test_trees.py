"""Deep and long trees in all engines, under churn against an independent oracle; and access rows."""

import random

import numpy as np
import pytest
from draws import each_seed
from random_trees import T, Truth, bushy, deep, events, joined

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.compile.tree_plan import AND, OR, access_rows, inner_word
from covey.matcher.engine import engine_names
from covey.matcher.engines.trees.engine import TreeEngine


@pytest.mark.parametrize("name", engine_names())
@each_seed("trees under churn")
def test_trees_under_churn(name: str, seed: int) -> None:
    choose = random.Random(seed)
    kinds = [
        lambda: deep(choose, 50),
        lambda: bushy(choose, 500),
        lambda: deep(choose, choose.randint(2, 8)),
        lambda: bushy(choose, choose.randint(3, 40), choose.choice(["and", "or"])),
    ]
    trees = [choose.choice(kinds)() for _ in range(12)] + [kinds[0](), kinds[1]()]
    if choose.random() < 0.5:
        trees = [joined("and", [(f"b == {n % 3}", _b_is(n % 3)), tree]) for n, tree in enumerate(trees)]
    filters = [parse(text, T) for text, _ in trees]
    engine = create_engine(name, T)
    live: dict[int, tuple[Truth, dict[str, int]]] = {}
    variables: dict[int, list[str]] = {}
    for step in range(6):
        for n in range(10):
            number, chosen = 100 * step + n, choose.randrange(len(trees))
            values = {"x": choose.randrange(4), "y": choose.randrange(8)}
            mine = {v: values[v] for v in filters[chosen].variables}
            engine.add(number, filters[chosen], mine)
            live[number] = trees[chosen][1], {**values}
            variables[number] = list(mine)
        for number in choose.sample(sorted(live), 4):
            engine.remove(number)
            del live[number]
        for number in choose.sample(sorted(live), 5):
            changed = {v: choose.randrange(8) for v in variables[number] if choose.random() < 0.7}
            engine.update(number, changed)
            live[number][1].update(changed)
        if step == 3:
            engine.widen(EventType("T", {**T.attributes, "e": "int64"}))
        rows = events(choose, 40)
        matches = engine.match(EventBatch.from_pylist(engine.event_type, rows))
        offsets, ids = matches.ordered()
        for n, event in enumerate(rows):
            expected = [number for number, (truth, values) in sorted(live.items()) if truth(event, values)]
            assert ids[offsets[n] : offsets[n + 1]].tolist() == expected, (seed, event)
        assert engine.event_ids(EventBatch.from_pylist(engine.event_type, rows[:1])).tolist() == (
            ids[: offsets[1]].tolist()
        )
    engine.remove_many(np.array(sorted(live)))
    assert len(engine) == 0


def _b_is(value: int) -> Truth:
    return lambda event, _: event.get("b") == value


def tree(*parts: int | list[int], operator: int) -> list[int]:
    words = [word for part in parts for word in ([part] if isinstance(part, int) else part)]
    return [inner_word(operator, len(words)), *words]


def test_access_rows_are_few_selective_leaves() -> None:
    either = tree(1, 2, operator=OR)
    both = tree(0, either, operator=AND)
    assert access_rows(both, [1e-4, 0.5, 0.3]).rows == ((0,),)
    assert access_rows(both, [0.5, 0.01, 0.01]).rows == ((1, 0), (2, 0))
    assert access_rows(either, [1.0, 0.01, 1.0]).rows == ((),)
    assert access_rows(tree(both, 3, operator=OR), [1e-4, 0.5, 0.5, 0.1]).rows == ((0,), (3,))


def test_a_tree_is_evaluated_only_on_what_its_equality_lets_through() -> None:
    engine = TreeEngine(T)
    text = "a == $x and " + " and ".join(f"(b == {i} or c < {i})" for i in range(8))
    engine.add_many(np.arange(1000), parse(text, T), {"x": np.arange(1000)})
    keys = engine.columns.encode(EventBatch.from_pylist(T, [{"a": 7, "b": 1, "c": 0}]))
    engine.store.begin_match(keys)
    _, candidates = engine.store.access.ids(keys, shared=False)
    assert candidates.tolist() == [7]
    engine.update(7, {"x": 2000})
    assert engine.match(EventBatch.from_pylist(T, [{"a": 7, "b": 1, "c": -1}])).ordered()[1].tolist() == []
    assert "access rows: table (a): " in engine.render()


def test_trees_give_their_memory_back() -> None:
    engine = TreeEngine(T)
    choose = random.Random(5)
    for _ in range(3):
        for number in range(50):
            filter = parse(bushy(choose, 30)[0], T)
            engine.add(number, filter, dict.fromkeys(filter.variables, 3))
        size = sum(engine.memory_bytes().values())
        engine.remove_many(np.arange(50))
        assert sum(engine.memory_bytes().values()) < size
        assert len(engine.store.access.signatures) == 0
