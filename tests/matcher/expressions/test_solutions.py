"""`Filter.matches` with calls: solutions are joined, constraints select among them."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from named_operators import registered

from covey.matcher import EventType, FilterError, Kind, parse
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes

T = EventType("T", {"i": "int64", "f": "float64", "s": "string", "r": "string"})


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.parametrize(
    ("text", "event", "matches"),
    [
        ("near(f, 10, 1)", {"f": 10.5}, True),
        ("near(f, 10, 1)", {"f": 12.0}, False),
        ("not near(f, 10, 1)", {"f": 12.0}, True),
        ("near(f, 10, 1)", {}, False),
        ("not near(f, 10, 1)", {}, False),
        ("near(i, 10, 1) and f > 5", {"i": 9, "f": 6.0}, True),
        ("near(i, 10, 1) and f > 5", {"i": 9, "f": 5.0}, False),
        ("resembles(s, 'x', 'b')", {"s": "bc"}, True),
        # tally("abcd") is 2 and 4
        ("tally(s, ?n)", {"s": "abcd"}, True),
        ("tally(s, ?n)", {"s": ""}, False),
        ("tally(s, ?n) and ?n > 3", {"s": "abcd"}, True),
        ("tally(s, ?n) and ?n > 4", {"s": "abcd"}, False),
        ("?n < 2 and tally(s, ?n)", {"s": "abcd"}, False),
        ("tally(s, ?n) and ?n > 3 and ?n < 3", {"s": "abcd"}, False),
        ("tally(s, ?n) and tally(s, ?m) and ?n > 3 and ?m < 3", {"s": "abcd"}, True),
        ("tally(s, ?n) and (?n < 2 or ?n == 4)", {"s": "abcd"}, True),
        ("tally(s, ?n) and not (?n < 3 or ?n == 4)", {"s": "abcd"}, False),
        ("tally(s, ?n) and not ?n > $m", {"s": "abcd"}, True),
        ("tally(s, ?n) and 2 * ?n > $m + 4", {"s": "abcd"}, True),
        ("tally(s, ?n) and 2 * ?n > $m + 5", {"s": "abcd"}, False),
        # the joined n of "abcd" and "ab" is 2
        ("tally(s, ?n) and tally(r, ?n)", {"s": "abcd", "r": "ab"}, True),
        ("tally(s, ?n) and tally(r, ?n) and ?n > 2", {"s": "abcd", "r": "ab"}, False),
        ("tally(s, ?n) and tally(r, ?n)", {"s": "abcd", "r": "abcdef"}, False),
        # span(3) is (3, 4), (3, 3) and (1, 3)
        ("span(i, ?y, ?z, 0) and ?y > 2 * ?z", {"i": 3}, False),
        ("span(i, ?y, ?z, 0) and ?z > 2 * ?y", {"i": 3}, True),
        ("span(i, ?y, ?z, 2) and ?z > 2 * ?y", {"i": 3}, False),
        ("span(i, ?y, ?y, 0) and ?y < 3", {"i": 3}, False),
        ("span(i, ?y, ?y, 0) and ?y == 3", {"i": 3}, True),
        ("span(i, ?y, ?z, 0) and tally(s, ?z) and ?y < 2", {"i": 3, "s": "abcd"}, False),
        ("span(i, ?y, ?z, 0) and tally(s, ?z) and ?y > 2", {"i": 3, "s": "abcd"}, True),
        # the alternatives of `or` do not see each other's solutions
        ("(tally(s, ?n) and ?n > 3) or (tally(r, ?n) and ?n < 1)", {"s": "ab", "r": "ab"}, False),
        ("(tally(s, ?n) or tally(r, ?n)) and ?n > 3", {"s": "ab", "r": "abcd"}, True),
        ("(tally(s, ?n) or tally(r, ?n)) and ?n > 4", {"s": "ab", "r": "abcd"}, False),
        (
            "((tally(s, ?n) and ?m < 2) or (f > 9 and tally(s, ?n))) and tally(r, ?m) and (?n > 3 or ?m > 8)",
            {"s": "abcd", "r": "ab"},
            True,
        ),
        ("letter(s, ?c) and letter(r, ?c)", {"s": "abc", "r": "cde"}, True),
        ("letter(s, ?c) and letter(r, ?c) and ?c != 'c'", {"s": "abc", "r": "cde"}, False),
        ("letter(s, ?c) and ?c > 'b'", {"s": "abc"}, True),
        ("f > 1 or tally(s, ?n) and ?n > 3", {"f": 2.0}, True),
    ],
)
def test_an_event_matches_if_solutions_satisfy_the_filter_together(
    text: str, event: Mapping[str, object], matches: bool
) -> None:
    filter = parse(text, T)
    values = {"m": 3} if "$m" in text else {}
    assert filter.matches(event, values) is matches
    assert filter.substitute(values).matches(event) is matches
    structure, _ = filter.lift()
    assert structure.matches(event, filter.lift_values(filter.check_values(values))) is matches


def test_constraints_under_disjunctions_do_not_multiply() -> None:
    wide = " and ".join([f"(?n > {i} or ?n < {-i})" for i in range(30)])
    filter = parse(f"tally(s, ?n) and (f > 1 or ({wide}))", T)
    assert filter.matches({"s": "x" * 30})
    assert not filter.matches({"s": "x" * 29})


def test_what_an_operator_raises_is_raised() -> None:
    def fail(texts: pa.Array) -> pa.Array:
        raise ZeroDivisionError("out of luck")

    text = Parameter("text", frozenset({Kind.STRING}), Takes.ATTRIBUTE)
    with registered(NamedOperator("fail", (text,), fail)):
        filter = parse("fail(s) and f > 1", T)
        with pytest.raises(ZeroDivisionError, match="out of luck"):
            filter.matches({"s": "a", "f": 2.0})
        assert not filter.matches({"s": "a", "f": 1.0})
    with pytest.raises(FilterError, match="unknown operator 'fail'"):
        filter.matches({"s": "a", "f": 2.0})


def test_operators_with_state_start_anew_with_each_event() -> None:
    def seen(state: list[str], texts: pa.Array) -> pa.Array:
        before = len(state)
        state += texts.to_pylist()
        return pa.array([before > 0] * len(texts), pa.bool_())

    text = Parameter("text", frozenset({Kind.STRING}), Takes.ATTRIBUTE)
    with registered(NamedOperator("seen", (text,), seen, state=list)):
        filter = parse("seen(s)", T)
        assert not filter.matches({"s": "a"})
        assert not filter.matches({"s": "a"})
