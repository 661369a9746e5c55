"""Every engine against the oracle, under churn.

A *case* is one batch of random events matched by one engine after one random change (add, add_many, update,
update_many, remove, remove_many, widen) to random subscriptions, with ids and interfaces compared event by
event. Cases are counted: `draws` states the number per engine.
"""

from typing import Any

import numpy as np
import pytest
from draws import ALL, DRAWS, SEED
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from oracles import check_products
from random_filters import POOLS, event_types, events, family_of, filters, values_of

from covey.matcher.engine import Engine, create_engine, engine_names
from covey.matcher.engines.cluster.layout.arrays import LEAF_ROWS
from covey.matcher.engines.reference.naive import NaiveEngine
from covey.matcher.errors import SubscriptionError, VariableError
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import Filter, parse
from covey.matcher.matches import Matches

PARTS = 8 if ALL else 1
STEPS = 20
ENGINES = tuple(name for name in engine_names() if name != "naive")


class Churn:
    """The same random changes to an oracle and to engines, some of which begin with fewer attributes and are
    widened."""

    def __init__(self, data: st.DataObject, names: tuple[str, ...], *others: type[Engine]) -> None:
        self.draw: Any = data.draw
        self.wide = self.draw(event_types())
        self.event_type = self.first(self.draw(st.sampled_from([1, 2, 9, 9])))
        self.oracle = create_engine("naive", self.wide)
        self.engines: dict[str, Engine] = {name: create_engine(name, self.event_type) for name in names}
        self.engines |= {other.__name__: other(self.event_type) for other in others}
        self.live: dict[int, Filter] = {}
        some = st.lists(filters(self.event_type), min_size=1, max_size=5)
        self.filters: list[Filter] = self.draw(some)
        self.next_id = self.draw(st.sampled_from([0, -3, 2**62]))

    def first(self, count: int) -> EventType:
        """The type with its first attributes."""
        return EventType(self.wide.name, dict(list(self.wide.attributes.items())[:count]))

    def widen(self) -> None:
        self.event_type = self.first(self.draw(st.integers(len(self.event_type.names), 9)))
        for engine in self.engines.values():
            engine.widen(self.event_type)
        self.filters += self.draw(st.lists(filters(self.event_type), min_size=1, max_size=3))

    def everywhere(self, method: str, *args: Any, **options: Any) -> None:
        outcomes = []
        for engine in (self.oracle, *self.engines.values()):
            try:
                outcomes.append(getattr(engine, method)(*args, **options))
            except (SubscriptionError, VariableError) as error:
                outcomes.append(type(error))
        assert all(outcome == outcomes[0] for outcome in outcomes), (method, args, outcomes)

    def column(self, name: str, count: int) -> Any:
        values = self.draw(st.lists(st.sampled_from(POOLS[family_of(name)]), min_size=count, max_size=count))
        form = self.draw(st.sampled_from(["list", "array", "one"]))
        if form == "one":
            return values[0]
        return (
            np.array(values, dtype=None if len(set(map(type, values))) == 1 else object)
            if form == "array"
            else values
        )

    def change(self) -> None:
        draw = self.draw
        if self.event_type != self.wide and draw(st.integers(0, 4)) == 0:
            return self.widen()
        kind = draw(
            st.sampled_from(
                ["add", "add_many", "add_all", "update", "update_many", "update_many", "remove", "wrong"]
            )
        )
        if kind in ("update", "update_many", "remove") and not self.live:
            kind = "add_many"
        if kind in ("add", "add_many"):
            filter = draw(st.sampled_from(self.filters))
            count = 1 if kind == "add" else draw(st.integers(0, 4))
            ids = [self.next_id + i for i in range(count)]
            self.next_id += count
            self.live.update(dict.fromkeys(ids, filter))
            if kind == "add":
                values = draw(values_of(filter.variables))
                self.everywhere(
                    "add", ids[0], filter, values, interface=draw(st.sampled_from([0, 1, 63, 64, 130]))
                )
            elif count:
                columns = {name: self.column(name, count) for name in filter.variables}
                interfaces = np.array(draw(st.lists(st.integers(0, 70), min_size=count, max_size=count)))
                self.everywhere("add_many", np.array(ids), filter, columns, interface=interfaces)
        elif kind == "add_all":
            count = draw(st.integers(0, 8))
            ids = [self.next_id + i for i in range(count)]
            self.next_id += count
            numbers = draw(st.lists(st.integers(0, len(self.filters) - 1), min_size=count, max_size=count))
            self.live.update((i, self.filters[number]) for i, number in zip(ids, numbers, strict=True))
            names = sorted({name for filter in self.filters for name in filter.variables})
            columns = {name: self.column(name, count) for name in names} if count else {}
            interfaces = np.array(
                draw(st.lists(st.integers(0, 70), min_size=count, max_size=count)), np.int64
            )
            if draw(st.booleans()):
                chosen = [self.filters[number] for number in numbers]
                used = {name for filter in chosen for name in filter.variables}
                columns = {name: column for name, column in columns.items() if name in used}
                self.everywhere("add_all", ids, chosen, columns, interface=interfaces)
            else:
                self.everywhere("add_all", ids, self.filters, columns, numbers=numbers, interface=interfaces)
        elif kind == "remove":
            ids = draw(st.lists(st.sampled_from(sorted(self.live)), unique=True, max_size=4))
            self.everywhere("remove_many", np.array(ids, dtype=np.int64))
            for i in ids:
                del self.live[i]
        elif kind == "update":
            i = draw(st.sampled_from(sorted(self.live)))
            names = tuple(name for name in self.live[i].variables if draw(st.booleans()))
            self.everywhere("update", i, draw(values_of(names)))
        elif kind == "update_many":
            filter = draw(st.sampled_from(sorted(self.live.items())))[1]
            ids = [i for i, other in self.live.items() if set(other.variables) == set(filter.variables)]
            ids = [i for i in ids if draw(st.booleans())]
            names = [name for name in filter.variables if draw(st.booleans())]
            if ids:
                self.everywhere("update_many", np.array(ids), {n: self.column(n, len(ids)) for n in names})
        else:
            self.everywhere("remove", self.next_id)
            self.everywhere("update", self.next_id + 1, {})
            for i in list(self.live)[:1]:
                self.everywhere("add", i, self.filters[0], {})
                self.everywhere("update", i, {"unheard": 1})
                self.everywhere("add_many", [self.next_id, self.next_id], self.filters[0], {})

    def compare(self) -> int:
        rows = self.draw(st.lists(events(self.event_type), max_size=5))
        batch = EventBatch.from_pylist(self.event_type, rows)
        if rows and self.draw(st.booleans()):
            batch = batch.slice(self.draw(st.integers(0, len(rows) - 1)))
        expected = self.oracle.match(batch)
        for engine in self.engines.values():
            check_products(engine, batch, expected)
            assert len(engine) == len(self.oracle) == len(self.live)
        return len(self.engines)


def examples_of(cases: int) -> settings:
    return settings(max_examples=cases // STEPS, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.random
@pytest.mark.parametrize("part", range(PARTS))
def test_engines_answer_as_the_oracle_does(part: int) -> None:
    expected, cases = DRAWS["engines against the oracle"].count // PARTS, 0

    @seed(SEED + part)
    @examples_of(expected)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal cases
        churn = Churn(data, ENGINES)
        for _ in range(STEPS):
            churn.change()
            cases += churn.compare()

    run()
    assert cases >= expected * len(ENGINES)


@pytest.mark.random
def test_rows_in_leaves_are_answered_as_the_oracle_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows would otherwise have neither leaves nor codes, nor be rearranged in steps."""
    monkeypatch.setattr("covey.matcher.engines.cluster.tuning.planning.leaf_cost", lambda *_: -1.0)
    monkeypatch.setattr("covey.matcher.engines.cluster.tuning.planning._FEWEST_IN_LEAVES", 1)
    for name, number in {"FEW": 1, "AT_ONCE": 0, "_PER_CHANGE": 64}.items():
        monkeypatch.setattr(f"covey.matcher.engines.cluster.placement.{name}", number)
    cases, in_leaves = DRAWS["cluster leaves against the oracle"].count, 0

    @seed(SEED)
    @examples_of(cases)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal in_leaves
        churn = Churn(data, ("cluster",))
        for _ in range(STEPS):
            churn.change()
            churn.compare()
            in_leaves += int(churn.engines["cluster"].store.arrays.leaves.state[LEAF_ROWS] > 0)

    run()
    assert in_leaves > cases // 100


class LooseBounds(NaiveEngine):
    """Matches `x <= 5` for `x < 5`."""

    def add_many(self, ids: Any, filter: Filter, *others: Any, **options: Any) -> None:
        super().add_many(ids, parse(str(filter).replace(" < ", " <= "), self.event_type), *others, **options)


class StaleValues(NaiveEngine):
    """Ignores the second value of a column."""

    def update_many(self, ids: Any, values: Any) -> None:
        before = {i: self._subscriptions.get(i) for i in np.atleast_1d(ids).tolist()[1:2]}
        super().update_many(ids, values)
        self._subscriptions.update({i: entry for i, entry in before.items() if entry})


class OneWordOfInterfaces(NaiveEngine):
    """Leaves out interfaces from 64 on."""

    def match(self, batch: EventBatch) -> Matches:
        matches = super().match(batch)
        matches.interfaces()[:, 1:] = 0
        return matches


@pytest.mark.thorough
@pytest.mark.parametrize("defective", [LooseBounds, StaleValues, OneWordOfInterfaces])
def test_as_many_cases_as_make_test_runs_find_a_defect(defective: type[Engine]) -> None:
    @seed(5)  # finds them soon, which most seeds do, and a few not at all
    @settings(examples_of(DRAWS["engines against the oracle"].few), phases=[Phase.generate])
    @given(st.data())
    def run(data: st.DataObject) -> None:
        churn = Churn(data, (), defective)
        for _ in range(STEPS):
            churn.change()
            churn.compare()

    with pytest.raises(AssertionError):
        run()
