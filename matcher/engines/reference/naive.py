"""The brute-force oracle: `Filter.matches` for every filter and event, sharing no code with the engines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import AnyColumn, Engine, IdArray, changing, exclusive, interface_array
from covey.matcher.errors import SubscriptionError, VariableError
from covey.matcher.evaluation.evaluator import EvaluationOptions, evaluator_of
from covey.matcher.events.batch import EventBatch, check_batch
from covey.matcher.events.event_type import EventType
from covey.matcher.events.value_columns import columns_of, element_of, taken_all
from covey.matcher.expressions.expression import Scalar
from covey.matcher.filters.filter import Filter, check_filter
from covey.matcher.load import Load
from covey.matcher.matches import Matches, Search


class NaiveEngine(Engine):
    name: ClassVar[str] = "naive"

    def __init__(self, event_type: EventType, **options: Unpack[EvaluationOptions]) -> None:
        super().__init__(event_type)
        evaluator_of(**options)  # raises for options that no engine takes
        self._subscriptions: dict[int, tuple[Filter, dict[str, Scalar], int]] = {}
        self._highest_interface = 0

    @changing
    def widen(self, event_type: EventType) -> None:
        self._check_widening(event_type)
        self.event_type = event_type

    @changing
    def add_many(
        self,
        ids: npt.ArrayLike,
        filter: Filter,
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        subscription_ids = _distinct(ids)
        for i in subscription_ids:
            if i in self._subscriptions:
                raise SubscriptionError(f"subscription {i}: already added, expected an id that is not in use")
        check_filter(filter)
        filter = filter.over(self.event_type)
        if not subscription_ids:
            return
        numbers = interface_array(interface, len(subscription_ids)).tolist()
        each = [filter.check_values(v) for v in _one_by_one(values, len(subscription_ids))]
        self._highest_interface = max(self._highest_interface, *numbers)
        self._subscriptions.update(
            (i, (filter, v, n)) for i, v, n in zip(subscription_ids, each, numbers, strict=True)
        )

    @changing
    def add_all(
        self,
        ids: npt.ArrayLike,
        filters: Sequence[Filter],
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        numbers: npt.ArrayLike | None = None,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        load, before = Load.of(ids, filters, values, numbers, interface), dict(self._subscriptions)
        try:
            for position, (i, number) in enumerate(
                zip(load.ids.tolist(), load.numbers.tolist(), strict=True)
            ):
                filter, here = load.filters[number], np.array([position])
                mine = element_of(load.values_of(filter, here), 0)
                self.add_many([i], filter, mine, interface=int(load.interfaces[position]))
        except Exception:
            self._subscriptions = before
            raise

    @changing
    def remove_many(self, ids: npt.ArrayLike) -> None:
        subscription_ids = _distinct(ids)
        for i in subscription_ids:
            self._find(i)
        for i in subscription_ids:
            del self._subscriptions[i]

    @changing
    def update_many(self, ids: npt.ArrayLike, values: Mapping[str, Scalar | AnyColumn]) -> None:
        subscription_ids = _distinct(ids)
        changed = {}
        for i, given in zip(subscription_ids, _one_by_one(values, len(subscription_ids)), strict=True):
            filter, old, interface = self._find(i)
            changed[i] = (filter, old | filter.check_values(given, partial=True), interface)
        self._subscriptions.update(changed)

    def interface_of(self, subscription_id: int) -> int:
        return self._find(subscription_id)[2]

    @exclusive
    def match(self, batch: EventBatch) -> Matches:
        check_batch(batch)
        return Matches(_NaiveSearch(self, batch.with_schema(self.event_type).to_pylist()))

    def matching(self, event: Mapping[str, object]) -> Iterator[int]:
        """The matching ids; a filter whose operator raises does not match."""
        for i, (filter, values, _) in self._subscriptions.items():
            try:
                matches = filter.matches(event, values)
            except Exception:  # of an operator
                if not filter.calls:
                    raise
                matches = False
            if matches:
                yield i

    @property
    def highest_interface(self) -> int:
        return self._highest_interface

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, subscription_id: object) -> bool:
        return subscription_id in self._subscriptions

    def memory_bytes(self) -> dict[str, int]:
        entries = sum(
            sys.getsizeof(v) + sys.getsizeof(values)
            for v in self._subscriptions.values()
            for values in v[1:2]
        )
        return {"subscriptions": sys.getsizeof(self._subscriptions) + entries}

    def render(self) -> str:
        lines = [f"naive: {len(self)} subscriptions to {self.event_type.name}"]
        lines += [
            f"  {i}: {filter} {values or ''}".rstrip()
            for i, (filter, values, _) in self._subscriptions.items()
        ]
        return "\n".join(lines)

    def explain(self, event: Mapping[str, object], subscription_id: int) -> str:
        filter, values, _ = self._find(subscription_id)
        EventBatch.from_pylist(self.event_type, [event])  # an event that does not fit is an error
        verdict = "matches" if filter.matches(event, values) else "does not match"
        return f"subscription {subscription_id} {verdict}: {filter.substitute(values)} on {dict(event)}"

    def _find(self, subscription_id: int) -> tuple[Filter, dict[str, Scalar], int]:
        try:
            return self._subscriptions[subscription_id]
        except KeyError:
            raise SubscriptionError(f"subscription {subscription_id}: unknown id") from None


class _NaiveSearch(Search):
    engine: NaiveEngine

    def __init__(self, engine: NaiveEngine, events: list[dict[str, object]]) -> None:
        super().__init__(engine, len(events))
        self._answers = cache(lambda: [sorted(engine.matching(event)) for event in events])

    def counts(self) -> IdArray:
        return np.array([len(answer) for answer in self._answers()], dtype=np.int64)

    def interfaces(self) -> npt.NDArray[np.uint64]:
        words = self.engine.highest_interface // 64 + 1
        rows = []
        for answer in self._answers():
            bits = 0
            for i in answer:
                bits |= 1 << self.engine.interface_of(i)
            rows.append([bits >> (64 * w) & (2**64 - 1) for w in range(words)])
        return np.array(rows, dtype=np.uint64).reshape(len(rows), words)

    def ids(self) -> tuple[IdArray, IdArray]:
        offsets = np.cumsum([0, *map(len, self._answers())], dtype=np.int64)
        return offsets, np.array([i for answer in self._answers() for i in answer], dtype=np.int64)


def _distinct(ids: npt.ArrayLike) -> list[int]:
    numbers = [int(i) for i in np.asarray(ids).tolist()]
    if len(set(numbers)) != len(numbers):
        repeated = next(i for i in numbers if numbers.count(i) > 1)
        raise SubscriptionError(f"subscription {repeated}: given more than once, expected each id once")
    return numbers


def _one_by_one(values: Mapping[str, Scalar | AnyColumn] | None, count: int) -> Iterator[dict[str, Scalar]]:
    columns: dict[str, list[Any]] = {}
    for name, value in taken_all(columns_of(values)).items():
        if isinstance(value, np.ndarray | list):
            if len(value) != count:
                raise VariableError(f"variable ${name}: {len(value)} values for {count} subscriptions")
            columns[name] = list(value)
        else:
            columns[name] = [value] * count
    for position in range(count):
        yield {name: column[position] for name, column in columns.items()}
