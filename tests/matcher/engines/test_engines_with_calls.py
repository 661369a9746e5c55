"""Every engine with named operators, against `Filter.matches` under churn; and operators' faults."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from draws import each_seed
from named_operators import registered

from covey.matcher import (
    CoveyError,
    Engine,
    EventBatch,
    EventType,
    FilterError,
    Kind,
    SubscriptionError,
    VariableError,
    create_engine,
    parse,
)
from covey.matcher.engine import engine_names
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.strategies import STRATEGIES
from covey.matcher.filters.filter import Filter
from covey.matcher.operators.named_operator import NamedOperator, Parameter

QUOTE = EventType("Quote", {"n": "int64", "x": "float64", "word": "string", "b": "bool", "t": "timestamp"})
WORDS = ["", "a", "ab", "abc", "b", "bcd", "é"]
VARIABLES = {
    "c": [-2, 0, 1, 2.5, 4], "r": [0, 1, 2.5, 40], "l": [0, 1, 2, 3, 3.5], "p": [-1, 0, 1, 2, 3],
    "w": WORDS, "q": WORDS,
}  # fmt: skip


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with registered():
        yield


class Texts:
    """Random filters in the language, with calls, free variables, constraints and `or`."""

    def __init__(self, random: random.Random) -> None:
        self.r = random

    def number(self, variable: str) -> str:
        value = self.r.choice(VARIABLES[variable])
        shapes = [f"${variable}", f"2 * ${variable}", f"${variable} + 1", str(value), str(value)]
        return self.r.choice(shapes)

    def predicate(self) -> str:
        number, word = self.number("p"), self.r.choice(["$q", '"a"', '"ab"', '""'])
        shapes = [
            f"n > {number}", f"x <= {number}", f"n == {number}", f"x != {number}", f"word prefix {word}",
            f"word != {word}", f"word contains {word}", 'word in ("a", "b", "ab")', "exists(x)",
            "not exists(n)", "b == true", "n between 0 and 2", "x not between 1 and 2",
            't < "2026-06-01"', f"word < {word}",
        ]  # fmt: skip
        return self.r.choice(shapes)

    def call(self) -> str:
        word = self.r.choice(["$w", '"abc"', '"b"'])
        shapes = [
            f"near(n, {self.number('c')}, {self.number('r')})",
            f"near(x, {self.number('c')}, {self.number('r')})",
            f"resembles(word, {word})", f"resembles(word, {word}, \"é\")", "tally(word, ?lone)",
        ]  # fmt: skip
        negated = self.r.random() < 0.3
        chosen = self.r.choice(shapes[:4] if negated else shapes)
        return f"not {chosen}" if negated else chosen

    def joint(self) -> str:
        least = self.number("l")
        shapes = [
            f"tally(word, ?n) and ?n > {least}",
            f"tally(word, ?n) and span(x, ?n, ?m, {self.number('p')})",
            f"span(n, ?n, ?m, -5) and ?m > ?n and ?n >= {least}",
            f"span(n, ?n, ?n, -5) and ?n < {least}",
            f"span(x, ?n, ?m, -5) and tally(word, ?k) and ?k > 2 * ?n - 1 and ?m != {least}",
            'letter(word, ?s) and ?s > "a"',
            'letter(word, ?s) and ?s != "b"',
            f"(tally(word, ?n) or span(x, ?n, ?m, 0)) and ?n == {least}",
            f"(?n > {least} or {self.predicate()}) and tally(word, ?n)",
            f"((tally(word, ?n) and ?n > 1) or ({self.call()} and span(n, ?n, ?o, 0))) and not ?n > {least}",
        ]  # fmt: skip
        return self.r.choice(shapes)

    def text(self, depth: int = 2) -> str:
        kind = self.r.random()
        if depth == 0 or kind < 0.35:
            leaf = self.r.random()
            return self.call() if leaf < 0.5 else f"({self.predicate()})"
        word = " and " if kind < 0.75 else " or "
        return f"({word.join(self.text(depth - 1) for _ in range(self.r.randint(2, 3)))})"

    def filter(self) -> Filter:
        kind = self.r.random()
        if kind < 0.15:
            return parse(f"{self.predicate()} and {self.predicate()}", QUOTE)
        if kind < 0.45:
            return parse(f"{self.text(1)} and ({self.joint()})", QUOTE)
        if kind < 0.5:  # over the cap of the normal form, and of alternatives
            parts = [f"({self.text(0)} or {self.text(0)})" for _ in range(8)]
            return parse(" and ".join(parts), QUOTE)
        return parse(self.text(), QUOTE)

    def values(self, names: Any) -> dict[str, Any]:
        return {name: self.r.choice(VARIABLES[name]) for name in names}

    def event(self) -> dict[str, Any]:
        chosen = {
            "n": self.r.choice([None, -2, 0, 1, 2, 3, 2**53 + 1]),
            "x": self.r.choice([None, float("nan"), -1.5, 0.0, 1.0, 2.5, float("inf")]),
            "word": self.r.choice([None, *WORDS]),
            "b": self.r.choice([None, True, False]),
            "t": self.r.choice([None, "2026-01-01", "2026-12-01"]),
        }
        return {name: value for name, value in chosen.items() if value is not None}


class Oracle:
    """Subscriptions by `Filter.matches`."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[Filter, dict[str, Any], int]] = {}

    def matching(self, event: dict[str, Any]) -> list[int]:
        return sorted(i for i, (f, values, _) in self.of.items() if f.matches(event, values))

    def check(self, engine: Engine, events: list[dict[str, Any]]) -> None:
        def fresh() -> EventBatch:
            return EventBatch.from_pylist(QUOTE, events)

        expected = [self.matching(event) for event in events]
        interfaces = [sorted({self.of[i][2] for i in ids}) for ids in expected]
        shared = fresh()
        for batch in (fresh(), shared, shared):
            offsets, ids = engine.match(batch).ordered()
            assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == expected
        for batch in (fresh(), shared):
            assert engine.match(batch).counts.tolist() == [len(ids) for ids in expected]
            assert engine.match(batch).any().tolist() == [bool(ids) for ids in expected]
            bits = engine.match(batch).interfaces()
            assert [_numbers(row) for row in bits] == interfaces
        one = fresh().slice(0, 1)
        assert engine.event_ids(one).tolist() == expected[0]
        assert engine.event_interfaces(one) == sum(1 << number for number in interfaces[0])
        assert len(engine) == len(self.of)


def _numbers(words: Any) -> list[int]:
    bits = sum(int(word) << (64 * place) for place, word in enumerate(words))
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _change(engine: Engine, oracle: Oracle, texts: Texts) -> None:
    r, known = texts.r, sorted(oracle.of)
    kind = r.random()
    if kind < 0.35 or len(known) < 6:
        filter, interface = texts.filter(), r.choice([0, 1, 5, 70])
        values = texts.values(filter.variables)
        i = max(known, default=0) + r.randint(1, 3)
        engine.add(i, filter, values, interface=interface)
        oracle.of[i] = filter, values, interface
    elif kind < 0.5:
        filter = texts.filter()
        ids = [max(known) + 1 + k for k in range(5)]
        each = [texts.values(filter.variables) for _ in ids]
        columns: dict[str, Any] = {name: [v[name] for v in each] for name in filter.variables}
        engine.add_many(ids, filter, columns, interface=np.array([0, 1, 2, 65, 1]))
        oracle.of |= {i: (filter, v, n) for i, v, n in zip(ids, each, [0, 1, 2, 65, 1], strict=True)}
    elif kind < 0.65:
        filters = [texts.filter() for _ in range(4)]
        ids = [max(known) + 1 + k for k in range(8)]
        names = sorted({name for f in filters for name in f.variables})
        each = [texts.values(names) for _ in ids]
        columns = {name: [v[name] for v in each] for name in names}
        engine.add_all(ids, filters, columns, numbers=[k % 4 for k in range(8)], interface=3)
        for k, i in enumerate(ids):
            filter = filters[k % 4]
            oracle.of[i] = filter, {n: each[k][n] for n in filter.variables}, 3
    elif kind < 0.8:
        gone = r.sample(known, r.randint(1, 4))
        engine.remove_many(gone)
        for i in gone:
            del oracle.of[i]
    else:
        name = r.choice(sorted(VARIABLES))
        ids = [i for i in known if name in oracle.of[i][0].variables][:6]
        column = [r.choice(VARIABLES[name]) for _ in ids]
        engine.update_many(ids, {name: column})
        for i, value in zip(ids, column, strict=True):
            oracle.of[i][1][name] = value


@each_seed("engines with calls against the oracle")
@pytest.mark.parametrize("name", [name for name in engine_names() if name != "naive"])
def test_engines_match_as_filters_do(name: str, seed: int) -> None:
    texts = Texts(random.Random(seed))
    strategy = texts.r.choice(sorted(STRATEGIES))
    engine, oracle = create_engine(name, QUOTE, evaluation=strategy), Oracle()
    for _ in range(4):
        for _ in range(8):
            _change(engine, oracle, texts)
        oracle.check(engine, [texts.event() for _ in range(12)])
    engine.remove_many(sorted(oracle.of))
    oracle.of.clear()
    oracle.check(engine, [texts.event()])


# --- one by one -----------------------------------------------------------------------------------


@pytest.fixture(params=engine_names())
def engine(request: pytest.FixtureRequest) -> Engine:
    return create_engine(request.param, QUOTE)


def events(*numbers: int | None) -> EventBatch:
    return EventBatch.from_pylist(QUOTE, [{"n": n, "x": 1.0, "word": "ab"} for n in numbers])


def matching(engine: Engine, *numbers: int | None) -> list[list[int]]:
    return [ids.tolist() for ids in np.split(*reversed(_split(engine, numbers)))]


def _split(engine: Engine, numbers: Any) -> tuple[Any, Any]:
    offsets, ids = engine.match(events(*numbers)).ordered()
    return offsets[1:-1], ids


def test_a_call_that_raises_has_changed_nothing(engine: Engine) -> None:
    near = parse("near(n, $c, 1) and x > $least and word == $word", QUOTE)
    engine.add(1, near, {"c": 3, "least": 0, "word": "ab"})
    engine.add(2, parse("n == $c", QUOTE), {"c": 3})
    before = engine.render()
    with pytest.raises(SubscriptionError, match="already added"):
        engine.add(1, near, {"c": 3, "least": 0, "word": "ab"})
    with pytest.raises(SubscriptionError, match="already added"):
        engine.add_all([5, 1], [near, near], {"c": 3, "least": 0, "word": "ab"})
    with pytest.raises(VariableError, match="least"):
        engine.add(3, near, {"c": 3, "word": "ab"})
    with pytest.raises(VariableError, match="word"):
        engine.add_all([3, 4], [parse("n == $c", QUOTE), near], {"c": 3, "least": 0, "word": [None, 5]})
    with pytest.raises(VariableError):
        engine.update_many([2, 1], {"c": [4, "four"]})
    with pytest.raises(VariableError, match="least is unknown"):
        engine.update_many([1, 2], {"c": 4, "least": 1})
    with pytest.raises(SubscriptionError, match="unknown id"):
        engine.update_many([1, 9], {"c": 4})
    with pytest.raises(SubscriptionError, match="unknown id"):
        engine.remove_many([1, 9])
    with pytest.raises(FilterError, match="word"):
        create_engine(engine.name, EventType("Quote", {"n": "int64"})).add(1, near)
    assert len(engine) == 2
    assert 1 in engine
    assert 3 not in engine
    assert engine.render() == before
    assert matching(engine, 3, 5) == [[1, 2], []]


def test_a_type_may_be_widened(engine: Engine) -> None:
    engine.add(1, parse("near(n, $c, 1)", QUOTE), {"c": 3})
    wider = EventType("Quote", {**{n: str(k) for n, k in QUOTE.attributes.items()}, "z": "float64"})
    engine.widen(wider)
    engine.add(2, parse("near(z, $c, 1) or near(n, 0, 0)", wider), {"c": 3})
    batch = EventBatch.from_pylist(wider, [{"n": 3}, {"n": 9, "z": 3.5}, {"n": 0, "z": 9.0}])
    assert engine.match(batch).ordered()[1].tolist() == [1, 2, 2]
    assert matching(engine, 3, 0) == [[1], [2]]


def test_explain_shows_each_call(engine: Engine) -> None:
    engine.add(1, parse('x > 0 and (near(n, $c, 1) or not resembles(word, "a"))', QUOTE), {"c": 3})
    event = {"n": 3, "x": 1.0, "word": "ab"}
    assert "matches" in engine.explain(event, 1).splitlines()[0]
    assert "does not match" in engine.explain(event | {"n": 9}, 1).splitlines()[0]
    assert engine.memory_bytes()
    if engine.name != "naive":
        assert "near(n, 3, 1) is true" in engine.explain(event, 1)
        assert 'resembles(word, "a") is true' in engine.explain(event, 1)
        assert "near(n, 3, 1) is false: an attribute is missing" in engine.explain({"x": 1.0}, 1)
        assert "no operator is asked" in engine.explain({"x": -1.0}, 1)
        assert engine.memory_bytes()["with calls"] > 0
        assert "with calls" in engine.render()


def test_an_operator_is_not_asked_where_an_interface_is_reached_already() -> None:
    evaluator = Evaluator()
    engine = create_engine("cluster", QUOTE, evaluator=evaluator)
    engine.add(1, parse("n > 0", QUOTE), interface=1)
    engine.add_many([2, 3, 4], parse("near(n, $c, 50)", QUOTE), {"c": [1, 2, 3]}, interface=1)
    assert engine.match(events(5, 6)).interfaces().tolist() == [[2], [2]]
    assert engine.match(events(5, 6)).any().tolist() == [True, True]
    assert not evaluator.accounts
    assert engine.match(events(0)).interfaces().tolist() == [[2]]
    assert evaluator.accounts["near"].events == 1  # the first that is true is enough
    assert engine.match(events(0)).counts.tolist() == [3]


def raising(n: pa.Array) -> Any:
    raise RuntimeError("no model")


FAULTY = {
    "raises": raising,
    "wrong type": lambda n: [True] * len(n),
    "nulls": lambda n: pa.nulls(len(n), pa.bool_()),
}


@pytest.mark.parametrize("kind", FAULTY)
def test_a_faulty_operator_harms_no_other_subscription(
    engine: Engine, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = NamedOperator("faulty", (Parameter("n", frozenset({Kind.INT64})),), FAULTY[kind])
    with registered(faulty):
        engine.add(1, parse("faulty(n)", QUOTE))
        engine.add(2, parse("not faulty(n)", QUOTE))
        engine.add(3, parse("near(n, 3, 1) or faulty(n)", QUOTE))
        engine.add(4, parse("near(n, 3, 1)", QUOTE))
        engine.add(5, parse("n == 3", QUOTE))
        if engine.name == "naive":  # stops at the first fault, or takes what the others refuse
            assert {4, 5} <= set(matching(engine, 3)[0])
            return
        for _ in range(2):
            assert matching(engine, 3, None, 8) == [[3, 4, 5], [], []]
    assert len([record for record in caplog.records if "faulty" in record.getMessage()]) == 1


def test_an_operator_that_changes_its_mind_is_asked_once_per_batch() -> None:
    answers = iter([True, False] * 10)
    fickle = NamedOperator(
        "fickle", (Parameter("n", frozenset({Kind.INT64})),), lambda n: np.full(len(n), next(answers))
    )
    with registered(fickle):
        engine = create_engine("cluster", QUOTE)
        engine.add(1, parse("fickle(n)", QUOTE))
        engine.add(2, parse("not fickle(n)", QUOTE))
        for expected in ([1, 1], [2, 2]):
            batch = events(1, 2)
            for _ in range(3):
                assert engine.match(batch)[1].tolist() in ([expected[0]], [expected[1]])
                assert engine.match(batch).ids()[1].tolist() == expected


def test_state_sees_what_the_rest_of_the_filter_lets_through_once() -> None:
    seen: list[int] = []

    def rises(state: list[int], n: pa.Array) -> Any:
        truths = []
        for value in n.to_pylist():
            seen.append(value)
            truths.append(bool(state) and value > state[-1])
            state.append(value)
        return np.array(truths, np.bool_)

    operator = NamedOperator("rises", (Parameter("n", frozenset({Kind.INT64})),), rises, state=list)
    with registered(operator):
        engine = create_engine("cluster", QUOTE)
        engine.add(1, parse("rises(n) and n > 0 and near(n, 0, 10)", QUOTE))
        engine.add(2, parse("n > 0 and rises(n) and near(n, 0, 10)", QUOTE))
        engine.add(3, parse("rises(n) and n > $least", QUOTE), {"least": 4})
        first = events(2, -1, 5, 99, 3)
        for _ in range(2):
            engine.match(first).any()
            assert [ids.tolist() for ids in engine.match(first).per_event()] == [[], [], [1, 2], [3], []]
        assert sorted(seen) == sorted([2, 5, 3] * 2 + [5, 99])
        assert matching(engine, 4, 200) == [[1, 2], [3]]
        engine.update(3, {"least": 3})  # is another filter, which has seen nothing yet
        assert matching(engine, 300) == [[]]


def test_500_calls_and_a_depth_of_50_are_matched_at_once(engine: Engine) -> None:
    wide = " and ".join(f"(near(n, {i}, 250) or near(x, {i}, 1))" for i in range(250))
    deep = "near(n, 0, 0)"
    for i in range(1, 50):
        deep = f"({deep} {'or' if i % 2 else 'and'} {'not ' if i % 3 == 0 else ''}near(n, {i}, {40 - i % 7}))"
    engine.add(1, parse(wide, QUOTE))
    engine.add(2, parse(deep, QUOTE))
    numbers = (0, 30, 70, 249, 260)
    expected = [
        [i for i, text in enumerate((wide, deep), 1) if parse(text, QUOTE).matches({"n": n, "x": 1.0})]
        for n in numbers
    ]
    assert matching(engine, *numbers) == expected
    assert expected[0] != expected[4]


def test_options_are_checked(engine: Engine) -> None:
    with pytest.raises(CoveyError, match="evaluation 'fast': expected one of greedy"):
        create_engine(engine.name, QUOTE, evaluation="fast")


def test_bounds_of_a_moving_circle_narrow_its_gate(engine: Engine) -> None:
    place = EventType("Place", {"lat": "float64", "lon": "float64"})
    evaluator = Evaluator()
    engine = create_engine(engine.name, place, evaluator=evaluator)
    circle = parse("within(lat, lon, $lat, $lon, $r)", place)
    engine.add_many([1, 2, 3], circle, {"lat": [52.5, 48.1, 0.0], "lon": [13.4, 11.6, 179.9999], "r": 500})
    there = [(52.5, 13.401), (48.1, 11.6), (0.0, -179.9999), (10.0, 10.0)]

    def found() -> list[list[int]]:
        batch = EventBatch.from_pylist(place, [{"lat": lat, "lon": lon} for lat, lon in there])
        return [sorted(ids.tolist()) for ids in engine.match(batch).per_event()]

    assert found() == [[1], [2], [3], []]
    engine.update(1, {"lat": 10.0, "lon": 10.0})
    engine.update_many([2, 3], {"lat": [0.0, 52.5], "lon": [-180.0, 13.4]})
    assert found() == [[3], [], [2], [1]]
    if engine.name != "naive":
        assert evaluator.accounts["within"].events == 6  # of 24


def test_equal_filters_may_have_gates_of_other_bounds(engine: Engine) -> None:
    place = EventType("Place", {"lat": "float64", "lon": "float64"})
    engine = create_engine(engine.name, place)
    circle = parse("within(lat, lon, 0, $lon, 500)", place)
    for i, lon in ((1, 179.9999), (2, 0.0)):  # over the date line: two intervals
        engine.add(i, Filter.of_checked(place, circle.expression), {"lon": lon})
    engine.update_many([1, 2], {"lon": [20.0, -179.9999]})
    batch = EventBatch.from_pylist(place, [{"lat": 0.0, "lon": lon} for lon in (20.0, 179.9999, 0.0)])
    assert [ids.tolist() for ids in engine.match(batch).per_event()] == [[1], [2], []]
