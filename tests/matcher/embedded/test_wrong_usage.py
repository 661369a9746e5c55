"""Wrong usage of the library: every error names the field, the value and what was expected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey.matcher import (
    CoveyError,
    EventBatch,
    EventError,
    EventType,
    EventTypeError,
    FilterError,
    Matcher,
    SubscriptionError,
    VariableError,
    create_engine,
    parse,
)

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
WIDER = EventType("Quote", {"price": "float64", "venue": "string"})
OTHER_KIND = EventType("Quote", {"price": "string"})
BELOW = parse("firm == $firm and price < $limit", QUOTE)
VALUES = {"firm": "IBM", "limit": 10.0}
CALLS: list[tuple[Callable[[Any], object], type[CoveyError], str]] = [
    (lambda a: a.add(1, BELOW, ["IBM", 10.0]), VariableError, "values of type list: expected a mapping"),
    (lambda a: a.add(1, BELOW, []), VariableError, "values of type list: expected a mapping"),
    (lambda a: a.add_many([1], BELOW, [["IBM"]]), VariableError, "values of type list: expected a mapping"),
    (lambda a: a.add(1, "price < 3"), FilterError, "filter 'price < 3': expected a Filter"),
    (lambda a: a.add_many([1], "price < 3"), FilterError, "filter 'price < 3': expected a Filter"),
    (lambda a: a.add_all([1, 2], BELOW, VALUES), FilterError, "`add_many` takes one filter for all ids"),
    (lambda a: a.add_all([1, 2], None, VALUES), FilterError, "filters None: expected a list"),
    (lambda a: a.match([{"price": 1.0}]), EventError, "batch of type list: expected an EventBatch"),
    (
        lambda a: a.add(1, BELOW, VALUES, interface="a"),
        SubscriptionError,
        r"interface of type <U1 and shape \(\): expected one integer, or 1",
    ),
    (
        lambda a: a.add(1, parse('venue == "X"', WIDER)),
        FilterError,
        "unknown attribute 'venue': expected one of firm, price; widen adds attributes",
    ),
    (
        lambda a: a.add(1, parse('price == "1"', OTHER_KIND)),
        FilterError,
        "attribute price of kind string: expected float64",
    ),
]


@pytest.mark.parametrize(("call", "error", "sentence"), CALLS)
@pytest.mark.parametrize("kind", ["matcher", "naive", "scan"])
def test_wrong_arguments(
    kind: str, call: Callable[[Any], object], error: type[CoveyError], sentence: str
) -> None:
    target = Matcher(QUOTE, engine="naive") if kind == "matcher" else create_engine(kind, QUOTE)
    with pytest.raises(error, match=sentence):
        call(target)
    assert len(target) == 0


@pytest.mark.parametrize("values", [["IBM"], 3])
@pytest.mark.parametrize("kind", ["matcher", "naive", "scan"])
def test_an_update_without_variables(kind: str, values: Any) -> None:
    target: Any = Matcher(QUOTE, engine="naive") if kind == "matcher" else create_engine(kind, QUOTE)
    target.add(1, BELOW, VALUES)
    for change in (target.update, target.update_many):
        with pytest.raises(VariableError, match=r"values of type .*: expected a mapping"):
            change(1 if change == target.update else [1], values)
    assert kind != "matcher" or target[1].values == VALUES


def test_event_types() -> None:
    assert Matcher(QUOTE, WIDER, engine="naive").event_types == [QUOTE.union(WIDER)]
    with pytest.raises(EventTypeError, match="'price': kind string, expected float64"):
        Matcher(QUOTE, OTHER_KIND, engine="naive")
    wrong: Any = "Quote"
    with pytest.raises(EventTypeError, match="event type 'Quote': expected an EventType"):
        Matcher(wrong)
    with pytest.raises(EventTypeError, match="event type 'Quote': expected an EventType"):
        create_engine("cluster", wrong)
    with pytest.raises(EventTypeError, match="event type 'Quote': expected an EventType"):
        Matcher(QUOTE, engine="naive").widen(wrong)


@pytest.mark.parametrize("threads", [0, 1.5, "2"])
def test_threads(threads: object) -> None:
    with pytest.raises(CoveyError, match=f"threads {threads!r}: expected 1 to"):
        Matcher(QUOTE, threads=threads)


def test_one_event_of_matches() -> None:
    matches = Matcher(QUOTE, engine="naive").match(EventBatch.from_pylist(QUOTE, [{"price": 1.0}] * 2))
    assert matches[-1].tolist() == []
    with pytest.raises(IndexError, match="event 2: expected one of 2"):
        matches[2]
    wrong: Any = slice(0, 1)
    with pytest.raises(TypeError, match="slice"):
        matches[wrong]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        Matcher(QUOTE, engine="naive").save(tmp_path / "none" / "subscriptions.arrow")
    assert missing.value.filename == str(tmp_path / "none" / "subscriptions.arrow")
    with pytest.raises(IsADirectoryError) as directory:
        Matcher(QUOTE, engine="naive").save(tmp_path)
    assert directory.value.filename == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
