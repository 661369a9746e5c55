"""A matcher against a dict of subscriptions and the naive engine: changes, reading, snapshots."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from draws import DRAWS, SEED
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from random_filters import POOLS, event_types, events, family_of, filters, values_of

from covey.matcher import (
    CoveyError,
    EventBatch,
    EventType,
    EventTypeError,
    Filter,
    FilterError,
    Matcher,
    SubscriptionError,
    VariableError,
    create_engine,
    parse,
)
from covey.matcher.expressions.values import Family

QUOTE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
TRADE = EventType("Trade", {"firm": "string", "size": "int64", "time": "timestamp"})
BELOW = parse("firm == $firm and price < $limit", QUOTE)
LARGE = parse("size >= $limit", TRADE)


def matching(matcher: Matcher, event_type: EventType, **event: Any) -> list[int]:
    _, ids = matcher.match(EventBatch.from_pylist(event_type, [event]))
    return sorted(ids.tolist())


@pytest.fixture
def matcher() -> Matcher:
    matcher = Matcher(engine="naive")
    matcher.add(1, BELOW, {"firm": "IBM", "limit": 10}, interface=3)
    matcher.add_many([2, 3], LARGE, {"limit": [100, 200.5]})
    return matcher


def test_a_matcher_is_widened_in_place_and_saved_so(tmp_path: Path) -> None:
    narrow = EventType("Note", {"text": "string"})
    wide = EventType("Note", {"size": "int64", "text": "string"})
    matcher = Matcher(narrow)
    matcher.add(1, parse('text suffix "b"', narrow))
    with pytest.raises(EventTypeError, match="kind int64, expected string"):
        matcher.widen(EventType("Note", {"text": "int64"}))
    matcher.widen(wide)
    matcher.add(2, parse("size > 3", wide))
    matcher.save(tmp_path / "saved")
    for each in (matcher, Matcher.load(tmp_path / "saved")):
        assert [t.names for t in each.event_types] == [("text", "size")]
        assert matching(each, wide, size=4, text="ab") == [1, 2]
        assert matching(each, narrow, text="b") == [1]


def test_subscriptions_of_several_event_types(matcher: Matcher) -> None:
    assert [each.name for each in matcher.event_types] == ["Quote", "Trade"]
    assert (len(matcher), 2 in matcher, 4 in matcher, "1" in matcher) == (3, True, False, False)
    assert matching(matcher, QUOTE, firm="IBM", price=9.0) == [1]
    assert matching(matcher, TRADE, size=150) == [2]
    matcher.update_many([1, 3], {"limit": [8, 50]})
    assert matching(matcher, QUOTE, firm="IBM", price=9.0) == []
    assert matching(matcher, TRADE, size=150) == [2, 3]
    filters = [parse("volume > $v", QUOTE), parse("size > $v", TRADE)]
    matcher.add_all([7, 6, 5], filters, {"v": [1, 2, 3]}, numbers=[0, 1, 0])
    assert matching(matcher, QUOTE, volume=2) == [7]
    matcher.remove_many([6, 1, 2])
    matcher.remove(7)
    assert [each.id for each in matcher] == [3, 5]
    assert matching(matcher, EventType("Other", {"x": "int64"}), x=1) == []


def test_subscriptions_are_read_back(matcher: Matcher) -> None:
    found = matcher[1]
    assert (found.id, found.filter, found.values, found.interface) == (
        1,
        BELOW,
        {"firm": "IBM", "limit": 10},
        3,
    )
    matcher.update(1, {"limit": 2.5, "firm": "HP"})
    assert matcher[1].values == {"firm": "HP", "limit": 2.5}
    assert [each.values for each in matcher] == [
        {"firm": "HP", "limit": 2.5}, {"limit": 100}, {"limit": 200.5}
    ]  # fmt: skip
    assert [type(matcher[i].values["limit"]) for i in (2, 3)] == [int, float]
    with pytest.raises(SubscriptionError, match="subscription 9: unknown id"):
        matcher[9]
    subscriptions = iter(matcher)
    matcher.remove(next(subscriptions).id)
    with pytest.raises(RuntimeError, match="changed during iteration"):
        next(subscriptions)


def test_an_upsert_adds_or_replaces(matcher: Matcher) -> None:
    matcher.upsert(1, BELOW, {"firm": "IBM", "limit": 20}, interface=3)
    assert matching(matcher, QUOTE, firm="IBM", price=19.0) == [1]
    matcher.upsert(1, LARGE, {"limit": 5})  # another event type
    matcher.upsert(4, BELOW, {"firm": "HP", "limit": 7})
    assert matching(matcher, QUOTE, firm="IBM", price=19.0) == []
    assert matching(matcher, TRADE, size=150) == [1, 2]
    assert (matcher[1].interface, matcher[4].values) == (0, {"firm": "HP", "limit": 7})
    matcher.upsert_all([1, 2, 9], [BELOW, LARGE], {"firm": "HP", "limit": [1, 2, 3]}, numbers=[0, 1, 1])
    assert {each.id: each.values["limit"] for each in matcher} == {1: 1, 2: 2, 3: 200.5, 4: 7, 9: 3}
    assert matching(matcher, TRADE, size=150) == [2, 9]


def test_texts_that_no_value_has_any_more_are_gone() -> None:
    matcher = Matcher(engine="naive")
    matcher.add_many([1, 2, 3], BELOW, {"firm": ["a", "b", "a"], "limit": 1})
    matcher.update_many([1, 2, 3], {"firm": ["c", "d", "c"]})
    matcher.update(3, {"firm": "e"})
    matcher.remove(2)
    assert len(matcher._table.texts) == 2


def state(matcher: Matcher) -> Any:
    found = {each.id: (each.filter, each.values, each.interface) for each in matcher}
    answers = [
        matching(matcher, QUOTE, firm="IBM", price=9.0), matching(matcher, TRADE, size=150),
        matching(matcher, TRADE, size=1_000),
    ]  # fmt: skip
    return found, answers


WRONG: list[Callable[[Matcher], object]] = [
    lambda m: m.add(1, LARGE, {"limit": 1}),
    lambda m: m.add(4, LARGE, {}),
    lambda m: m.add(4, LARGE, {"limit": "a"}),
    lambda m: m.add(4, LARGE, {"limit": 1}, interface=70_000),
    lambda m: m.add("4", LARGE, {"limit": 1}),
    lambda m: m.add(4, "size > 4"),
    lambda m: m.add_all([4, 5, 1], [LARGE, BELOW], {"limit": 1, "firm": "a"}, numbers=[0, 1, 0]),
    lambda m: m.add_all([4, 5], [LARGE, BELOW], {"limit": [1, "a"], "firm": "a"}),
    lambda m: m.upsert(1, LARGE, {"limit": "a"}),
    lambda m: m.upsert(1, LARGE, {"limit": 1}, interface=-1),
    lambda m: m.upsert(1, BELOW, {"limit": 1}),
    lambda m: m.upsert_all([1, 2], [LARGE, BELOW], {"limit": [1, "a"], "firm": "a"}),
    lambda m: m.upsert_all([1, 2], [LARGE, BELOW], {"limit": 1, "firm": 2}),
    lambda m: m.upsert_all([1, 1], [LARGE, BELOW], {"limit": 1, "firm": "a"}),
    lambda m: m.update(1, {"limit": None}),
    lambda m: m.update(9, {"limit": 1}),
    lambda m: m.update(1, {"firm": "a", "other": 1}),
    lambda m: m.update_many([1, 2, 9], {"limit": 1}),
    lambda m: m.update_many([1, 2], {"limit": [1, "a"]}),
    lambda m: m.update_many([1, 2], {"limit": [1]}),
    lambda m: m.update_many([1, 2], {"limit": 1, "firm": "a"}),
    lambda m: m.remove(9),
    lambda m: m.remove_many([1, 9]),
    lambda m: m.remove_many([1, 1]),
    lambda m: m.explain({}, 9),
    lambda m: m.match(EventBatch.from_pylist(EventType("Quote", {"firm": "int64"}), [{}])),
]


@pytest.mark.parametrize("engine", ["naive", "cluster"])
def test_a_wrong_call_changes_nothing(engine: str) -> None:
    matcher = Matcher(engine=engine)
    matcher.add(1, BELOW, {"firm": "IBM", "limit": 10}, interface=3)
    matcher.add_many([2, 3], LARGE, {"limit": [100, 200]})
    before = state(matcher)
    for call in WRONG:
        with pytest.raises(CoveyError):
            call(matcher)
        assert state(matcher) == before


def test_a_failed_call_brings_no_event_type() -> None:
    matcher = Matcher(engine="naive")
    with pytest.raises(SubscriptionError, match="70000"):
        matcher.add(1, BELOW, {"firm": "IBM", "limit": 10}, interface=70_000)
    with pytest.raises(VariableError, match="value 'x'"):
        matcher.add_all([1, 2], [LARGE, BELOW], {"firm": [None, "IBM"], "limit": [1, "x"]})
    assert matcher.event_types == []
    matcher.add(1, parse("size > 1", EventType("Quote", {"size": "int64"})))
    assert matcher.event_types == [EventType("Quote", {"size": "int64"})]


def test_a_change_by_another_thread_ends_an_iteration(
    matcher: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.matcher.embedded.matcher._ITERATED", 1)
    entries = matcher._table.entries

    def changing(size: int) -> Iterator[Any]:
        for count, each in enumerate(entries(size)):
            if count == 1:
                matcher.remove(3)
            yield each

    monkeypatch.setattr(matcher._table, "entries", changing)
    with pytest.raises(RuntimeError, match="changed during iteration"):
        list(matcher)


def test_calls_of_two_threads_take_turns() -> None:
    matcher = Matcher(engine="cluster")
    batch = EventBatch.from_pylist(TRADE, [{"size": size} for size in range(50)])
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for i in range(first, first + 300):
                matcher.upsert(i, LARGE, {"limit": i % 50})
                with matcher.guard:
                    assert matcher.match(batch).any().any()
                matcher.upsert(i, BELOW, {"firm": "a", "limit": i})
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=work, args=(first,)) for first in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, len(matcher)) == ([], 600)


# --- random changes -----------------------------------------------------------------------------


class Churn:
    """The same random changes to a matcher, and to naive engines and a dict."""

    def __init__(self, draw: Any, engine: str) -> None:
        self.draw, self.engine = draw, engine
        self.types = [draw(event_types()), EventType("U", draw(event_types()).attributes)]
        self.filters: list[Filter] = [
            filter for each in self.types for filter in draw(st.lists(filters(each), min_size=1, max_size=3))
        ]
        self.matcher = Matcher(engine=engine)
        self.oracles = {each.name: create_engine("naive", each) for each in self.types}
        self.live: dict[int, tuple[Filter, dict[str, Any], int]] = {}

    def expect(
        self, ids: list[int], filters: list[Filter], values: list[dict[str, Any]], interface: int
    ) -> None:
        for i, filter, mine in zip(ids, filters, values, strict=True):
            if i in self.live:
                self.oracles[self.live[i][0].event_type.name].remove(i)
            self.oracles[filter.event_type.name].add(i, filter, mine, interface=interface)
            self.live[i] = filter, filter.check_values(mine), interface

    def change(self) -> None:
        draw = self.draw
        kind = draw(
            st.sampled_from(["add_all", "upsert_all", "upsert", "update", "update_many", "remove", "save"])
        )
        interface = draw(st.sampled_from([0, 1, 64]))
        if kind in ("add_all", "upsert_all", "upsert"):
            ids = draw(st.lists(st.integers(-20, 20), unique=True, max_size=1 if kind == "upsert" else 6))
            ids = [i for i in ids if kind != "add_all" or i not in self.live]
            chosen = [draw(st.sampled_from(self.filters)) for _ in ids]
            values = [draw(values_of(filter.variables)) for filter in chosen]
            names = {name for filter in chosen for name in filter.variables}
            columns = {
                name: [mine.get(name, POOLS[family_of(name)][0]) for mine in values] for name in sorted(names)
            }
            if kind == "upsert":
                for i, filter, mine in zip(ids, chosen, values, strict=True):
                    self.matcher.upsert(i, filter, mine, interface=interface)
            else:
                getattr(self.matcher, kind)(ids, chosen, columns, interface=interface)
            self.expect(ids, chosen, values, interface)
        elif not self.live:
            return
        elif kind == "save":
            self.reload()
        elif kind == "remove":
            ids = draw(st.lists(st.sampled_from(sorted(self.live)), unique=True, max_size=4))
            self.matcher.remove_many(np.array(ids, dtype=np.int64))
            for i in ids:
                self.oracles[self.live.pop(i)[0].event_type.name].remove(i)
        else:
            first = draw(st.sampled_from(sorted(self.live)))
            names = [name for name in self.live[first][0].variables if draw(st.booleans())]
            ids = [i for i, (filter, *_) in self.live.items() if set(names) <= set(filter.variables)]
            ids = [first] if kind == "update" else [i for i in ids if draw(st.booleans())]
            values = [draw(values_of(tuple(names))) for _ in ids]
            if kind == "update":
                self.matcher.update(first, values[0])
            elif ids:
                self.matcher.update_many(ids, {name: [mine[name] for mine in values] for name in names})
            for i, mine in zip(ids, values, strict=True):
                filter, old, number = self.live[i]
                self.oracles[filter.event_type.name].update(i, mine)
                self.live[i] = filter, old | filter.check_values(mine, partial=True), number

    def reload(self) -> None:
        path = self.directory / "snapshot"
        self.matcher.save(path)
        self.matcher = Matcher.load(path, engine=self.engine)

    directory: Path

    def compare(self) -> None:
        found = {each.id: (each.filter, each.values, each.interface) for each in self.matcher}
        assert found == self.live
        for i, (_, values, _) in found.items():  # 1, 1.0 and True are equal
            assert repr(sorted(values.items())) == repr(sorted(self.live[i][1].items()))
        for event_type in self.types:
            batch = EventBatch.from_pylist(event_type, self.draw(st.lists(events(event_type), max_size=4)))
            offsets, ids = self.matcher.match(batch)
            expected_offsets, expected = self.oracles[event_type.name].match(batch)
            assert offsets.tolist() == expected_offsets.tolist()
            for start, end in zip(offsets.tolist(), offsets.tolist()[1:], strict=False):
                assert sorted(ids[start:end].tolist()) == expected[start:end].tolist()


@pytest.mark.random
@pytest.mark.parametrize("engine", ["naive", "cluster", "trees"])
def test_a_matcher_has_the_subscriptions_and_answers_of_a_dict(engine: str, tmp_path: Path) -> None:
    @seed(SEED)
    @settings(
        max_examples=DRAWS["matchers against a dict"].count, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def run(data: st.DataObject) -> None:
        churn = Churn(data.draw, engine)
        churn.directory = tmp_path
        for _ in range(10):
            churn.change()
            churn.compare()

    run()


def test_families_of_one_name_may_differ_between_filters() -> None:
    matcher = Matcher(engine="naive")
    matcher.add(1, parse("firm == $x", QUOTE), {"x": "a"})
    matcher.add(2, parse("price == $x", QUOTE), {"x": 1})
    assert [matcher[i].filter.family("x") for i in (1, 2)] == [Family.STRING, Family.NUMBER]
    matcher.update(1, {"x": "b"})
    with pytest.raises(VariableError):
        matcher.update_many([1, 2], {"x": "c"})
    assert [each.values for each in matcher] == [{"x": "b"}, {"x": 1}]
    with pytest.raises(FilterError):
        matcher.add(3, "price > 1")
