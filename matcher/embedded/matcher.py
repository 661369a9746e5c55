"""A matcher: subscriptions to any number of event types, with their filters and values, in one object.

Each event type has an engine; an id is unique across all types. Invariants: a call that raises has changed
nothing; a lock serialises calls of several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.embedded.snapshot import read_snapshot, write_snapshot
from covey.matcher.embedded.value_table import Subscription, SubscriptionTable
from covey.matcher.engine import (
    AnyColumn,
    Engine,
    IdArray,
    check_distinct,
    create_engine,
    exclusive,
    id_array,
    one_id,
)
from covey.matcher.errors import CoveyError, SnapshotError, SubscriptionError, VariableError
from covey.matcher.evaluation.accounts import Account
from covey.matcher.evaluation.asking import Fault
from covey.matcher.evaluation.evaluator import Evaluator, FaultLog
from covey.matcher.evaluation.runner import run_at_once, timed
from covey.matcher.evaluation.strategies import DEFAULT
from covey.matcher.events.batch import EventBatch, check_batch
from covey.matcher.events.event_type import EventType, check_event_type
from covey.matcher.events.value_columns import columns_of, elements, is_column, taken_all
from covey.matcher.expressions.expression import Scalar
from covey.matcher.filters.filter import Filter, check_filter
from covey.matcher.load import Load
from covey.matcher.matches import Matches

_ITERATED = 1 << 12  # subscriptions that an iteration reads at a time


class Matcher:
    """Subscriptions to any number of event types; `engine` and `options` are as for `create_engine`.

    `evaluation` is the strategy that evaluates named operators; a `clock` in nanoseconds, such as
    `time.perf_counter_ns`, measures the cost of operators that declare none.

    An event type that is not among `event_types` gets its engine with its first filter or batch; several
    schemas of a type are united, as by `widen`."""

    def __init__(
        self,
        *event_types: EventType,
        engine: str = "cluster",
        evaluation: str = DEFAULT,
        clock: Callable[[], int] | None = None,
        **options: object,
    ) -> None:
        self._engine, self._options = engine, options
        self._faults = FaultLog()
        run = run_at_once if clock is None else timed(clock)
        self._evaluator = Evaluator(evaluation, run=run, on_fault=self._faults)
        self._engines: dict[str, Engine] = {}
        self._table = SubscriptionTable()
        self._changes = 0
        self.guard = RLock()
        for event_type in event_types:
            self.widen(event_type)

    def _engine_of(self, event_type: EventType) -> Engine:
        engine = self._engines.get(event_type.name)
        if engine is None:
            engine = create_engine(self._engine, event_type, evaluator=self._evaluator, **self._options)
            self._engines[event_type.name] = engine
        return engine

    def _forget_engines(self, known: int) -> None:
        """Remove the engines that a failed call created, all but the first `known`."""
        for name in list(self._engines)[known:]:
            del self._engines[name]

    @property
    def event_types(self) -> list[EventType]:
        """The event types that have an engine."""
        return [engine.event_type for engine in self._engines.values()]

    @exclusive
    def widen(self, event_type: EventType) -> None:
        """Add the attributes of a schema to those of its event type, in place: all subscriptions stay, and
        batches of either schema match. `EventTypeError` if an attribute has another kind."""
        check_event_type(event_type)
        engine = self._engine_of(event_type)
        engine.widen(engine.event_type.union(event_type))

    # --- adding -----------------------------------------------------------------------------------

    @exclusive
    def add(
        self,
        subscription_id: int,
        filter: Filter,
        values: Mapping[str, Scalar] | None = None,
        *,
        interface: int = 0,
    ) -> None:
        """Add one subscription under an int64 id, for the interface of that number (0 to 65,535). Raises
        `SubscriptionError` for an id in use, by any event type, `VariableError` for values that do not fit
        the filter's variables."""
        check_filter(filter)
        if self._table.find_one(int(one_id(subscription_id)[0])) >= 0:
            raise _in_use(subscription_id)
        checked = filter.check_values({} if values is None else values)
        known = len(self._engines)
        try:
            self._engine_of(filter.event_type).add(subscription_id, filter, checked, interface=interface)
        except BaseException:
            self._forget_engines(known)
            raise
        self._table.add_one(int(subscription_id), filter, checked, int(interface))
        self._changes += 1

    def add_many(
        self,
        ids: npt.ArrayLike,
        filter: Filter,
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        """Add one subscription per id, all with one filter, as `Engine.add_many`."""
        subscription_ids = id_array(ids)
        numbers = np.zeros(len(subscription_ids), dtype=np.int64)
        self.add_all(subscription_ids, [filter], values, numbers=numbers, interface=interface)

    @exclusive
    def add_all(
        self,
        ids: npt.ArrayLike,
        filters: Sequence[Filter],
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        numbers: npt.ArrayLike | None = None,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        """Add subscriptions of many filters, of any event types, as `Engine.add_all`."""
        self._add(Load.of(ids, filters, values, numbers, interface))

    def _add(self, load: Load) -> None:
        known = self._table.find(load.ids) >= 0
        if known.any():
            raise _in_use(int(load.ids[known][0]))
        if not len(load):
            return
        added: list[tuple[Engine, IdArray]] = []
        engines = len(self._engines)
        try:
            for part in load.by_event_type():
                engine = self._engine_of(part.filters[0].event_type)
                engine.add_all(
                    part.ids, part.filters, part.values, numbers=part.numbers, interface=part.interfaces
                )
                added.append((engine, part.ids))
            self._table.add(load)
        except BaseException:
            for engine, ids in added:
                engine.remove_many(ids)
            self._forget_engines(engines)
            raise
        self._changes += 1

    @exclusive
    def upsert(
        self,
        subscription_id: int,
        filter: Filter,
        values: Mapping[str, Scalar] | None = None,
        *,
        interface: int = 0,
    ) -> None:
        """Add a subscription, or replace the filter, all values and the interface of the one with this id."""
        check_filter(filter)
        entry = self._table.find_one(int(one_id(subscription_id)[0]))
        if entry < 0:
            self.add(subscription_id, filter, values, interface=interface)
            return
        checked = filter.check_values({} if values is None else values)
        old = self[subscription_id]
        if old.filter == filter and old.interface == interface:
            if checked:
                self.update(subscription_id, checked)
            return
        self.remove(subscription_id)
        try:
            self.add(subscription_id, filter, checked, interface=interface)
        except BaseException:
            self.add(old.id, old.filter, old.values, interface=old.interface)
            raise

    @exclusive
    def upsert_all(
        self,
        ids: npt.ArrayLike,
        filters: Sequence[Filter],
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        numbers: npt.ArrayLike | None = None,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        """Add or replace subscriptions, all of them or none; arguments as `add_all`."""
        load = Load.of(ids, filters, values, numbers, interface)
        entries = self._table.find(load.ids)
        replaced = entries[entries >= 0]
        if not len(replaced):
            self._add(load)
            return
        old = list(self._table.read(replaced))
        self.remove_many([each.id for each in old])
        try:
            self._add(load)
        except BaseException:
            for each in old:
                self.add(each.id, each.filter, each.values, interface=each.interface)
            raise

    # --- removing and updating --------------------------------------------------------------------

    @exclusive
    def remove(self, subscription_id: int) -> None:
        """Remove a subscription; `SubscriptionError` for an unknown id."""
        self.remove_many(one_id(subscription_id))

    @exclusive
    def remove_many(self, ids: npt.ArrayLike) -> None:
        """Remove subscriptions of any event types; for an unknown or repeated id `SubscriptionError`, and
        none is removed."""
        subscription_ids = id_array(ids)
        check_distinct(subscription_ids)
        for engine, positions in self._by_engine(subscription_ids):
            engine.remove_many(subscription_ids[positions])
        self._table.remove(subscription_ids)
        self._changes += 1

    @exclusive
    def update(self, subscription_id: int, values: Mapping[str, Scalar]) -> None:
        """Give some or all variables of a subscription new values, together; raises as `Engine.update`."""
        entry = self._table.find_one(int(one_id(subscription_id)[0]))
        if entry < 0:
            raise _unknown(subscription_id)
        self._engine_of(self._table.filter_of(entry).event_type).update(subscription_id, values)
        self._table.update(int(subscription_id), values)
        self._changes += 1

    @exclusive
    def update_many(self, ids: npt.ArrayLike, values: Mapping[str, Scalar | AnyColumn]) -> None:
        """Update subscriptions that all have these variables; raises as `Engine.update_many`, before any has
        changed."""
        subscription_ids = id_array(ids)
        check_distinct(subscription_ids)
        plain = taken_all(columns_of(values))
        for name, value in plain.items():
            if is_column(value) and len(value) != len(subscription_ids):
                raise VariableError(
                    f"variable ${name}: {len(value)} values, expected one or {len(subscription_ids)}"
                )
        parts = list(self._by_engine(subscription_ids))
        before = list(self._table.read(self._table.find(subscription_ids))) if len(parts) > 1 else []
        for done, (engine, positions) in enumerate(parts):
            chosen = {name: elements(value, positions) for name, value in plain.items()}
            try:
                engine.update_many(subscription_ids[positions], chosen)
            except BaseException:
                for changed, earlier in parts[:done]:
                    for position in earlier.tolist():
                        changed.update(before[position].id, {n: before[position].values[n] for n in plain})
                raise
        self._table.update_many(subscription_ids, plain)
        self._changes += 1

    def _by_engine(self, ids: IdArray) -> Iterator[tuple[Engine, npt.NDArray[np.int64]]]:
        """(engine, positions of its ids in `ids`); `SubscriptionError` for an unknown id, before the first
        pair."""
        entries = self._table.find(ids)
        if (entries < 0).any():
            raise _unknown(int(ids[entries < 0][0]))
        for name, positions in self._table.by_event_type(entries) if len(entries) else ():
            yield self._engines[name], positions

    # --- matching ---------------------------------------------------------------------------------

    @exclusive
    def match(self, batch: EventBatch) -> Matches:
        """The matching subscriptions, as `Engine.match`: valid until the next change of a subscription to the
        batch's type."""
        check_batch(batch)
        return self._engine_of(batch.event_type).match(batch)

    @exclusive
    def explain(self, event: Mapping[str, object], subscription_id: int) -> str:
        """Why an event of the subscription's type matches it or not; `SubscriptionError` if unknown."""
        event_type = self[subscription_id].filter.event_type
        return self._engine_of(event_type).explain(event, subscription_id)

    @exclusive
    def operator_accounts(self) -> dict[str, Account]:
        """The calls, answers and costs of each named operator so far, by name."""
        return {name: replace(account) for name, account in self._evaluator.accounts.items()}

    @exclusive
    def operator_faults(self) -> dict[str, Fault]:
        """The last fault of each named operator, by name; the first is logged as a warning of
        `covey.matcher`."""
        return dict(self._faults.last)

    # --- reading ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._table)

    @exclusive
    def __contains__(self, subscription_id: object) -> bool:
        if not isinstance(subscription_id, int | np.integer) or not -(2**63) <= subscription_id < 2**63:
            return False
        return self._table.find_one(int(subscription_id)) >= 0

    @exclusive
    def __getitem__(self, subscription_id: int) -> Subscription:
        """The subscription with its present values; `SubscriptionError` for an unknown id."""
        entry = self._table.find_one(int(one_id(subscription_id)[0]))
        if entry < 0:
            raise _unknown(subscription_id)
        return next(self._table.read(np.array([entry])))

    def __iter__(self) -> Iterator[Subscription]:
        """All subscriptions, in no stated order, a few thousand in memory at a time. Raises `RuntimeError` if
        subscriptions change during the iteration."""
        changes = self._changes
        for entries in self._table.entries(_ITERATED):
            with self.guard:
                self._check_unchanged(changes)
                subscriptions = list(self._table.read(entries))
            for subscription in subscriptions:
                yield subscription
                self._check_unchanged(changes)

    def _check_unchanged(self, changes: int) -> None:
        if changes != self._changes:
            raise RuntimeError("subscriptions changed during iteration")

    @exclusive
    def memory_bytes(self) -> dict[str, int]:
        """Bytes by engine and part."""
        parts = {f"subscriptions, {part}": size for part, size in self._table.memory_bytes().items()}
        for name, engine in self._engines.items():
            parts |= {f"{name}, {part}": size for part, size in engine.memory_bytes().items()}
        return parts

    @exclusive
    def render(self) -> str:
        """The structure of all engines, for people."""
        return "\n".join([engine.render() for engine in self._engines.values()])

    # --- snapshots --------------------------------------------------------------------------------

    @exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write event types and subscriptions to an Arrow file (`snapshot.py`), which has the old content or
        all of the new, even if the process ends meanwhile."""
        write_snapshot(path, self.event_types, self._table)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, engine: str = "cluster", **options: Any) -> Matcher:
        """A matcher with the event types and subscriptions of a file that `save` wrote. Raises
        `SnapshotError` for a file that is no snapshot, is truncated, or has another version."""
        event_types, chunks = read_snapshot(path)
        matcher = cls(*event_types, engine=engine, **options)
        for chunk in chunks:
            try:
                matcher.add_all(
                    chunk.ids, chunk.filters, chunk.values, numbers=chunk.numbers, interface=chunk.interfaces
                )
            except CoveyError as error:
                raise SnapshotError(f"{path}: subscriptions that cannot be added: {error}") from error
        return matcher


def _in_use(subscription_id: int) -> SubscriptionError:
    return SubscriptionError(
        f"subscription {subscription_id}: already added, expected an id that is not in use"
    )


def _unknown(subscription_id: int) -> SubscriptionError:
    return SubscriptionError(f"subscription {subscription_id}: unknown id")
