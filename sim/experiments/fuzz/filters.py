"""The event types and filters of random histories, and the named operators that some filters call. A filter
with calls has its condition in plain Python, which shares nothing with the operators; the checkers judge by
it. Brokers lack some operators, and calls of others fail; operators of clients do not fail, since an event
that no reader can decide is dropped."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher import EventType, Filter, parse
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.runner import Compute, Outcome, Runner, run_at_once
from covey.matcher.events.event_type import Kind
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register
from covey.sim.checkers.columns import Condition
from covey.sim.experiments.fuzz.options import FuzzOptions

TYPES = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string"}),
    EventType("U", {"x": "int64", "flag": "bool"}),
)
KEYED = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string", "id": "string"}, key="id"),
    EventType("U", {"id": "int64", "x": "int64", "flag": "bool"}, key="id"),
)
"""The same with keys, for views."""
WIDER = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string", "v": "int64"}),
    EventType("T", {"w": "float64", "s": "string", "x": "int64"}),
    EventType("T", {"f": "bool", "w": "float64", "v": "int64", "r": "string"}),
)
"""Schemas that widen the first type: attributes in another order, or without some."""


# --- the operators, over columns ----------------------------------------------------------------------------

_NUMBER = frozenset({Kind.INT64})
_TEXT = frozenset({Kind.STRING})


def _near(x: pa.Array, center: float, radius: float) -> npt.NDArray[np.bool_]:
    distance: npt.NDArray[np.bool_] = np.abs(x.to_numpy(zero_copy_only=False) - center) <= radius
    return distance


def _near_covers(wider: Any, narrower: Any) -> bool:
    (_, center, radius), (_, inner_center, inner_radius) = wider, narrower
    if None in (center, radius, inner_center, inner_radius):
        return (center, radius) == (inner_center, inner_radius)
    return bool(inner_radius < 0 or abs(center - inner_center) + inner_radius <= radius)


def _near_bounds(arguments: Any) -> list[list[tuple[float, float]] | None]:
    _, center, radius = arguments
    return [[(center - radius, center + radius)], None, None]


def _spells(s: pa.Array, text: str) -> npt.NDArray[np.bool_]:
    return np.array([text in each for each in s.to_pylist()], np.bool_)


def _places(s: pa.Array) -> pa.Array:
    places = [[i for i, letter in enumerate(each, 1) if letter == "p"] for each in s.to_pylist()]
    return pa.array(places, pa.list_(pa.int64()))


def _factors(x: pa.Array) -> pa.Array:
    pairs = [[{"m": m, "n": x // m} for m in range(1, x + 1) if x % m == 0] for x in x.to_pylist()]
    return pa.array(pairs, pa.list_(pa.struct([("m", pa.int64()), ("n", pa.int64())])))


OPERATORS = (
    NamedOperator(
        "fuzz_near",
        (Parameter("x", NUMBERS), Parameter("center", NUMBERS), Parameter("radius", NUMBERS)),
        _near,
        covers=_near_covers,
        bounds=_near_bounds,
        cost_us=50.0,
    ),
    NamedOperator("fuzz_spells", (Parameter("s", _TEXT), Parameter("text", _TEXT)), _spells, cost_us=90.0),
    NamedOperator(
        "fuzz_places", (Parameter("s", _TEXT), Parameter("n", _NUMBER, Takes.FREE)), _places, cost_us=70.0
    ),
    NamedOperator(
        "fuzz_factors",
        (
            Parameter("x", _NUMBER),
            Parameter("m", _NUMBER, Takes.FREE),
            Parameter("n", _NUMBER, Takes.FREE),
        ),
        _factors,
        cost_us=200.0,
    ),
)

# --- the filters and their conditions -----------------------------------------------------------------------


def _lies(event: Mapping[str, Any], center: float, radius: float) -> bool:
    return event.get("x") is not None and center - radius <= event["x"] <= center + radius


def _has(event: Mapping[str, Any], text: str) -> bool:
    return event.get("s") is not None and event["s"].count(text) > 0


def _over(event: Mapping[str, Any], attribute: str, bound: float) -> bool:
    return event.get(attribute) is not None and event[attribute] > bound


def _p_at(event: Mapping[str, Any], place: int) -> bool:
    return event.get("s") is not None and event["s"][place - 1 : place] == "p"


def _pairs(event: Mapping[str, Any]) -> list[tuple[int, int]]:
    x = event.get("x") or 0
    return [(m, n) for m in range(1, x + 1) for n in range(1, x + 1) if m * n == x]


FILTERS: Mapping[str, Mapping[str, Condition]] = {
    "T": {
        "fuzz_near(x, $a, 2)": lambda e, v: _lies(e, v["a"], 2),
        "fuzz_near(x, 3, 1)": lambda e, v: _lies(e, 3, 1),
        "fuzz_near(x, $a, $b)": lambda e, v: _lies(e, v["a"], v["b"]),
        "fuzz_near(x, $a, 2) and y > $b": lambda e, v: _lies(e, v["a"], 2) and _over(e, "y", v["b"]),
        "not fuzz_near(x, $a, 1) and x > 1": lambda e, v: _over(e, "x", 1) and not _lies(e, v["a"], 1),
        "x > $a and fuzz_spells(s, $n)": lambda e, v: _over(e, "x", v["a"]) and _has(e, v["n"]),
        'fuzz_near(x, $a, 1) or fuzz_spells(s, "q")': lambda e, v: _lies(e, v["a"], 1) or _has(e, "q"),
        "fuzz_near(x, $a, 1) and y > 2 or fuzz_spells(s, $n) and x > $b": lambda e, v: (
            (_lies(e, v["a"], 1) and _over(e, "y", 2)) or (_has(e, v["n"]) and _over(e, "x", v["b"]))
        ),
        "fuzz_places(s, ?n) and ?n >= 2": lambda e, v: any(_p_at(e, place) for place in (2, 3, 4)),
        "fuzz_places(s, ?n) and ?n < $a": lambda e, v: any(_p_at(e, i) for i in range(1, 9) if i < v["a"]),
        "fuzz_factors(x, ?m, ?n) and ?m > 1 and ?n > $a": lambda e, v: any(
            m > 1 and n > v["a"] for m, n in _pairs(e)
        ),
        "fuzz_factors(x, ?m, ?n) and ?m > 2 * ?n": lambda e, v: any(m > 2 * n for m, n in _pairs(e)),
        "fuzz_factors(x, ?m, ?n) and fuzz_places(s, ?n)": lambda e, v: any(_p_at(e, n) for _, n in _pairs(e)),
    },
    "U": {
        "fuzz_near(x, $a, 2)": lambda e, v: _lies(e, v["a"], 2),
        "fuzz_near(x, $a, 1) and flag == true": lambda e, v: _lies(e, v["a"], 1) and e["flag"] is True,
        "fuzz_factors(x, ?m, ?n) and ?m == ?n": lambda e, v: any(m == n for m, n in _pairs(e)),
    },
}


def filters_with_calls(types: Iterable[EventType] = TYPES) -> dict[Filter, Condition]:
    """Registers the operators; returns the filters that call them, each with its condition."""
    for operator in OPERATORS:
        register(operator)
    return {
        parse(text, event_type): condition
        for event_type in types
        for text, condition in FILTERS[event_type.name].items()
    }


# --- brokers at which operators are missing or fail ---------------------------------------------------------


def unreliable(draw: random.Random) -> Runner:
    """A runner of a broker that lacks some operators, and where some calls of the others fail."""
    missing = {operator.name for operator in OPERATORS if draw.random() < 0.2}
    rate = draw.choice((0.0, 0.0, 0.1, 0.5))

    def run(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
        if operator.name in missing:
            return Outcome([], 0, reason="is unknown here")
        if draw.random() >= rate:
            return run_at_once(operator, key, events, compute)
        if draw.random() < 0.5:
            return Outcome([], 0, reason="raised ValueError: drawn", failed=True)
        some = draw.randint(0, events)
        parts = [compute(0, some)] if some else []
        return Outcome(parts, some, reason="has used up its share of the time" if some < events else "")

    return run


def evaluator_of(draw: random.Random) -> Evaluator:
    return Evaluator(run=unreliable(draw))


CONJUNCTIONS = {
    "T": (
        "x < $a",
        "x < $a",
        "x >= $a",
        "x == $a",
        "x between $a and $b",
        "x >= $a and x < $b",
        "x < $a and y > $b",
        "x < $a + 1 and y > $b and y <= 8",
        's == "p" and x < $a',
        "s == $n and x > $a",
        "x > 2 and x < 5",
        "",
    ),
    "U": ("x < $a", "x > $a and flag == true", "flag == false", "x == 3"),
}
OTHER_OPERATORS = {
    "T": (
        "x < $a or x > $b",
        "s prefix $n or x == $a",
        's contains "p" and x < $a',
        "x != $a",
        "x in (1, $a, 5)",
    ),
    "U": ("x < $a or flag == true", "not (x == $a)"),
}

OVER_WIDER = (
    ("v < $a", "x < $a and v >= $b", "not exists v"),
    ("w < $b", "s == $n and w >= 1 and x < $a", "x in (1, $a, 5)"),
    ("f == true", "v between $a and $b or w < 2", "r prefix $n", 'r contains "p" or f == false'),
)

CONTENTS = ("x < 3", "x >= 3", "x between 2 and 5")

DENSE = ("x < $a", "x < $a", "x >= $a", "x between $a and $b", "x >= $a and x < $b")


def filters_of(options: FuzzOptions) -> dict[str, list[Filter]]:
    types = KEYED if options.views else TYPES
    if options.dense:
        return {types[0].name: [parse(text, types[0]) for text in DENSE]}
    texts = {
        name: [*CONJUNCTIONS[name], *(OTHER_OPERATORS[name] if options.operators else ())]
        for name in CONJUNCTIONS
    }
    filters = {
        event_type.name: [parse(text, event_type) for text in texts[event_type.name]] for event_type in types
    }
    if options.widen:
        for event_type, own in zip(WIDER, OVER_WIDER, strict=True):
            filters[event_type.name] += [parse(text, event_type) for text in own]
    if options.calls:
        for filter in filters_with_calls():
            filters[filter.event_type.name].append(filter)
    return filters
