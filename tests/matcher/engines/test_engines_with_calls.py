"""Every engine with calls of named operators, against `Filter.matches` under churn; and operators' faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from draws import each_seed
from named_operators import registered

from covey.matcher import (
    Engine,
    EventBatch,
    EventType,
    create_engine,
    parse,
)
from covey.matcher.engine import engine_names
from covey.matcher.evaluation.strategies import STRATEGIES
from covey.matcher.filters.filter import Filter

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
        """A random filter, most with calls."""
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
    """Subscriptions as `Filter.matches` sees them."""

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
    """One random change of an engine and of the oracle."""
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
