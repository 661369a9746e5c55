"""Every example of docs/operators.md is true, and the page lists the shipped operators."""

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from math import nan
from pathlib import Path
from typing import Any

import pytest
from operator_calls import operator

from covey.matcher import parse
from covey.matcher.operators import table
from covey.overlay.core.operators.operator_limits import OperatorLimits

PAGE = (Path(__file__).parents[3] / "docs" / "operators.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def scope_of(blocks: list[str]) -> dict[str, Any]:
    """The names that the page's Python defines; its assertions hold."""
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(block, scope)
    return scope


SCOPE = scope_of(BLOCKS[:1])


def tables() -> Iterator[dict[str, str]]:
    """The rows of all tables, by heading; of a cell with code only the code."""
    heading: list[str] = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        if not line.startswith("|"):
            heading = []
        elif not heading:
            heading = cells
        elif not line.startswith("|---"):
            yield dict(zip(heading, [cell.strip("`") for cell in cells], strict=True))


ROWS = list(tables())
EXAMPLES = [(row[side], "", side[0] == "M") for row in ROWS if "Call" in row
            for side in ("Matches the event", "Does not") if row[side]]  # fmt: skip
EXAMPLES += [(row["Filter"], row["Event"], row["Matches"] == "yes") for row in ROWS if "Filter" in row]


@pytest.mark.parametrize(("text", "event", "matches"), EXAMPLES)
def test_an_example_matches_as_stated(text: str, event: str, matches: bool) -> None:
    filter = parse(text, SCOPE["position"])
    shown = eval(event, {"NaN": nan}) if event else SCOPE["event"]
    assert filter.matches(shown, {}) is matches
    assert parse(str(filter), SCOPE["position"]) == filter


def test_the_code_of_the_page_runs() -> None:
    try:
        scope_of(BLOCKS)
    finally:
        for name in ("risk", "exceeds"):
            table.unregister(name)


def test_the_page_lists_the_operators_that_are_shipped() -> None:
    shipped = [p.name for p in entry_points(group=table.GROUP) if p.value.startswith("covey.")]
    listed = [row["Call"] for row in ROWS if "Call" in row]
    assert sorted(listed) == sorted(operator(name).signature for name in shipped)
    for row in ROWS:
        if "Call" in row:
            name = row["Call"].partition("(")[0]
            assert all(example.startswith(f"{name}(") for example in list(row.values())[1:] if example)


def test_the_page_lists_the_limits_with_their_defaults() -> None:
    limits = {row["Field"]: float(row["Default"]) for row in ROWS if "Field" in row}
    defaults = OperatorLimits()
    assert limits == {name: getattr(defaults, name) for name in OperatorLimits.__dataclass_fields__}
