"""Filters built in Python equal those parsed from text."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from covey.matcher import EventType, F, FilterError, Var, filter_of, parse

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "date": "timestamp"}
)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (F.price < Var("limit"), "price < $limit"),
        (Var("limit") > F.price, "price < $limit"),
        (F["price"] <= 3, "price <= 3"),
        (F.price > 3, "price > 3"),
        (F.price >= np.float32(0.5), "price >= 0.5"),
        (F.price == np.int64(7), "price == 7"),
        (F.price != 3, "price != 3"),
        ((F.firm == "IBM") & (F.price < 1.01 * Var("ref") - 5), 'firm == "IBM" and price < 1.01 * $ref - 5'),
        (F.price < 2 * (Var("x") + 3), "price < 2 * $x + 6"),
        (F.price < 10 - Var("x"), "price < -1 * $x + 10"),
        (F.price < -Var("x") + 1, "price < -1 * $x + 1"),
        (F.price < 1 + Var("x"), "price < $x + 1"),
        (F.price < np.float64(1.5) * Var("x"), "price < 1.5 * $x"),
        (F.volume.in_([1, 2, Var("x")]), "volume in (1, 2, $x)"),
        (F.volume.in_(range(3)), "volume in (0, 1, 2)"),
        (F.volume.in_([]), "volume in ()"),
        (F.volume.not_in([1]), "volume not in (1)"),
        (F.price.between(1, Var("x")), "price between 1 and $x"),
        (F.firm.prefix("I"), 'firm prefix "I"'),
        (~F.firm.suffix("I"), 'firm not suffix "I"'),
        (F.firm.contains(Var("part")), "firm contains $part"),
        (F.firm.exists(), "exists(firm)"),
        (~F.firm.exists(), "not exists(firm)"),
        (F.open == True, "open == true"),  # noqa: E712
        (
            ~((F.price < 1) | (F.open == np.bool_(True)) & (F.volume > 2)),
            "price >= 1 and (open != true or volume <= 2)",
        ),
        (F.date > datetime(2026, 1, 31, tzinfo=UTC), 'date > "2026-01-31"'),
        (F.date > date(2026, 1, 31), 'date > "2026-01-31"'),
        (F.date > "2026-01-31", 'date > "2026-01-31"'),
        (F.date > np.datetime64("2026-01-31"), 'date > "2026-01-31"'),
        (F.date > Var("since") - 3600, "date > $since - 3600"),
        (True, ""),
        (False, "false"),
    ],
)  # fmt: skip
def test_the_builder_and_the_text_give_equal_filters(built: Any, text: str) -> None:
    assert filter_of(QUOTE, built) == parse(text, QUOTE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: filter_of(QUOTE, F.pirce < 3), "Quote has no attribute 'pirce'"),
        (
            lambda: filter_of(QUOTE, F.price < "x"),
            "price is float64: expected a number or a variable, not 'x'",
        ),
        (lambda: filter_of(QUOTE, F.open < True), "open is bool: expected == or !="),
        (lambda: filter_of(QUOTE, "price < 3"), "expected comparisons of F.attribute"),
        (lambda: F.price < F.volume, "attributes are not compared"),
        (lambda: F.price < None, "price: operand None, expected a constant or a variable"),
        (lambda: F.price < [1], "operand .1., expected a constant or a variable"),
        (lambda: F.firm.in_("abc"), "expected a list of constants or variables"),
        (lambda: (F.price < 3) and (F.price > 1), "join with & | ~"),
        (lambda: 1 < F.price < 3, "join with & | ~"),
        (lambda: not F.price < 3, "join with & | ~"),
        (lambda: filter_of(QUOTE, F.price < 0 * Var("x")), "scale 0, expected a number other than 0"),
        (lambda: filter_of(QUOTE, F.price < Var("")), "variable '': expected a name"),
        (lambda: filter_of(QUOTE, F.date < 2 * Var("x")), "expected .x as it is, plus or minus seconds"),
        (lambda: filter_of(QUOTE, (F.price < Var("x")) & (F.firm == Var("x"))), "attributes of one kind"),
    ],
)
def test_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FilterError, match=message):
        make()


def test_unsupported_operands_raise_type_errors() -> None:
    with pytest.raises(TypeError):
        Var("x") * Var("y")
    with pytest.raises(TypeError):
        Var("x") + "a"
    with pytest.raises(TypeError):
        (F.price < 3) & True
    with pytest.raises(TypeError):
        hash(F.price)
    assert repr(2 * Var("x") - 1) == "Var('x', 2, -1)"
    assert repr(F.price) == "F['price']"
