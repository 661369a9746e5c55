"""Filters built in Python, with calls and constraints, equal those parsed from text."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from named_operators import registered

from covey.matcher import EventType, F, FilterError, Free, Var, call, filter_of, parse

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "date": "timestamp"}
)
TALLY, SPAN = call("tally", F.firm, Free("n")), call("span", F.price, Free("y"), Free("z"), 0)
LETTER = call("letter", F.firm, Free("c"))


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with registered():
        yield


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
        (call("near", F.price, Var("x"), 5), "near(price, $x, 5)"),
        (~call("near", F["price"], 2 * Var("x") + 1, np.int64(5)), "not near(price, 2 * $x + 1, 5)"),
        (call("resembles", F.firm, "a", Var("b")) | (F.price > 1), "resembles(firm, 'a', $b) or price > 1"),
        (TALLY & (Free("n") > 250), "tally(firm, ?n) and ?n > 250"),
        (TALLY & (np.int64(250) < Free("n")), "tally(firm, ?n) and ?n > 250"),
        (TALLY & (Var("m") <= Free("n")), "tally(firm, ?n) and ?n >= $m"),
        (TALLY & ~(Free("n") == Var("m") - 1), "tally(firm, ?n) and ?n != $m - 1"),
        (TALLY & (Free("n") + Var("m") >= 5), "tally(firm, ?n) and ?n >= 5 - $m"),
        (TALLY & (5 - Free("n") != np.float64(2.5)), "tally(firm, ?n) and ?n != 2.5"),
        (SPAN & (Free("y") > 2 * Free("z")), "span(price, ?y, ?z, 0) and ?y > 2 * ?z"),
        (
            SPAN & (Var("m") - 3 * (Free("y") - Free("z")) - (Free("z") - 2) <= 0),
            "span(price, ?y, ?z, 0) and $m - 3 * ?y + 3 * ?z - ?z + 2 <= 0",
        ),
        (LETTER & (Free("c") == "x"), "letter(firm, ?c) and ?c == 'x'"),
        (LETTER & (Free("c") > "x"), "letter(firm, ?c) and 'x' < ?c"),
    ],
)  # fmt: skip
def test_the_builder_and_the_text_give_equal_filters(built: Any, text: str) -> None:
    assert filter_of(QUOTE, built) == parse(text, QUOTE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: filter_of(QUOTE, "price < 3"), "expected comparisons of F.attribute"),
        (lambda: F.price < F.volume, "attributes are not compared"),
        (lambda: F.price < None, "price: operand None, expected a constant or a variable"),
        (lambda: F.price < [1], "operand .1., expected a constant or a variable"),
        (lambda: F.firm.in_("abc"), "expected a list of constants or variables"),
        (lambda: (F.price < 3) and (F.price > 1), "join with & | ~"),
        (lambda: 1 < F.price < 3, "join with & | ~"),
        (lambda: not F.price < 3, "join with & | ~"),
        (lambda: call(3, F.price), "operator 3: expected its name"),
        (lambda: call("near", F.price, None), "near: operand None, expected a constant or a variable"),
        (lambda: call("tally", F.firm, 2 * Free("n")), "as an argument: expected a free variable as it is"),
        (
            lambda: Free("n") > F.price,
            r"Free\('n'\): operand F\['price'\], expected a constant or a variable",
        ),
        (lambda: F.price < Free("n"), r"price: operand Free\('n'\), expected a constant or a variable"),
        (lambda: Free("n") - Free("n") > 1, "no free variable is left in a constraint"),
        (lambda: Free("n") + Var("x") + Var("y"), "expected at most one variable"),
        (lambda: Free("n") + 1 > "x", "'x' is compared with a sum: expected a number"),
        (lambda: filter_of(QUOTE, (F.price < 3) & ~TALLY), "not before tally, which binds"),
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
