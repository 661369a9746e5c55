"""Every example of docs/filters.md is true."""

import re
from collections.abc import Iterator
from math import nan
from pathlib import Path
from typing import Any

import pytest
from named_operators import registered

from covey.matcher import Filter, parse
from covey.matcher.events.event_type import RESERVED
from covey.matcher.expressions.operators import SPECS, WORDS, Operator
from covey.matcher.operators.table import unregister

PAGE = (Path(__file__).parents[3] / "docs" / "filters.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def names() -> dict[str, Any]:
    """The names that the page's Python defines; its assertions hold."""
    scope: dict[str, Any] = {}
    for block in blocks():
        exec(block, scope)
    return scope


SCOPE = names()
unregister("divisors")  # until the tests of this page run


@pytest.fixture(autouse=True, scope="module")
def operators() -> Iterator[None]:
    with registered(SCOPE["DIVISORS"]):
        yield


def tables() -> Iterator[dict[str, list[str]]]:
    """The rows of all tables, by heading; a cell is its pieces of code, or its text."""
    heading: list[str] = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in re.split(r" \|(?= )", line.strip("|"))]
        if not line.startswith("|"):
            heading = []
        elif not heading:
            heading = cells
        elif not line.startswith("|---"):
            yield dict(zip(heading, [re.findall(r"`(.+?)`", cell) or [cell] for cell in cells], strict=True))


def examples() -> Iterator[tuple[str, str, str, bool]]:
    """(filter, event, values, whether they match); an empty event is the page's own."""
    for row in tables():
        if "Filter" in row:
            (event,), (values,) = row.get("Event", [""]), row.get("Values", ["{}"])
            yield row["Filter"][0], event, values, row["Matches"] == ["yes"]
        elif "Does not" in row:
            yield row["Matches the event"][0], "", "{}", True
            yield row["Does not"][0], "", "{}", False


EXAMPLES = list(examples())


@pytest.mark.parametrize(("text", "event", "values", "matches"), EXAMPLES)
def test_an_example_matches_as_stated(text: str, event: str, values: str, matches: bool) -> None:
    filter: Filter = parse(text, SCOPE["trade"])
    given = eval(event, {"NaN": nan}) if event else SCOPE["event"]
    assert filter.matches(given, eval(values)) is matches
    assert parse(str(filter), SCOPE["trade"]) == filter


def test_the_page_has_an_example_of_every_operator_and_its_kinds() -> None:
    rows = {row["Operator"][0]: row for row in tables() if "Operator" in row}
    assert list(rows) == [str(operator) for operator in Operator]
    for operator, row in rows.items():
        kinds = SPECS[Operator(operator)].kinds
        expected = {6: "all, and lists", 5: "all", 4: "all but bool", 1: "string"}[len(kinds)]
        assert row["Attributes"] == [expected]
        assert operator.removeprefix("not ") in row["Matches the event"][0]


def test_the_page_shows_constants_that_parse() -> None:
    attributes = {"int64, float64": "price", "bool": "open", "timestamp": "time"}
    rows = {row["Kind"][0]: row["Constants"] for row in tables() if "Kind" in row}
    for kind, attribute in attributes.items():
        for constant in rows[kind]:
            parse(f"{attribute} == {constant}", SCOPE["trade"])
    for constant in rows["string"][2:]:
        parse(f'firm == "{constant}"', SCOPE["trade"])


def test_words_of_operators_are_reserved() -> None:
    assert set(WORDS) <= RESERVED
