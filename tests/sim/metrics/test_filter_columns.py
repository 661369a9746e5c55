"""Filters as Spark columns agree with `Filter.matches`."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from draws import DRAWS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as f
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.overlay.core.moving.motion import Motion, still
from covey.sim.metrics import spark_session
from covey.sim.metrics.filters import VARIABLE_LIMIT, FilterColumns, FilterRows, compiles
from covey.sim.trace.tables import event_texts, values_text

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

NUMBERS = EventType("N", {"i": "int64", "f": "float64"})
NS = 1_000_000_000
_CASES_PER_JOB = 600


@dataclass(frozen=True)
class Case:
    """A structure with the values of a subscription, an event and the time of its entry."""

    structure: Filter
    values: str
    event: str
    at_ns: int
    matches: bool


def case(filter: Filter, values: dict[str, Any], event: dict[str, Any], at_ns: int = 0) -> Case:
    matches = filter.matches(event, still(values, at_ns))
    (text,) = event_texts(EventBatch.from_pylist(filter.event_type, [event]))
    return Case(filter.lift()[0], values_text(filter, values), text, at_ns, matches)


def check(cases: list[Case], evaluation: type[FilterColumns] | type[FilterRows]) -> None:
    """Compare all cases in one job of Spark."""
    numbers: dict[tuple[EventType, str], int] = {}
    keys = [numbers.setdefault((c.structure.event_type, str(c.structure)), len(numbers)) for c in cases]
    evaluated = evaluation(dict(zip(keys, [c.structure for c in cases], strict=True)))
    assert set(evaluated.filters) == set(keys)
    columns = {name: [getattr(c, name) for c in cases] for name in ("values", "event", "at_ns", "matches")}
    table = spark_session().createDataFrame(pa.table(columns | {"key": keys, "case": range(len(cases))}))
    stored = table.select(
        "case",
        "key",
        "at_ns",
        "matches",
        evaluated.event(f.col("event")).alias("event"),
        evaluated.operands(f.col("values")).alias("values"),
    )
    found = evaluated.matches(f.col("key"), f.col("event"), f.col("values"), f.col("at_ns"))
    wrong = [cases[row.case] for row in stored.where(found != f.col("matches")).select("case").collect()]
    assert wrong == []


def drawn(number: int) -> list[Case]:
    """Cases of random filters, four events each."""
    cases = []

    @settings(max_examples=number, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        event_type = data.draw(event_types())
        filter = data.draw(filters(event_type))
        values = filter.check_values(data.draw(values_of(filter.variables)))
        cases.extend(case(filter, values, data.draw(events(event_type))) for _ in range(4))

    draw()
    return cases


def numbers_compared() -> list[Case]:
    """Numbers at the ends of both kinds, each beside each."""
    whole = [0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 2, -(2**63) + 1]
    broken = [0.5, -0.5, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 1e300, float("inf"), float("-inf"), -0.0]
    values = {"i": whole, "f": [*map(float, whole), *broken, float("nan")]}
    cases = []
    for kind, sign in product("if", ("==", "!=", "<", "<=", ">", ">=")):
        filter = parse(f"{kind} {sign} $x", NUMBERS)
        for operand in (*whole, *broken, 2**63 - 1, -(2**63)):
            checked = filter.check_values({"x": operand})
            cases += [case(filter, checked, {kind: value}) for value in values[kind]]
    return cases


def values_moved() -> list[Case]:
    """Motions have their values at the event's ingress time."""
    filter = parse("i >= $x - 10 and f < 2 * $y", NUMBERS)
    cases = [
        case(filter, {"x": Motion(100.0, -2.5, NS), "y": y}, {"i": i, "f": 30.0}, seconds * NS)
        for i in (80, 85, 88, 90)
        for seconds in (0, 1, 2, 3, 7)
        for y in (15.5, Motion(10.0, 2.0, 2 * NS))
    ]
    assert {case.matches for case in cases} == {True, False}
    return cases


def names_differing_in_case() -> list[Case]:
    both = EventType("B", {"a": "int64", "A": "string"})
    filter = parse("a == $a and A == $A", both)
    events = [{"a": 1, "A": "x"}, {"a": 1, "A": "y"}, {"a": 2, "A": "x"}]
    return [case(filter, {"a": 1, "A": "x"}, event) for event in events]


@pytest.mark.random
def test_columns_agree_with_filters() -> None:
    """Few jobs of many cases, since a job's time is mostly its start."""
    cases = drawn(DRAWS["filters as Spark columns"].count)
    first = cases[:_CASES_PER_JOB] + numbers_compared() + values_moved() + names_differing_in_case()
    check(first, FilterColumns)
    for start in range(_CASES_PER_JOB, len(cases), _CASES_PER_JOB):
        check(cases[start : start + _CASES_PER_JOB], FilterColumns)


def test_filters_without_a_column_are_evaluated_in_python() -> None:
    """Filters that call operators, and numbers that JSON lacks."""
    both = EventType("S", {"s": "string", "i": "int64"})
    calling = parse("matches(s, $pattern) and i < $limit", both)
    events = [{"s": s, "i": i} for s in ("abc", "bcd", None) for i in (1, 5)]
    cases = [case(calling, {"pattern": "^a", "limit": 3}, event) for event in events]
    assert [each.matches for each in cases] == [True, *[False] * 5]
    assert not compiles(calling.lift()[0])
    odd = [float("inf"), float("-inf"), float("nan"), 1.0, None]
    filters = [("f > 5", {}), ("f != 5", {}), ("f < $x", {"x": float("inf")})]
    for text, values in filters:
        cases += [case(parse(text, NUMBERS), dict(values), {"f": value}) for value in odd]
    check(cases, FilterRows)


def test_what_has_no_column_is_left_to_python() -> None:
    assert not compiles(parse("i < 5", NUMBERS))
    members = ", ".join(f"${name}" for name in range(VARIABLE_LIMIT + 1))
    assert not compiles(parse(f"i in ({members})", NUMBERS))
    assert compiles(parse("i < $x", NUMBERS))
