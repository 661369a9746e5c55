"""Engines over a store of rows: the boxes of filters, each a conjunction of interval tests.

Invariants: the rows of a subscription are consecutive, in the order of its plan's boxes. A new value of a
variable is written in place, unless a text test has the variable: then the row moves. Filters over the cap of
the normal form, or cheaper as trees, are in the engine `trees`; filters with calls of named operators in
`GatedSubscriptions`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.bounds import (
    Operands,
    Values,
    bound_key,
    check_columns,
    constant_column,
    evaluate_column,
)
from covey.matcher.compile.plan import Plan
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engine import (
    AnyColumn,
    Column,
    Engine,
    IdArray,
    changing,
    check_distinct,
    create_engine,
    exclusive,
    id_array,
    interface_array,
    one_id,
)
from covey.matcher.engines.rows.arrays import Numbers, object_bytes, positions_by_value
from covey.matcher.engines.rows.box_rows import BoxRows
from covey.matcher.engines.rows.gated import GatedSubscriptions, update_both
from covey.matcher.engines.rows.ids import IdMap, Interfaces
from covey.matcher.engines.rows.plans import (
    NONE,
    Addition,
    PlanGroup,
    PlanTable,
    PlanUse,
    Writes,
    check_names,
    moves,
    operands_of,
    writes_of,
)
from covey.matcher.engines.rows.report import explain_rows
from covey.matcher.engines.rows.row_kernels import INTERFACE_MASK, ROW_INTERFACE, UNORDERED, describe_rows
from covey.matcher.engines.rows.row_search import RowSearch, ids_of_event, interfaces_of_event
from covey.matcher.engines.rows.store import RowStore
from covey.matcher.errors import CoveyError, SubscriptionError, VariableError
from covey.matcher.evaluation.evaluator import EvaluationOptions, evaluator_of
from covey.matcher.events.batch import EventBatch, check_batch
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.value_columns import (
    check_mapping,
    columns_of,
    element_of,
    elements_of,
    is_column,
    taken_all,
)
from covey.matcher.expressions.expression import Scalar
from covey.matcher.filters.filter import Filter, check_filter
from covey.matcher.load import Load
from covey.matcher.matches import Matches


class RowEngine(Engine):
    def __init__(self, event_type: EventType, **options: Unpack[EvaluationOptions]) -> None:
        super().__init__(event_type)
        self.evaluator = evaluator_of(**options)
        self.columns = Columns(event_type)
        self.plans = self._new_plans()
        self.store = self._new_store()
        self.trees: RowEngine | None = None  # filters matched as trees
        self.gated: GatedSubscriptions | None = None  # filters with calls
        self._boxes = BoxRows(self.columns, self.store)
        self._ids = IdMap()
        self._overlapping = 0  # subscriptions of several rows that one event may match
        self._interfaces = Interfaces()  # without those of those matched as trees

    def empty(self) -> RowEngine:
        """A new engine of this kind, without subscriptions."""
        return type(self)(self.event_type)

    def _new_plans(self) -> PlanTable:
        return PlanTable(self.columns.schema)

    @abstractmethod
    def _new_store(self) -> RowStore:
        """A new, empty structure."""

    @changing
    def widen(self, event_type: EventType) -> None:
        self._check_widening(event_type)
        if event_type == self.event_type:
            return
        self.event_type = event_type
        self.columns.widen(event_type)
        self.store.widen(event_type, self.columns.schema)
        if self.trees is not None:
            self.trees.widen(event_type)
        if self.gated is not None:
            self.gated.widen(event_type)

    # --- adding -----------------------------------------------------------------------------------

    @changing
    def add(
        self,
        subscription_id: int,
        filter: Filter,
        values: Mapping[str, Scalar] | None = None,
        *,
        interface: int = 0,
    ) -> None:
        """As `Engine.add`; some 20 us at any number of subscriptions, after the first of a structure."""
        subscription_ids, interfaces = one_id(subscription_id), interface_array(interface, 1)
        check_filter(filter)
        filter = filter.over(self.event_type)
        self._check_new(subscription_ids)
        checked = filter.check_values({} if values is None else values)
        self._add_checked(subscription_ids, filter, checked, checked, interfaces)

    @changing
    def add_many(
        self,
        ids: npt.ArrayLike,
        filter: Filter,
        values: Mapping[str, Scalar | AnyColumn] | None = None,
        *,
        interface: int | npt.NDArray[np.integer] = 0,
    ) -> None:
        subscription_ids = id_array(ids)
        interfaces = interface_array(interface, len(subscription_ids))
        check_filter(filter)
        filter = filter.over(self.event_type)
        self._check_new(subscription_ids)
        if not len(subscription_ids):
            return
        plain = taken_all(columns_of(values))
        checked = check_columns(filter, plain, len(subscription_ids))
        self._add_checked(subscription_ids, filter, plain, checked, interfaces)

    def _add_checked(
        self,
        ids: IdArray,
        filter: Filter,
        values: Mapping[str, Scalar | Column],
        checked: Mapping[str, Values],
        interfaces: npt.NDArray[np.int64],
    ) -> None:
        self._boxes.collect_texts()
        numbered = None if filter.calls else self.plans.find(filter)
        if filter.calls:
            self._gated_subscriptions().add_many(ids, filter, values, interfaces)
        elif numbered is None:
            self._tree_engine().add_many(ids, filter, values, interface=interfaces)
        else:
            number, operand_list = numbered
            try:
                plan = self.plans[number].plan
                operands = operands_of(plan, operand_list, checked, None)
                self._boxes.check_texts([(plan, operands)])
            except BaseException:
                self.plans.forget_unused([number])
                raise
            self._add_rows(Addition([number], np.zeros(len(ids), dtype=np.int64), ids, interfaces, operands))
        self._interfaces.highest = max(self._interfaces.highest, int(interfaces.max()))

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
        load = Load.of(ids, filters, values, numbers, interface).over(self.event_type)
        self._check_new(load.ids)
        if not len(load):
            return
        self._boxes.collect_texts()
        every = load
        called = [number for number, filter in enumerate(load.filters) if filter.calls]
        if called:
            load = load.part([number for number, filter in enumerate(load.filters) if not filter.calls])
        over: list[int] = []
        additions: list[Addition] = []
        added: list[IdArray] = []
        groups = list(self.plans.groups(load.filters))
        try:
            for group in groups:
                if group.plans[0] == NONE:
                    over = group.members
                else:
                    additions.append(self._addition(load, group))
            self._boxes.check_texts((self.plans[one.plans[0]].plan, one.operands) for one in additions)
            if over:
                part = load.part(over)
                self._tree_engine().add_all(
                    part.ids, part.filters, part.values, numbers=part.numbers, interface=part.interfaces
                )
                added.append(part.ids)
            if called:
                part = every.part(called)
                self._gated_subscriptions().add_all(part)
                added.append(part.ids)
            for addition in additions:
                self._add_rows(addition)
                added.append(addition.ids)
        except BaseException:
            if added:
                self.remove_many(np.concatenate(added))
            self.plans.forget_unused(number for group in groups for number in group.plans)
            raise
        self._interfaces.highest = max(self._interfaces.highest, int(every.interfaces.max()))

    def _addition(self, load: Load, group: PlanGroup) -> Addition:
        of_filter, positions = load.members(group.members)
        filter = load.filters[group.members[0]]
        count = len(of_filter)
        values = check_columns(filter, load.values_of(filter, positions), count)
        use = self.plans[group.plans[0]]
        operand_list = group.operands[0]
        constants: Operands = {}
        if len(group.members) > 1:
            for number, (kind, variable) in enumerate(zip(use.plan.kinds, use.plan.variables, strict=True)):
                if kind is not None and variable is None:
                    each: list[Any] = [operands[number].value for operands in group.operands]  # type: ignore
                    constants[number] = constant_column(each, of_filter)
        operands = operands_of(use.plan, operand_list, values, None) | constants
        plans, of_plan = np.unique(group.plans, return_inverse=True)
        ids, interfaces = load.ids, load.interfaces
        if positions is not None:
            ids, interfaces = ids[positions], interfaces[positions]
        return Addition(plans.tolist(), of_plan[of_filter], ids, interfaces, operands)

    def _check_new(self, subscription_ids: IdArray) -> None:
        ids = self.store.arrays.ids
        first = self._ids.first_known(ids, subscription_ids)
        repeated = [int(subscription_ids[first])] if first >= 0 else []
        if first == UNORDERED:
            check_distinct(subscription_ids)
            repeated = subscription_ids[self._ids.find(ids, subscription_ids) >= 0].tolist()[:1]
        if self.trees is not None and not repeated:
            over = self.trees
            repeated = subscription_ids[over._ids.find(over.store.arrays.ids, subscription_ids) >= 0].tolist()
        if self.gated is not None and not repeated:
            repeated = subscription_ids[self.gated.contain(subscription_ids)].tolist()
        if repeated:
            raise SubscriptionError(
                f"subscription {repeated[0]}: already added, expected an id that is not in use"
            )

    def _tree_engine(self) -> RowEngine:
        if self.trees is None:
            engine = create_engine("trees", self.event_type)
            assert isinstance(engine, RowEngine)
            engine.columns.most_texts = self.columns.most_texts
            self.trees = engine
        return self.trees

    def _gated_subscriptions(self) -> GatedSubscriptions:
        if self.gated is None:
            self.gated = GatedSubscriptions(self.empty(), self.evaluator)
        return self.gated

    def _add_rows(self, addition: Addition) -> None:
        """Add subscriptions with new ids, of plans that differ in columns alone."""
        uses = [self.plans[number] for number in addition.plans]
        plan = uses[0].plan
        each = max(len(plan.boxes), 1)
        firsts = self.store.new_rows(len(addition.ids), each)
        arrays = self.store.arrays
        fields = firsts, each, addition.ids, addition.plans[0], addition.interfaces
        try:
            if not describe_rows(*fields, arrays.rows, arrays.ids):
                self.store.widen_ids()
                describe_rows(*fields, self.store.arrays.rows, self.store.arrays.ids)
            for box, box_plan in enumerate(plan.boxes):
                rows = firsts + box if box else firsts
                if len(uses) == 1:
                    self._boxes.insert(addition.plans[0], box_plan, rows, addition.operands)
                else:
                    attributes = [use.key[1] for use in uses]
                    self._boxes.insert_alike(
                        box_plan, addition.plans, attributes, addition.of_plan, rows, addition.operands
                    )
            self._ids.enter(self.store.arrays.ids, firsts)
        except (CoveyError, MemoryError):  # no room
            self._take_back(addition, uses, firsts)
            raise
        several = len(uses) > 1
        counts = np.bincount(addition.of_plan).tolist() if several else [len(firsts)]
        for use, count in zip(uses, counts, strict=True):
            use.subscriptions += count
        self._overlapping += len(firsts) if plan.overlaps else 0
        self._interfaces.count(addition.interfaces, 1)

    def _take_back(self, addition: Addition, uses: list[PlanUse], firsts: Numbers) -> None:
        """Remove the rows that were inserted before room ran out."""
        boxes = uses[0].plan.boxes
        for n in range(len(uses)):
            mine = firsts[addition.of_plan == n]
            for box, box_plan in enumerate(uses[n].plan.boxes):
                self._boxes.remove(box_plan, self._boxes.inserted(mine + box))
        self.store.signatures.forget_unused()
        self.plans.forget_unused(addition.plans)
        self.store.free_rows(firsts, max(len(boxes), 1))

    def _interfaces_of(self, rows: Numbers) -> npt.NDArray[np.int64]:
        fields: npt.NDArray[np.int64] = self.store.arrays.rows[rows, ROW_INTERFACE].astype(np.int64)
        return fields & INTERFACE_MASK

    # --- removing ---------------------------------------------------------------------------------

    @changing
    def remove_many(self, ids: npt.ArrayLike) -> None:
        subscription_ids = id_array(ids)
        check_distinct(subscription_ids)
        firsts = self._find(subscription_ids)
        elsewhere, firsts = subscription_ids[firsts < 0], firsts[firsts >= 0]
        if self.gated is not None and len(elsewhere):
            gated = self.gated.contain(elsewhere)
            self.gated.remove_many(elsewhere[gated])
            elsewhere = elsewhere[~gated]
            if not len(self.gated):
                self.gated = None
        if self.trees is not None:
            self.trees.remove_many(elsewhere)
            if not len(self.trees):
                self.trees = None
        if not len(firsts):
            return
        arrays = self.store.arrays
        self._ids.remove(arrays.ids, firsts)
        self._interfaces.count(self._interfaces_of(firsts), -1)
        for number, positions in self._by_plan(firsts):
            plan = self.plans[number].plan
            chosen = firsts if positions is None else firsts[positions]
            for box, box_plan in enumerate(plan.boxes):
                self._boxes.remove(box_plan, chosen + box)
            each = max(len(plan.boxes), 1)
            self.store.free_rows(chosen, each)
            self._overlapping -= len(chosen) if plan.overlaps else 0
            self.plans.release(number, len(chosen))
        self._boxes.collect_removed(len(self._ids))

    def _by_plan(self, firsts: Numbers) -> Iterator[tuple[int, Numbers | None]]:
        """(plan, positions in `firsts` or None for all)"""
        if len(firsts) == 1:
            yield self.store.plan_of(int(firsts[0])), None
            return
        numbers = self.store.plans_of(firsts)
        if (numbers == numbers[0]).all():
            yield int(numbers[0]), None
            return
        for positions in positions_by_value(numbers):
            yield int(numbers[positions[0]]), positions

    def _find(self, subscription_ids: IdArray) -> Numbers:
        """The first row of every id, -1 in `trees` and `gated`; `SubscriptionError` for an unknown id."""
        firsts = self._ids.find(self.store.arrays.ids, subscription_ids)
        for subscription_id in subscription_ids[firsts < 0].tolist():
            if not self._is_elsewhere(subscription_id):
                raise SubscriptionError(f"subscription {subscription_id}: unknown id")
        return firsts

    def _is_elsewhere(self, subscription_id: object) -> bool:
        """Whether a subscription is in `trees` or `gated`."""
        return (self.trees is not None and subscription_id in self.trees) or (
            self.gated is not None and subscription_id in self.gated
        )

    # --- updating ---------------------------------------------------------------------------------

    @changing
    def update_many(self, ids: npt.ArrayLike, values: Mapping[str, Scalar | AnyColumn]) -> None:
        subscription_ids = id_array(ids)
        plain = taken_all(columns_of(values))
        if len(subscription_ids) == 1 and all(
            not is_column(value) or len(value) == 1 for value in plain.values()
        ):
            self.update(int(subscription_ids[0]), element_of(plain, 0))
        else:
            self._update_many(subscription_ids, plain)

    def _update_many(self, subscription_ids: IdArray, values: Mapping[str, Scalar | Column]) -> None:
        check_distinct(subscription_ids)
        firsts = self._find(subscription_ids)
        for name, value in values.items():
            if is_column(value) and len(value) != len(subscription_ids):
                raise VariableError(
                    f"variable ${name}: {len(value)} values, expected one or {len(subscription_ids)}"
                )
        if not len(subscription_ids):
            return
        over = np.flatnonzero(firsts < 0)
        under = np.flatnonzero(firsts >= 0) if len(over) else None
        changes = []
        moved = []
        for use, positions in (
            self._by_writes(firsts if under is None else firsts[under], values)
            if len(over) < len(subscription_ids)
            else ()
        ):
            plan = use.plan
            if under is not None:
                positions = under if positions is None else under[positions]
            chosen = firsts if positions is None else firsts[positions]
            chosen_values = values if positions is None else elements_of(values, positions)
            check_names(plan, int(subscription_ids[0 if positions is None else positions[0]]), values)
            checked = check_columns(plan.filter, chosen_values, len(chosen), partial=True)
            if use.in_place(values) is None:
                changed = plan.operands_of(set(values))
                moved.append((plan, operands_of(plan, plan.variables, checked, changed)))
            changes.append((use, chosen, checked))
        self._boxes.check_texts(moved)
        if len(over):  # raises before it changes anything
            update_both(self.gated, self.trees, subscription_ids[over], elements_of(values, over))
        self._boxes.collect_texts()
        for use, chosen, checked in changes:
            writes = use.in_place(values)
            if writes is None:
                self._move_rows(use.plan, chosen, checked)
            else:
                self._write_rows(writes, chosen, checked)

    def _by_writes(
        self, firsts: Numbers, values: Mapping[str, object]
    ) -> Iterator[tuple[PlanUse, Numbers | None]]:
        """(a plan whose rows move, or one of several with equal writes; positions or None for all)"""
        of_rows = self.store.plans_of(firsts)
        numbers = [int(of_rows[0])] if (of_rows == of_rows[0]).all() else np.unique(of_rows).tolist()
        groups: dict[int, list[int]] = {}
        for number in numbers:
            writes = self.plans[number].in_place(values)
            groups.setdefault(id(self.plans[number] if writes is None else writes), []).append(number)
        if len(groups) == 1:
            yield self.plans[numbers[0]], None
            return
        group_of = np.zeros(len(self.plans), dtype=np.int64)
        for group, members in enumerate(groups.values()):
            group_of[members] = group
        for members, positions in zip(groups.values(), positions_by_value(group_of[of_rows]), strict=True):
            yield self.plans[members[0]], positions

    def _write_rows(self, writes: Writes, firsts: Numbers, values: dict[str, Values]) -> None:
        """Write new bounds of subscriptions whose plans share `writes`."""
        parts: dict[int, list[int]] = {}
        bounds: dict[int, list[int | Keys]] = {}
        for (box, part, *_), bound in zip(writes[1], self._bounds(writes, values), strict=True):
            parts.setdefault(box, []).append(part)
            bounds.setdefault(box, []).append(bound)
        for box, numbers in parts.items():
            matrix = np.empty((len(numbers), len(firsts)), dtype=np.int64)
            for line, bound in zip(matrix, bounds[box], strict=True):
                line[:] = bound
            self.store.write_parts(firsts + box, numbers, matrix)

    def _bounds(self, writes: Writes, values: Mapping[str, Values]) -> list[int | Keys]:
        """The bound of each write: one key for all subscriptions, or one for each."""
        evaluated = [
            evaluate_column(variable, kind, values[variable.name]) for _, _, variable, kind, *_ in writes[1]
        ]
        for (*_, column, past), value in zip(writes[1], evaluated, strict=True):
            if self.columns.schema.is_of_ranks(column):
                self._boxes.enter_text(column, past, value)
        bounds = []
        for (_, part, _, kind, strict, column, past), value in zip(writes[1], evaluated, strict=True):
            if kind is Kind.STRING:
                value = self.columns.text_keys(column, past, value)
            bounds.append(bound_key(kind, value, strict, lower=part % 2 == 1))
        return bounds

    @changing
    def update(self, subscription_id: int, values: Mapping[str, Scalar]) -> None:
        """As `Engine.update`; some 10 us at any number of subscriptions where bounds change in place."""
        check_mapping(values)
        first = self._ids.find_one(self.store.arrays.ids, int(one_id(subscription_id)[0]))
        use = None if first < 0 else self.plans[self.store.plan_of(first)]
        writes = None if use is None else use.in_place(values)
        if use is None or writes is None:
            self._update_many(one_id(subscription_id), values)
            return
        _, changes = writes
        checked = use.plan.filter.check_values(values, partial=True)
        self._boxes.collect_texts()
        bounds = self._bounds(writes, checked)
        for box in {change[0]: None for change in changes}:
            mine = [(part, bound) for (of, part, *_), bound in zip(changes, bounds, strict=True) if of == box]
            column = np.array([bound for _, bound in mine], dtype=np.int64).reshape(-1, 1)
            row = np.array([first + box], dtype=np.int64)
            self.store.write_parts(row, [part for part, _ in mine], column)

    def _move_rows(self, plan: Plan, firsts: Numbers, values: dict[str, Values]) -> None:
        """Give subscriptions of one plan new values; rows whose text tests change move."""
        changed = plan.operands_of(set(values))
        operands = operands_of(plan, plan.variables, values, changed)
        number = self.store.plan_of(int(firsts[0]))
        for box, box_plan in enumerate(plan.boxes):
            if moves(box_plan, changed):
                self._boxes.move(number, box_plan, firsts + box, operands, changed)
        self._write_rows(writes_of(plan, values), firsts, values)

    # --- matching ---------------------------------------------------------------------------------

    def _keys(self, batch: EventBatch) -> Keys:
        check_batch(batch)
        self.store.begin_match(keys := self.columns.encode(batch.with_schema(self.event_type)))
        return keys

    @exclusive
    def match(self, batch: EventBatch) -> Matches:
        keys, shared = self._keys(batch), self._overlapping > 0
        more = None if self.trees is None else self.trees.match(batch)
        gated = None if self.gated is None else self.gated.match(batch)
        return Matches(RowSearch(self, self.store, self._interfaces, keys, more, gated, shared=shared))

    def event_ids(self, batch: EventBatch) -> IdArray:
        if self.trees is not None or self.gated is not None:
            return super().event_ids(batch)
        with self.guard:
            return ids_of_event(self.store, self._keys(batch), shared=self._overlapping > 0)

    def event_interfaces(self, batch: EventBatch) -> int:
        with self.guard:
            if self.trees is None and self.gated is None:
                return interfaces_of_event(self.store, self._keys(batch), self._interfaces)
            return super().event_interfaces(batch)

    # --- inspection -------------------------------------------------------------------------------

    def __len__(self) -> int:
        others = (self.trees, self.gated)
        return len(self._ids) + sum([len(other) for other in others if other is not None])

    @exclusive
    def __contains__(self, subscription_id: object) -> bool:
        if not isinstance(subscription_id, int | np.integer) or not -(2**63) <= subscription_id < 2**63:
            return False
        subscription_ids = np.array([subscription_id], dtype=np.int64)
        found = self._ids.find(self.store.arrays.ids, subscription_ids)[0] >= 0
        return bool(found) or self._is_elsewhere(subscription_id)

    @exclusive
    def memory_bytes(self) -> dict[str, int]:
        return {
            **self.store.structure_bytes(),
            "rows": self.store.row_bytes(),
            "id map": self._ids.nbytes,
            "strings": self.columns.memory_bytes(),
            "plans, signatures and names": object_bytes([self.plans, self.store.signatures, self.columns]),
            **({} if self.trees is None else {"trees": sum(self.trees.memory_bytes().values())}),
            **({} if self.gated is None else {"with calls": self.gated.memory_bytes()}),
        }

    @exclusive
    def render(self) -> str:
        lines = [f"{self.name}: {len(self)} subscriptions to {self.event_type.name}"]
        lines += [f"  {line}" for line in self.store.render(self.columns)]
        if self.trees is not None:
            lines.append(f"  as trees, in {self.trees.render().splitlines()[0]}")
        if self.gated is not None:
            lines.append(f"  with calls, gates in {self.gated.gates.render().splitlines()[0]}")
        return "\n".join(lines)

    @exclusive
    def explain(self, event: Mapping[str, object], subscription_id: int) -> str:
        first = int(self._find(one_id(subscription_id))[0])
        if first < 0 and self.gated is not None and subscription_id in self.gated:
            return self.gated.explain(event, subscription_id)
        if first < 0 and self.trees is not None:
            return self._with_form(
                self.trees.explain(event, subscription_id), self.trees.filter_of(subscription_id)
            )
        batch = EventBatch.from_pylist(self.event_type, [event])
        matched = subscription_id in self.match(batch)[0].tolist()
        verdict = f"subscription {subscription_id} {'matches' if matched else 'does not match'}"
        number = self.store.plan_of(first)
        plan = self.plans[number].plan
        text = "\n".join([verdict, *self._explain(number, first, batch)])
        return self._with_form(text, plan.filter) if len(plan.boxes) > 1 else text

    def _with_form(self, explanation: str, filter: Filter) -> str:
        """Insert the reason for a filter's form as the second line."""
        form = self.form(filter)
        verdict, _, rest = explanation.partition("\n")
        return f"{verdict}\n  {form}\n{rest}" if form else explanation

    def filter_of(self, subscription_id: int) -> Filter:
        """The filter that the subscription's plan was compiled from; constants and variables may differ."""
        first = int(self._find(one_id(subscription_id))[0])
        return self.plans[self.store.plan_of(first)].plan.filter

    def _explain(self, number: int, first: int, event: EventBatch) -> list[str]:
        """A line per test, with the event's value."""
        return explain_rows(self.store, self.columns, self.plans[number].plan, first, event)
