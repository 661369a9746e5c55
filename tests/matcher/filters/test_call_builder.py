"""Calls and constraints built in Python equal those parsed from text."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from named_operators import registered

from covey.matcher import EventType, F, FilterError, Free, Var, call, filter_of, parse

T = EventType("T", {"f": "float64", "s": "string"})
TALLY, SPAN = call("tally", F.s, Free("n")), call("span", F.f, Free("y"), Free("z"), 0)
LETTER = call("letter", F.s, Free("c"))


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (call("near", F.f, Var("x"), 5), "near(f, $x, 5)"),
        (~call("near", F["f"], 2 * Var("x") + 1, np.int64(5)), "not near(f, 2 * $x + 1, 5)"),
        (call("resembles", F.s, "a", Var("b")) | (F.f > 1), "resembles(s, 'a', $b) or f > 1"),
        (TALLY & (Free("n") > 250), "tally(s, ?n) and ?n > 250"),
        (TALLY & (np.int64(250) < Free("n")), "tally(s, ?n) and ?n > 250"),
        (TALLY & (Var("m") <= Free("n")), "tally(s, ?n) and ?n >= $m"),
        (TALLY & ~(Free("n") == Var("m") - 1), "tally(s, ?n) and ?n != $m - 1"),
        (TALLY & (Free("n") + Var("m") >= 5), "tally(s, ?n) and ?n >= 5 - $m"),
        (TALLY & (5 - Free("n") != np.float64(2.5)), "tally(s, ?n) and ?n != 2.5"),
        (SPAN & (Free("y") > 2 * Free("z")), "span(f, ?y, ?z, 0) and ?y > 2 * ?z"),
        (SPAN & (3 * (Free("y") - Free("z")) + 1 < Var("m")), "span(f, ?y, ?z, 0) and 3*?y - 3*?z + 1 < $m"),
        (
            SPAN & (Var("m") - Free("y") - (Free("z") - 2) <= 0),
            "span(f, ?y, ?z, 0) and $m - ?y - ?z + 2 <= 0",
        ),
        (LETTER & (Free("c") == "x"), "letter(s, ?c) and ?c == 'x'"),
        (LETTER & (Free("c") > "x"), "letter(s, ?c) and 'x' < ?c"),
    ],
)
def test_the_builder_and_the_text_give_equal_filters(built: Any, text: str) -> None:
    assert filter_of(T, built) == parse(text, T)


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (lambda: call(3, F.f), "operator 3: expected its name"),
        (lambda: call("near", F.f, None), "near: operand None, expected a constant or a variable"),
        (lambda: call("tally", F.s, 2 * Free("n")), "as an argument: expected a free variable as it is"),
        (lambda: Free("n") > F.f, r"Free\('n'\): operand F\['f'\], expected a constant or a variable"),
        (lambda: F.f < Free("n"), r"f: operand Free\('n'\), expected a constant or a variable"),
        (lambda: Free("n") - Free("n") > 1, "no free variable is left in a constraint"),
        (lambda: Free("n") + Var("x") + Var("y"), "expected at most one variable"),
        (lambda: Free("n") + 1 > "x", "'x' is compared with a sum: expected a number"),
        (lambda: filter_of(T, Free("n") > 1), r"no call binds \?n"),
        (lambda: filter_of(T, ~TALLY), "not before tally, which binds"),
        (lambda: filter_of(T, call("neer", F.f, 1, 2)), "unknown operator 'neer': did you mean near?"),
        (lambda: filter_of(T, TALLY & (Free("n") > datetime(2026, 1, 1, tzinfo=UTC))), "expected a number"),
    ],
)
def test_what_is_no_call_or_constraint_is_refused(built: Callable[[], object], message: str) -> None:
    with pytest.raises(FilterError, match=message):
        built()
