"""The columnwise evaluation of the checkers agrees with `Filter.matches`."""

import random

import pytest

from covey.matcher import EventType, parse
from covey.sim.checkers.columns import Columns

T = EventType("T", {"x": "int64", "s": "string"})


@pytest.mark.parametrize(
    "text",
    [
        *(f"x {sign} $a" for sign in ("==", "!=", "<", "<=", ">", ">=")),
        "x in (1, $a)",
        "x not in (3, $a)",
        "x between $a and 5",
        "x not between $a and 5",
        "s == $n or x > $a",
        "exists(x) and s != $n",
        "not exists(s)",
        'x == 3 and s == "p"',
        's == "p" and x <= $a',
        's == "p" or x <= $a',
        's == "p" or s == "q"',
        "x not between 2 and 5",
        "x not in (3, 4)",
    ],
)
def test_columns_match_the_members_whose_filters_match(text: str) -> None:
    filter, draw = parse(text, T), random.Random(text)
    columns = Columns(filter)
    values: list[dict[str, object]] = []
    for number in range(40):
        drawn = {"a": draw.randint(0, 8), "n": draw.choice("pq")}
        values.append({name: drawn[name] for name in filter.variables})
        row = columns.add(number, values[-1])
        columns.ready[row] = True
    for _ in range(60):
        event = {"x": draw.choice((None, *range(9))), "s": draw.choice((None, "p", "q"))}
        expected = [number for number, each in enumerate(values) if filter.matches(event, each)]
        assert columns.matching(event, values.__getitem__) == expected
