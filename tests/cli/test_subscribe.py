"""Values of variables from words."""

from __future__ import annotations

import pytest

from covey.cli.subscribe import read_values
from covey.matcher import EventType, parse
from covey.matcher.errors import VariableError
from covey.overlay import Motion

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
FILTER = parse("firm == $firm and price < $limit", QUOTE)


def test_values_are_numbers_where_the_filter_accepts_them_and_text_elsewhere() -> None:
    assert read_values(["limit=90", "$firm=7"], FILTER) == {"limit": 90, "firm": "7"}
    assert read_values(["limit=100-0.5*t"], FILTER) == {"limit": Motion(100.0, -0.5)}


@pytest.mark.parametrize("text", ["cheap", "[1]", "[" * 100_000])
def test_an_invalid_value_is_refused_with_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(VariableError, match=r"\$limit: value .*, expected a number"):
        read_values([f"limit={text}"], FILTER)
