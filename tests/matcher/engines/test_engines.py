"""What holds of every engine, the oracle included: one suite for all of them."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from math import inf, nan
from time import thread_time
from typing import Any

import numpy as np
import pytest

from covey.matcher import (
    CoveyError,
    Engine,
    EventBatch,
    EventError,
    EventType,
    FilterError,
    SubscriptionError,
    VariableError,
    create_engine,
    parse,
)
from covey.matcher.encoding import ranks
from covey.matcher.engine import engine_names
from covey.matcher.engines.rows.engine import RowEngine

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "time": "timestamp"}
)
LOW, HIGH = -(2**63), 2**63 - 1
Make = Callable[[], Engine]


@pytest.fixture(params=engine_names())
def engine(request: pytest.FixtureRequest) -> Engine:
    return create_engine(request.param, QUOTE)


def batch(*rows: dict[str, Any]) -> EventBatch:
    return EventBatch.from_pylist(QUOTE, list(rows))


def matches(engine: Engine, *rows: dict[str, Any]) -> list[list[int]]:
    offsets, ids = engine.match(batch(*rows)).ordered()
    assert offsets.dtype == ids.dtype == np.int64
    assert (len(offsets), offsets[0], offsets[-1]) == (len(rows) + 1, 0, len(ids))
    return [ids[offsets[i] : offsets[i + 1]].tolist() for i in range(len(rows))]


def prices(engine: Engine, *values: float | None) -> list[list[int]]:
    return matches(engine, *({"price": value} for value in values))


def volumes(engine: Engine, *values: int | None) -> list[list[int]]:
    return matches(engine, *({"volume": value} for value in values))


# --- the promised example ---------------------------------------------------------------------


def test_the_example_of_the_design(engine: Engine) -> None:
    below = parse('firm == "IBM" and price < $limit', QUOTE)
    engine.add(7, below, {"limit": 10.0})
    engine.add_many(np.arange(10, 13), below, {"limit": np.array([8.0, 9.0, 9.5])})
    event = {"firm": "IBM", "price": 9.0, "volume": 100}
    assert matches(engine, event) == [[7, 12]]
    engine.update(7, {"limit": 9.0})
    engine.update_many(np.arange(10, 13), {"limit": np.array([9.5, 9.0, 9.0])})
    assert matches(engine, event, {"firm": "AAPL", "price": 1.0}) == [[10], []]
    engine.remove(10)
    assert matches(engine, event) == [[]]
    assert (len(engine), 7 in engine, 10 in engine) == (3, True, False)


def test_ids_ascend_and_come_once(engine: Engine) -> None:
    engine.add(5, parse("price > 1 or price > 2 or volume in (1, 1, 2)", QUOTE))
    for i in (9, -4, 2**62, LOW, HIGH, 0):
        engine.add(i, parse("price > $x", QUOTE), {"x": 0})
    assert matches(engine, {"price": 3.0, "volume": 1}) == [[LOW, -4, 0, 5, 9, 2**62, HIGH]]


def test_conjunctions_that_want_one_attribute_absent_overlap(engine: Engine) -> None:
    engine.add(1, parse("not exists(firm) and price > 1 or not exists(firm) and volume > 0", QUOTE))
    assert matches(engine, {"price": 3.0, "volume": 1}) == [[1]]


def test_many_matches_grow_the_answer(engine: Engine) -> None:
    engine.add_many(np.arange(3000)[::-1].copy(), parse("price > $x", QUOTE), {"x": np.arange(3000.0)[::-1]})
    answers = prices(engine, 1e9, None, 1500.5, 1e9)
    assert [len(a) for a in answers] == [3000, 0, 1501, 3000]
    assert answers[0] == answers[3] == list(range(3000))


# --- empty things -----------------------------------------------------------------------------


def test_no_subscriptions_and_no_events(engine: Engine) -> None:
    assert matches(engine) == []
    assert matches(engine, {}, {"price": 1.0}) == [[], []]
    assert engine.match(batch()).interfaces().shape == (0, 1)
    assert engine.match(batch({})).interfaces().tolist() == [[0]]
    engine.add(1, parse("", QUOTE))
    assert matches(engine) == []
    assert engine.match(batch()).interfaces().shape == (0, 1)


def test_the_empty_filter_matches_everything_and_false_nothing(engine: Engine) -> None:
    engine.add(1, parse("", QUOTE))
    engine.add(2, parse("false", QUOTE))
    assert matches(engine, {}, {"firm": "IBM", "price": nan}) == [[1], [1]]
    engine.update(2, {})
    engine.remove(2)
    engine.remove(1)
    assert matches(engine, {}) == [[]]


def test_contradictions_match_nothing(engine: Engine) -> None:
    engine.add(1, parse("price < 3 and price > 5", QUOTE))
    engine.add(2, parse("price < $a and price > $b", QUOTE), {"a": 3, "b": 5})
    engine.add(3, parse('firm == "a" and firm == "b"', QUOTE))
    engine.add(4, parse("volume == 10.5", QUOTE))
    engine.add(5, parse("exists(price) and not exists(price)", QUOTE))
    rows = [{"price": p, "firm": f, "volume": v} for p in (2.0, 4.0, 6.0) for f in "ab" for v in (10, 11)]
    assert matches(engine, *rows) == [[]] * len(rows)


@pytest.mark.parametrize(
    "text", ["volume == 1 and volume in ()", "open == true and (time in () or (price < 3 and price in ()))"]
)
def test_a_conjunction_with_an_empty_set_matches_nothing(engine: Engine, text: str) -> None:
    engine.add(1, parse(text, QUOTE))
    assert matches(engine, {"volume": 1, "open": True}) == [[]]


def test_a_conjunction_becomes_empty_and_satisfiable_again(engine: Engine) -> None:
    engine.add(1, parse("price > $a and price < $b", QUOTE), {"a": 1, "b": 5})
    engine.add(2, parse("volume == $v", QUOTE), {"v": 10})
    rows = {"price": 3.0, "volume": 10}
    assert matches(engine, rows) == [[1, 2]]
    engine.update(1, {"a": 9})
    engine.update(2, {"v": 10.5})
    assert matches(engine, rows, {"volume": 11}) == [[], []]
    engine.update(1, {"a": 2.5})
    engine.update(2, {"v": 10.0})
    assert matches(engine, rows) == [[1, 2]]


def test_no_ids_is_no_change(engine: Engine) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    engine.add_many(nothing, parse("price > $x", QUOTE), {"x": np.zeros(0)})
    engine.update_many(nothing, {"x": np.zeros(0)})
    engine.remove_many(nothing)
    engine.remove_many([])
    assert len(engine) == 0


def test_many_filters_are_added_at_once(engine: Engine) -> None:
    filters = [parse("price > $x", QUOTE), parse('firm == "IBM"', QUOTE), parse("volume > $x", QUOTE)]
    engine.add_all([5, 4, 3, 2], filters, {"x": [1.0, 2.0, 3.0, 4.0]}, numbers=[0, 2, 1, 0], interface=3)
    engine.add_all([7, 8], [filters[1], filters[0]], {"x": 9})
    engine.add_all([], [])
    event = {"price": 2.0, "volume": 3, "firm": "IBM"}
    assert matches(engine, event, event | {"price": 10.0}) == [[3, 4, 5, 7], [2, 3, 4, 5, 7, 8]]
    assert engine.match(batch({"volume": 3})).interfaces().tolist() == [[8]]
    engine.update(4, {"x": 3})
    engine.remove_many([3, 7])
    assert matches(engine, event) == [[5]]


def test_a_wrong_load_adds_nothing(engine: Engine) -> None:
    filters = [parse("price > $x", QUOTE), parse("firm == $f", QUOTE)]
    engine.add(1, filters[0], {"x": 0})
    good: dict[str, Any] = {"x": [1.0, 2.0, 3.0], "f": ["a", "b", "c"]}
    for ids, values in (
        ([2, 3, 1], good), ([2, 3, 2], good), ([2, 3], good), ([2, 3, 4], {"x": 1}),
        ([2, 3, 4], good | {"f": ["a", 1, "c"]}), ([2, 3, 4], good | {"x": [1.0, 2.0, nan]}),
        ([2, 3, 4], good | {"x": [1.0]}),
    ):  # fmt: skip
        with pytest.raises((SubscriptionError, FilterError)):
            engine.add_all(ids, filters, values, numbers=[0, 1, 0])
    for numbers in ([0, 1, 2], [0, 1, -1]):
        with pytest.raises(FilterError, match="filter number"):
            engine.add_all([2, 3, 4], filters, good, numbers=numbers)
    with pytest.raises(FilterError):
        engine.add_all([2], [parse("", EventType("Trade", {"firm": "string"}))])
    assert (prices(engine, 1.0), len(engine)) == ([[1]], 1)


# --- errors change nothing --------------------------------------------------------------------


def test_a_duplicate_id_is_an_error_and_adds_none(engine: Engine) -> None:
    anything = parse("", QUOTE)
    engine.add(1, anything)
    for ids in ([2, 1], [2, 3, 2]):
        with pytest.raises(SubscriptionError, match=r"subscription (1|2)"):
            engine.add_many(np.array(ids), anything)
    with pytest.raises(SubscriptionError, match="subscription 1"):
        engine.add(1, parse("price > 3", QUOTE))
    assert matches(engine, {}) == [[1]]


def test_an_unknown_id_is_an_error_and_changes_none(engine: Engine) -> None:
    engine.add(1, parse("price > $x", QUOTE), {"x": 1})
    for wrong in (
        lambda: engine.remove(2),
        lambda: engine.remove_many(np.array([1, 2])),
        lambda: engine.remove_many(np.array([1, 1])),
        lambda: engine.update(2, {"x": 5}),
        lambda: engine.update_many(np.array([1, 2]), {"x": 5}),
        lambda: engine.update_many(np.array([1, 1]), {"x": 5}),
        lambda: engine.explain({}, 2),
    ):
        with pytest.raises(SubscriptionError, match=r"subscription (1|2)"):
            wrong()
    assert (prices(engine, 3.0), len(engine)) == ([[1]], 1)


def test_values_that_do_not_fit_change_nothing(engine: Engine) -> None:
    above = parse("price > $x and firm == $f and time > $t and open == $o", QUOTE)
    good: dict[str, Any] = {"x": 1, "f": "a", "t": "2026-01-01", "o": True}
    engine.add(1, above, good)
    engine.add(2, above, good)
    event = {"price": 2.0, "firm": "a", "time": "2026-06-01", "open": True}
    wrong: list[dict[str, Any]] = [
        {"x": None}, {"x": nan}, {"x": "1"}, {"x": True}, {"x": 2**63}, {"f": 1}, {"f": "\ud800"}, {"t": 5},
        {"t": "soon"}, {"o": 1}, {"y": 1}, {"x": [1, nan]}, {"x": np.array([1, 2, 3])}, {"x": ["1", 2]},
        {"f": ["a", None]}, {"f": np.array(["a", 3], dtype=object)}, {"o": np.array([1, 0])},
        {"t": np.array(["2026-01-01", "NaT"], dtype="datetime64[us]")}, {"x": np.array([True, False])},
        {"x": np.array([0, 2**63], dtype=np.uint64)}, {"x": 1, "y": [1, 2]},
    ]  # fmt: skip
    for values in wrong:
        with pytest.raises(VariableError, match=r"\$[xftoy]"):
            engine.update_many(np.array([1, 2]), values)
        with pytest.raises(VariableError, match=r"\$[xftoy]"):
            engine.add_many(np.array([3, 4]), above, good | values)
    for values in ({"x": 1}, {}):
        with pytest.raises(VariableError, match="has no value"):
            engine.add(5, above, values)
    with pytest.raises(VariableError, match=r"\$x"):
        engine.update(1, {"x": nan})
    assert (matches(engine, event), len(engine)) == ([[1, 2]], 2)


def test_ids_and_interfaces_out_of_range_are_errors(engine: Engine) -> None:
    anything = parse("", QUOTE)
    for ids in (2**63, "1", 1.5):
        with pytest.raises(SubscriptionError, match="expected an integer of 64 bits"):
            engine.add(ids, anything)
        with pytest.raises(SubscriptionError, match=f"subscription .*{ids}"):
            engine.explain({}, ids)
    for interface in (-1, 65_536):
        with pytest.raises(SubscriptionError, match="interface"):
            engine.add(1, anything, interface=interface)
    assert len(engine) == 0


def test_another_event_type_is_an_error(engine: Engine) -> None:
    trade = EventType("Trade", {"firm": "string"})
    other = EventType("Quote", {"price": "int64"})
    wider = EventType("Quote", {"bid": "int64"})
    with pytest.raises(FilterError, match="filter over Trade: expected one over Quote"):
        engine.add(1, parse("", trade))
    for type_, text in ((other, "price > 1"), (wider, "bid > 1")):
        with pytest.raises(FilterError, match=f"filter '{text}' over [A-Z]"):
            engine.add(1, parse(text, type_))
    for type_ in (trade, other):
        with pytest.raises(EventError, match=r"batch of .*: expected one of"):
            engine.match(EventBatch.from_pylist(type_, [{}]))
    assert len(engine) == 0


def test_filters_and_batches_of_other_schemas_of_the_type_that_agree(engine: Engine) -> None:
    other = EventType("Quote", {"bid": "int64", "volume": "int64", "price": "float64"})
    engine.add(1, parse("price < 10 and volume > 5", other))
    engine.add(2, parse("not exists firm", QUOTE))
    rows = [{"price": 9.0, "volume": 6, "bid": 1}, {"price": 11.0, "volume": 6}, {"price": 9.0}]
    offsets, ids = engine.match(EventBatch.from_pylist(other, rows)).ordered()
    assert (offsets.tolist(), ids.tolist()) == ([0, 2, 3, 4], [1, 2, 2, 2])
    assert matches(engine, {"firm": "IBM", "price": 9.0, "volume": 6}) == [[1]]


def test_unknown_engines_are_named() -> None:
    with pytest.raises(CoveyError, match=r"'turbo': expected one of .*cluster"):
        create_engine("turbo", QUOTE)


# --- exact values -----------------------------------------------------------------------------


def test_bounds_of_any_integer_are_exact(engine: Engine) -> None:
    values = [LOW + 1, LOW + 2, -1, 0, HIGH - 2, HIGH - 1]
    bounds = [LOW, *values, HIGH, -inf, inf, 0.5, -(2.0**63), 2.0**63]
    expected: list[list[int]] = [[] for _ in values]
    subscription = 0
    for operator, holds in {
        "<": lambda x, b: x < b, "<=": lambda x, b: x <= b, ">": lambda x, b: x > b,
        ">=": lambda x, b: x >= b, "==": lambda x, b: x == b, "!=": lambda x, b: x != b,
    }.items():  # fmt: skip
        for bound in bounds:
            subscription += 1
            engine.add(
                subscription, parse(f"volume {operator} $b", QUOTE), {"b": bound}, interface=subscription
            )
            for position, value in enumerate(values):
                if holds(value, bound):
                    expected[position].append(subscription)
    assert volumes(engine, *values, None) == [*expected, []]
    engine.update_many(np.arange(1, subscription + 1), {"b": 5})
    engine.update_many(np.arange(1, subscription + 1), {"b": np.array(bounds * 6, dtype=object)})
    assert volumes(engine, *values, None) == [*expected, []]
    bits = engine.match(batch(*({"volume": value} for value in values))).interfaces()
    assert [
        [64 * w + i for w in range(len(row)) for i in range(64) if row[w] >> np.uint64(i) & np.uint64(1)]
        for row in bits
    ] == expected


def test_zero_has_one_value(engine: Engine) -> None:
    for i, text in enumerate(["price == 0", "price == -0.0", "price < 0", "price >= -0.0", "price > 0.0"]):
        engine.add(i, parse(text, QUOTE))
    assert prices(engine, 0.0, -0.0, 5e-324, -5e-324) == [[0, 1, 3], [0, 1, 3], [3, 4], [2]]


def test_infinities_are_numbers(engine: Engine) -> None:
    for i, text in enumerate(["price < inf", "price <= inf", "price > -inf", "price == inf", "price > inf"]):
        engine.add(i, parse(text, QUOTE))
    assert prices(engine, inf, -inf, 1e308) == [[1, 2, 3], [0, 1], [0, 1, 2]]


def test_nan_satisfies_only_unequal_and_exists(engine: Engine) -> None:
    texts = ["price != 1", "exists(price)", "price > -inf", "price <= inf", "not exists(price)",
             "price not in (1, 2)", "price not between 1 and 2", "price == 1"]  # fmt: skip
    for i, text in enumerate(texts):
        engine.add(i, parse(text, QUOTE))
    assert prices(engine, nan, None) == [[0, 1, 5], [4]]


def test_missing_attributes_make_neither_a_test_nor_its_negation_true(engine: Engine) -> None:
    texts = ['firm == "a"', 'firm != "a"', 'firm prefix "a"', 'not firm prefix "a"', "volume < 3",
             "not volume < 3", "open == true", "open != true", 'time > "2026-01-01"',
             "not exists(firm)"]  # fmt: skip
    for i, text in enumerate(texts):
        engine.add(i, parse(text, QUOTE))
    assert matches(engine, {}) == [[9]]
    event = {"firm": "b", "volume": 3, "open": False, "time": datetime(2026, 2, 1, tzinfo=UTC)}
    assert matches(engine, event) == [[1, 3, 5, 7, 8]]


def test_integers_compare_with_fractions_exactly(engine: Engine) -> None:
    texts = ["volume < 10.5", "volume > 10.5", "volume >= 9007199254740993", "volume > 9007199254740992.0"]
    for i, text in enumerate(texts):
        engine.add(i, parse(text, QUOTE))
    assert volumes(engine, 10, 11, 2**53, 2**53 + 1) == [[0], [1], [1], [1, 2, 3]]


def test_affine_operands_move_both_ends(engine: Engine) -> None:
    engine.add(1, parse("price >= $x - 5 and price <= 1.5 * $x", QUOTE), {"x": 10})
    engine.add(2, parse("volume > $v + 1", QUOTE), {"v": HIGH})
    assert prices(engine, 4.9, 5.0, 15.0, 15.1) == [[], [1], [1], []]
    assert volumes(engine, HIGH - 1) == [[]]
    engine.update(1, {"x": 20.0})
    engine.update(2, {"v": -2})
    assert prices(engine, 14.9, 15.0, 30.0) == [[], [1], [1]]
    assert volumes(engine, -1, 0) == [[], [2]]


def test_several_bounds_on_one_side_all_hold(engine: Engine) -> None:
    engine.add(
        1, parse("price > $a and price > $b and price > 5 and price < $c", QUOTE), {"a": 1, "b": 7, "c": 9}
    )
    assert prices(engine, 6.0, 8.0) == [[], [1]]
    engine.update(1, {"b": 2})
    assert prices(engine, 5.0, 6.0, 9.0) == [[], [1], []]
    engine.update(1, {"a": 6.5})
    assert prices(engine, 6.0, 8.0) == [[], [1]]


# --- strings ----------------------------------------------------------------------------------


def test_text_tests_and_the_order_of_code_points(engine: Engine) -> None:
    texts = ['firm prefix "a"', 'firm suffix "a"', 'firm contains ""', 'firm > "\uffff"', 'firm <= "a"',
             'firm between "a" and "b"', 'not firm contains "b"']  # fmt: skip
    for i, text in enumerate(texts):
        engine.add(i, parse(text, QUOTE))
    rows = [{"firm": text} for text in ("a", "ab", "ba", "", "\U0001d11e", "b")]
    assert matches(engine, *rows) == [[0, 1, 2, 4, 5, 6], [0, 2, 5], [1, 2], [2, 4, 6], [2, 3, 6], [2, 5]]


def test_variables_in_text_tests_and_equalities_move(engine: Engine) -> None:
    begins = parse("firm prefix $p and price > $x", QUOTE)
    engine.add_many(np.arange(4), begins, {"p": ["a", "b", "a", "c"], "x": np.arange(4.0)})
    engine.add_many(
        np.arange(4, 7), parse("firm == $f and volume == $v", QUOTE), {"f": ["a", "b", "a"], "v": 1}
    )
    rows = [{"firm": firm, "price": 9.0, "volume": 1} for firm in ("a", "bc")]
    assert matches(engine, *rows, {"firm": "b", "volume": 1}) == [[0, 2, 4, 6], [1], [5]]
    engine.update(0, {"p": "b"})
    engine.update_many(np.array([4, 6]), {"f": np.array(["b", "c"]), "v": np.array([1, 2])})
    assert matches(engine, *rows, {"firm": "b", "volume": 1}) == [[2], [0, 1], [4, 5]]
    engine.update_many(np.arange(4), {"p": "", "x": 8.5})
    assert matches(engine, *rows) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    engine.remove_many(np.arange(7))
    assert matches(engine, *rows) == [[], []]


def test_two_equalities_of_one_string_agree_or_match_nothing(engine: Engine) -> None:
    engine.add(1, parse("firm == $f and firm == $g", QUOTE), {"f": "a", "g": "b"})
    assert matches(engine, {"firm": "a"}, {"firm": "b"}) == [[], []]
    engine.update(1, {"g": "a"})
    assert matches(engine, {"firm": "a"}, {"firm": "b"}) == [[1], []]
    engine.update(1, {"f": "b"})
    assert matches(engine, {"firm": "a"}, {"firm": "b"}) == [[], []]


def test_one_variable_in_several_places(engine: Engine) -> None:
    engine.add(
        1, parse("firm == $f or firm prefix $f and price > $x or volume > $x", QUOTE), {"f": "a", "x": 1}
    )
    rows = [{"firm": "a"}, {"firm": "ab", "price": 2.0}, {"volume": 2}, {"firm": "b", "volume": 5}]
    assert matches(engine, *rows) == [[1], [1], [1], [1]]
    engine.update(1, {"f": "b", "x": 3})
    assert matches(engine, *rows) == [[], [], [], [1]]


def test_string_ids_without_users_are_freed(engine: Engine) -> None:
    engine.add(1, parse("firm == $f", QUOTE), {"f": "x"})
    engine.add(2, parse("firm == $f and price > 1", QUOTE), {"f": "steady"})
    before = sum(engine.memory_bytes().values())
    for i in range(3000):
        engine.update(1, {"f": f"constant number {i}"})
    rows = EventBatch.from_pylist(QUOTE, [{"firm": f"constant number {i}"} for i in range(3000)])
    offsets, ids = engine.match(rows).ordered()
    assert (offsets[2999], ids.tolist()) == (0, [1])
    assert matches(engine, {"firm": "steady", "price": 2.0}) == [[2]]
    assert sum(engine.memory_bytes().values()) < before + 250_000


def test_ranges_of_strings_are_written_in_place(engine: Engine) -> None:
    engine.add_many(np.arange(3), parse("firm prefix $p and firm < $x", QUOTE), {"p": list("aab"), "x": "ac"})
    engine.add(3, parse("firm != $p and firm not prefix 'b'", QUOTE), {"p": "abc"})
    rows = [{"firm": firm} for firm in ("a", "abc", "ac", "b", "bcd", "c", "")]
    assert matches(engine, *rows) == [[0, 1, 3], [0, 1], [3], [], [], [3], [3]]
    engine.update(1, {"x": "b"})
    engine.update_many(np.array([0, 2]), {"p": np.array(["ab", "b"]), "x": np.array(["ad", "c"])})
    engine.update(3, {"p": ""})
    assert matches(engine, *rows) == [[1, 3], [0, 1, 3], [1, 3], [2], [2], [3], []]
    if isinstance(engine, RowEngine):
        assert "below 'ad'" in engine.explain(rows[1], 0)
        assert "event has 'bcd'" in engine.explain(rows[4], 0)


def test_prefixes_without_an_end(engine: Engine) -> None:
    engine.add(1, parse("firm prefix $p", QUOTE), {"p": "\U0010ffff"})
    engine.add(2, parse("firm not prefix $p", QUOTE), {"p": "\U0010ffff"})
    engine.add(3, parse("firm prefix ''", QUOTE))
    rows = [{"firm": "\U0010ffffa"}, {"firm": "\uffff"}, {}]
    assert matches(engine, *rows) == [[1, 3], [2, 3], []]


def test_ranks_in_a_narrow_space_are_made_anew(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "SPAN", 256)
    rows: list[dict[str, object]] = [{"firm": text} for text in ("a", "ab", "abb", "b", "ba")]
    expected: list[list[int]] = [[] for _ in rows]
    for i in range(60):
        bound = "ab" * (i % 7) + chr(97 + i % 5)
        engine.add_many(
            np.array([2 * i]), parse("firm < $x and price < 3 or firm prefix $x", QUOTE), {"x": [bound]}
        )
        engine.add(2 * i + 1, parse("firm >= $x", QUOTE), {"x": bound + "a"})
        for row, ids in zip(rows, expected, strict=True):
            firm = str(row["firm"])
            ids += [2 * i] * firm.startswith(bound) + [2 * i + 1] * (firm >= bound + "a")
    assert matches(engine, *rows) == expected


def test_strings_of_ranges_without_users_are_freed(engine: Engine) -> None:
    engine.add(1, parse("firm < $f", QUOTE), {"f": "x"})
    engine.add(2, parse("firm < $f and price > 1", QUOTE), {"f": "steady"})
    before = sum(engine.memory_bytes().values())
    for i in range(3000):
        engine.update(1, {"f": f"constant number {i}"})
    rows = [{"firm": f"constant number {i}", "price": 2.0} for i in (2, 2998, 2999, 3000)]
    assert matches(engine, *rows) == [[1, 2], [1, 2], [2], [2]]
    assert sum(engine.memory_bytes().values()) < before + 250_000
    engine.remove_many(np.array([1, 2]))
    assert not isinstance(engine, RowEngine) or not engine.columns.ranks


def test_endings_and_contents(engine: Engine) -> None:
    ends = parse("firm suffix $s and firm not suffix $t and firm not contains 'x'", QUOTE)
    engine.add_many(np.arange(4), ends, {"s": ["a", "\u00e9a", "", "bca"], "t": "ca"})
    engine.add(4, parse("firm contains $s", QUOTE), {"s": "bc"})
    firms: list[dict[str, object]] = [{"firm": f} for f in ("a", "b\u00e9a", "bca", "xa", "", "bcb")]
    assert matches(engine, *firms) == [[0, 2], [0, 1, 2], [4], [], [2], [2, 4]]
    engine.update_many(np.arange(4), {"s": ["ca", "a", "b", "cb"], "t": ["", "b", "q", "a"]})
    engine.update(4, {"s": ""})
    assert matches(engine, *firms) == [[1, 4], [1, 4], [1, 4], [4], [4], [2, 3, 4]]
    engine.update(3, {"s": "b"})
    assert matches(engine, *firms, {}) == [[1, 4], [1, 4], [1, 4], [4], [4], [2, 3, 4], []]
    engine.remove_many(np.arange(5))
    assert matches(engine, *firms) == [[]] * 6
    assert not isinstance(engine, RowEngine) or not (engine.columns.texts or engine.columns.endings)


def listed(values: Iterable[object]) -> str:
    return ", ".join(map(repr, values))


def test_long_lists_are_sets(engine: Engine) -> None:
    engine.add(1, parse(f"volume in ({listed(range(0, 400, 2))})", QUOTE))
    engine.add(2, parse(f"volume in ({listed(range(1, 400, 2))}) and price > 1", QUOTE))
    engine.add(3, parse(f"volume in ({listed(range(0, 400, 3))})", QUOTE))
    engine.add(4, parse(f"volume not in ({listed([*range(0, 400, 4), 0.5, 1e30])})", QUOTE))
    engine.add_many(np.arange(5, 8), parse(f"price in ({listed([i / 2 for i in range(99)])})", QUOTE))
    engine.add(8, parse(f"price not in ({listed([i / 2 for i in range(99)])})", QUOTE))
    names = [f"f{i}" for i in range(300)]
    engine.add(9, parse(f"firm in ({listed(names)}) and firm > $low", QUOTE), {"low": "f2"})
    engine.add(10, parse(f"firm not in ({listed(names)})", QUOTE))
    assert volumes(engine, 0, 1, 6, 401, None) == [[1, 3], [4], [1, 3, 4], [4], []]
    assert prices(engine, 1.5, 0.7, nan, None) == [[5, 6, 7], [8], [8], []]
    assert matches(engine, {"volume": 3, "price": 1.5}) == [[2, 3, 4, 5, 6, 7]]
    firms: list[dict[str, object]] = [{"firm": firm} for firm in ("f3", "f1", "g", "f300")]
    assert matches(engine, *firms) == [[9], [], [10], [10]]
    engine.update(9, {"low": "f0"})
    engine.remove_many(np.array([1, 5, 7]))
    assert matches(engine, *firms) == [[9], [9], [10], [10]]
    assert volumes(engine, 0, 1, 6) == [[3], [4], [3, 4]]
    assert prices(engine, 1.5) == [[6]]
    if isinstance(engine, RowEngine):
        assert engine.trees is None
        shown = "(0, 3, 6, 9 and 130 more)" in engine.explain({"volume": 3}, 3)
        assert shown is (engine.name not in ("noncanonical", "trees"))
        engine.remove_many(np.array([2, 3, 4, 6, 8, 9, 10]))
        assert engine.columns.derived == 0
        assert not engine.columns.members


def test_nan_is_outside_of_sets(engine: Engine) -> None:
    listing = listed([i / 2 for i in range(99)])
    engine.add(1, parse(f"price in ({listing}) and price != $x", QUOTE), {"x": 4})
    engine.add(2, parse(f"price != $x and price not in ({listing})", QUOTE), {"x": 99})
    assert prices(engine, 3.5, 4.0, 98.0, 99.0, nan, None) == [[1], [], [2], [], [2], []]
    engine.update_many([1, 2], {"x": [3.5, 98]})
    assert prices(engine, 3.5, 4.0, 98.0, 99.0, nan, None) == [[], [1], [], [2], [2], []]


def test_lists_of_integers_and_what_lies_between_them(engine: Engine) -> None:
    engine.add(1, parse("volume not in (1, 7, 0.5, 0)", QUOTE))
    engine.add(2, parse("price not in (9007199254740994.0, 9007199254740993, 1)", QUOTE))
    assert volumes(engine, 0, 1, 2, 7) == [[], [], [1], []]
    assert prices(engine, 1.0, 2.0**53, 2.0**53 + 2, 2.0**53 + 4) == [[], [2], [], [2]]


def test_sets_that_share_values(engine: Engine) -> None:
    sets = [set(range(i, 900, i % 7 + 1)) for i in range(40)]
    for i, members in enumerate(sets):
        engine.add(i, parse(f"volume in ({listed(members)}) and price >= $p", QUOTE), {"p": i})
    for dropped in ([], [3, 4, 11], range(20, 40)):
        engine.remove_many(np.array(dropped, dtype=np.int64))
        left = [i for i in range(40) if i in engine]
        rows = [{"volume": v, "price": 25.0} for v in range(0, 900, 11)]
        assert matches(engine, *rows) == [
            [i for i in left if v in sets[i] and i <= 25] for v in range(0, 900, 11)
        ]


def test_lists_that_make_too_many_conjunctions_are_sets(engine: Engine) -> None:
    engine.add(1, parse(f"volume in ({listed(range(50))}) and price in ({listed(range(50))})", QUOTE))
    rows = [{"volume": 3, "price": 4.0}, {"volume": 50, "price": 4.0}, {"volume": 3, "price": 4.5}]
    assert matches(engine, *rows) == [[1], [], []]
    assert not isinstance(engine, RowEngine) or engine.trees is None


def test_strings_of_sets_stay(engine: Engine) -> None:
    engine.add(1, parse(f"firm in ({listed([f's{i}' for i in range(100)])})", QUOTE))
    engine.add(2, parse("firm == $f", QUOTE), {"f": "x"})
    for i in range(3000):
        engine.update(2, {"f": f"constant number {i}"})
    assert matches(engine, {"firm": "s7"}, {"firm": "constant number 2999"}) == [[1], [2]]


def test_subscriptions_over_the_cap_leave_nothing_behind(engine: Engine) -> None:
    engine.add(1, parse(WIDE, QUOTE), {"x": 1, "s": "a"})
    engine.remove(1)
    assert not isinstance(engine, RowEngine) or engine.trees is None


# --- over the cap -----------------------------------------------------------------------------

WIDE = " and ".join(f"(volume == {i} or price > $x + {i} or firm contains $s)" for i in range(8))


def test_filters_over_the_cap_are_matched_like_any_other(engine: Engine) -> None:
    wide = parse(WIDE, QUOTE)
    assert wide.boxes() is None
    engine.add_many(np.array([3, 4]), wide, {"x": np.array([1, 100]), "s": ["zz", "b"]}, interface=70)
    engine.add(1, parse("price > 5", QUOTE))
    rows = [
        {"price": 9.0},
        {"price": 8.0, "volume": 7},
        {"firm": "abc"},
        {"price": nan},
        {"volume": LOW + 1, "price": 1e9},
    ]
    assert matches(engine, *rows) == [[1, 3], [1, 3], [4], [], [1, 3, 4]]
    assert engine.match(batch(*rows)).interfaces()[:, 1].tolist() == [64, 64, 64, 0, 64]
    engine.update(3, {"x": 50})
    engine.update_many(np.array([4]), {"s": "q", "x": np.array([0.5])})
    assert matches(engine, *rows) == [[1, 4], [1, 4], [], [], [1, 3, 4]]
    with pytest.raises(VariableError):
        engine.update_many(np.array([1, 3]), {"x": 1})
    assert "4" in engine.explain(rows[0], 4)
    engine.remove_many(np.array([1, 3, 4]))
    assert (len(engine), matches(engine, *rows)) == (0, [[]] * 5)


def test_a_filter_over_the_cap_does_not_slow_loading() -> None:
    engine, ids = create_engine("cluster", QUOTE), np.arange(100_000)
    below = parse("price < $x", QUOTE)
    times = []
    for number in range(3):  # the first one compiles
        start = thread_time()
        engine.add_many(ids + number * len(ids), below, {"x": ids})
        times.append(thread_time() - start)
        if number == 1:
            engine.add(-1, parse(WIDE, QUOTE), {"x": 1, "s": "a"})
    assert times[2] < max(3 * times[1], 0.06), times
    with pytest.raises(SubscriptionError, match="subscription -1: already added"):
        engine.add_many(np.array([-2, -1]), below, {"x": 1})


def test_long_lists_of_constants_stay_under_the_cap(engine: Engine) -> None:
    engine.add(1, parse(f"volume not in ({', '.join(map(str, range(0, 80, 2)))})", QUOTE))
    engine.add(2, parse(f"volume in ({', '.join(map(str, range(0, 200, 2)))})", QUOTE))
    assert volumes(engine, 3, 4, 79, 100, 200, None) == [[1], [2], [1], [1, 2], [1], []]


# --- interfaces -------------------------------------------------------------------------------


def test_interfaces_are_bit_numbers(engine: Engine) -> None:
    above = parse("price > $x", QUOTE)
    interfaces = np.array([0, 63, 64, 64, 130, 130])
    engine.add_many(
        np.arange(6), above, {"x": np.array([1.0, 2.0, 3.0, 9.0, 4.0, 5.0])}, interface=interfaces
    )
    bits = engine.match(batch({"price": 2.5}, {"price": 9.5}, {}, {"price": 4.5})).interfaces()
    assert bits.dtype == np.uint64
    assert bits.tolist() == [[1 | 1 << 63, 0, 0], [1 | 1 << 63, 1, 4], [0, 0, 0], [1 | 1 << 63, 1, 4]]
    engine.remove_many(np.array([0, 4]))
    assert engine.match(batch({"price": 4.5})).interfaces().tolist() == [[1 << 63, 1, 0]]


# --- life -------------------------------------------------------------------------------------


def test_memory_is_reused_after_all_were_removed(engine: Engine) -> None:
    ids = np.arange(2000)
    firms = [f"firm {i % 50}" for i in range(2000)]
    held = []
    for _ in range(4):
        engine.add_many(
            ids, parse("firm == $f and price < $p or volume == $v", QUOTE), {"f": firms, "p": 5.0, "v": ids}
        )
        assert matches(engine, {"firm": "firm 7", "price": 1.0, "volume": 3}) == [[3, *range(7, 2000, 50)]]
        held.append(sum(engine.memory_bytes().values()))
        engine.remove_many(ids[::2])
        engine.remove_many(ids[1::2][::-1].copy())
        assert (len(engine), matches(engine, {"firm": "firm 7", "price": 1.0})) == (0, [[]])
    assert held[3] <= 1.5 * held[0]


def test_attributes_are_encoded_again_when_tested_again(engine: Engine) -> None:
    engine.add_many(np.arange(10), parse("price > $x and volume < 5", QUOTE), {"x": np.arange(10)})
    engine.add(10, parse("volume < 7", QUOTE))
    assert matches(engine, {"price": 8.5, "volume": 6}) == [[10]]
    engine.remove_many(np.arange(10))
    assert matches(engine, {"price": 8.5, "volume": 6}, {"price": 8.5, "volume": 8}) == [[10], []]
    engine.add_many(np.arange(10), parse("price > $x or exists(price) and $x > volume", QUOTE), {"x": 8})
    engine.remove(10)
    assert matches(engine, {"price": 8.5}, {"price": 1.0, "volume": 8}, {"volume": 1}) == [
        [*range(10)],
        [],
        [],
    ]


def test_filters_that_differ_in_constants_alone(engine: Engine) -> None:
    for i in range(60):
        engine.add(i, parse(f'firm == "f{i % 3}" and price between {i} and {i + 10}', QUOTE))
    assert matches(engine, {"firm": "f1", "price": 30.0}) == [[22, 25, 28]]
    engine.remove_many(np.arange(0, 60, 2))
    assert matches(engine, {"firm": "f1", "price": 30.0}) == [[25]]


def test_many_structures(engine: Engine) -> None:
    wide = EventType("Wide", {f"a{i}": "int64" for i in range(12)})
    made = create_engine(engine.name, wide)
    expected = []
    for i in range(12):
        for j in range(12):
            made.add(12 * i + j, parse(f"a{i} == 1 and a{j} == {1 if j == i else 2}", wide))
            if i % 2 == 0 and (j % 2 == 1 or i == j):
                expected.append(12 * i + j)
    event = {f"a{i}": 1 + i % 2 for i in range(12)}
    offsets, ids = made.match(EventBatch.from_pylist(wide, [event, {}])).ordered()
    assert (ids.tolist(), offsets.tolist()) == (expected, [0, len(expected), len(expected)])
    for i in range(0, 144, 2):
        made.remove(i)
    assert made.match(EventBatch.from_pylist(wide, [event])).ordered()[1].tolist() == [
        i for i in expected if i % 2
    ]


def test_subscriptions_of_several_structures_update_together(engine: Engine) -> None:
    engine.add(1, parse("price > $x", QUOTE), {"x": 1})
    engine.add(2, parse("price > $x and volume > 3 or price < -$x", QUOTE), {"x": 2})
    engine.add(3, parse("price == $x", QUOTE), {"x": 3})
    engine.update_many(np.array([3, 1, 2]), {"x": np.array([30.0, 10.0, 20.0])})
    assert matches(engine, {"price": 30.0, "volume": 4}, {"price": -25.0}) == [[1, 2, 3], [2]]
    engine.add(4, parse("price > $y", QUOTE), {"y": 1})
    with pytest.raises(VariableError, match=r"\$x"):
        engine.update_many(np.array([1, 4]), {"x": 0})
    assert matches(engine, {"price": 5.0}) == [[4]]


def test_an_update_of_several_structures_that_fails_changes_none(engine: Engine) -> None:
    cap = " and ".join(f"(price == {i} or volume == $x + {i})" for i in range(12))
    engine.add(1, parse("price > $x", QUOTE), {"x": 1})
    engine.add(2, parse("volume > $x and volume < 9", QUOTE), {"x": 1})
    engine.add(3, parse(cap, QUOTE), {"x": -11})
    engine.add(4, parse("firm suffix $x", QUOTE), {"x": "M"})
    engine.add(5, parse("firm == $x", QUOTE), {"x": "IBM"})
    events = [{"price": 2.0, "volume": 2, "firm": "IBM"}, {"price": 0.0, "volume": 0, "firm": "X"}]
    before = matches(engine, *events)
    assert before == [[1, 2, 4, 5], []]
    for ids, x in (([1, 2, 5], 0), ([3, 1, 4], 0), ([4, 5, 2], "X"), ([5, 3], "X"), ([3, 9], 0), ([1, 1], 0)):
        with pytest.raises(CoveyError):
            engine.update_many(np.array(ids), {"x": x})
        with pytest.raises(CoveyError):
            engine.update_many(np.array(ids), {"x": [x] * len(ids)})
        assert matches(engine, *events) == before


def test_structures_that_write_the_same_update_together(engine: Engine) -> None:
    wide = EventType("Wide", {f"a{i}": "int64" for i in range(6)} | {"f": "float64"})
    made, oracle = create_engine(engine.name, wide), create_engine("naive", wide)
    rng = np.random.default_rng(7)
    texts = [
        f"a{i} == $x and a{j} {sign} $y" for i in range(4) for j in range(4) for sign in ("<", ">=", "==")
    ]
    texts += [
        "f > $x and a0 <= $y",
        "a1 == $x and (a2 > $y or a3 < 2 * $y)",
        "a4 > $y and a4 < $y + 3 or f == $x",
    ]
    for number, text in enumerate(texts):
        ids = np.arange(5 * number, 5 * number + 5)
        for each in (made, oracle):
            each.add_many(ids, parse(text, wide), {"x": ids % 4, "y": ids % 3})
    events = [{f"a{i}": int(value) for i, value in enumerate(row)} for row in rng.integers(0, 5, (25, 6))]
    events += [{"a0": LOW + 1, "a1": HIGH - 1, "a2": HIGH - 2, "f": 2.0}]
    events_batch = EventBatch.from_pylist(wide, events)
    for low, high in ((0, 5), (LOW, LOW + 3), (HIGH - 2, HIGH), (0, 5)):
        ids = rng.permutation(5 * len(texts))[:200]
        values = {name: rng.integers(low, high, 200, endpoint=True) for name in ("x", "y")}
        for each in (made, oracle):
            each.update_many(ids, values)
        found, expected = made.match(events_batch).ordered(), oracle.match(events_batch).ordered()
        assert found[0].tolist() == expected[0].tolist()
        assert found[1].tolist() == expected[1].tolist()
    with pytest.raises(VariableError, match=r"\$y"):
        made.update_many(ids, {"x": values["x"], "y": np.where(ids == ids[-1], np.nan, 1.0)})
    assert made.match(events_batch).ordered()[1].tolist() == expected[1].tolist()


def test_values_in_every_form(engine: Engine) -> None:
    everything = parse("firm == $f and price >= $p and volume >= $v and open == $o and time >= $t", QUOTE)
    times = np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")
    forms: list[dict[str, Any]] = [
        {"f": np.array(["a", "b"]), "p": np.array([1, 2], np.int32), "v": np.array([1.5, 2.5], np.float32),
         "o": np.array([True, False]), "t": times},
        {"f": np.array(["a", "b"], dtype=object), "p": [1, 2.0], "v": [2, 3], "o": [True, False],
         "t": ["2026-01-01", datetime(2026, 1, 2)]},
        {"f": ["a", "b"], "p": np.array([1, 2.0], dtype=object), "v": np.array([2, 3], np.uint64),
         "o": np.array([True, False], dtype=object), "t": list(times)},
    ]  # fmt: skip
    rows = [
        {"firm": "a", "price": 1.0, "volume": 2, "open": True, "time": "2026-01-01"},
        {"firm": "b", "price": 2.0, "volume": 3, "open": False, "time": "2026-01-02"},
        {"firm": "b", "price": 2.0, "volume": 3, "open": False, "time": "2026-01-01T23:59:59.999999"},
    ]
    for start, values in enumerate(forms):
        engine.add_many(np.array([2 * start, 2 * start + 1]), everything, values)
    assert matches(engine, *rows) == [[0, 2, 4], [1, 3, 5], []]
    for start, values in enumerate(forms):
        engine.update_many(np.array([2 * start + 1, 2 * start]), values)
    assert matches(engine, *rows) == [[1, 3, 5], [0, 2, 4], []]


# --- for people -------------------------------------------------------------------------------


def test_render_and_memory_bytes(engine: Engine) -> None:
    engine.add(7, parse('firm == "IBM" and price < $limit', QUOTE), {"limit": 10.0})
    engine.add(8, parse("volume > 3 or open == true", QUOTE))
    assert "2 subscriptions to Quote" in engine.render()
    yes = engine.explain({"firm": "IBM", "price": 9.0}, 7)
    no = engine.explain({"firm": "IBM", "price": 11.5}, 7)
    assert "subscription 7 matches" in yes
    assert "subscription 7 does not match" in no
    assert "11.5" in no
    assert sum(engine.memory_bytes().values()) > 0
    with pytest.raises(EventError, match="price"):
        engine.explain({"price": "cheap"}, 7)


@pytest.mark.parametrize("offset", ["1e13", "9.222e12", "-1e13"])
def test_a_column_of_times_with_a_large_offset_matches_as_its_elements(engine: Engine, offset: str) -> None:
    times = [datetime(2020, 1, 1), datetime(2200, 1, 1)]
    after = parse(f"time > $t + {offset}", QUOTE)
    engine.add_many([1, 2], after, {"t": times})
    events = [{"time": datetime(2026, 1, 1)}, {"time": datetime.max}]
    expected = [[i + 1 for i, t in enumerate(times) if after.matches(event, {"t": t})] for event in events]
    assert matches(engine, *events) == expected
