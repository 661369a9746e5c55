"""Subscriptions with calls of named operators: an engine of its own matches their gates, an evaluator decides
the rest (`evaluation/evaluator.py`).

Invariants: in the engine of gates, a subscription's id is its residue's number. An operator is evaluated only
on events that pass a gate and, unless it has state, only for interfaces that the event has not reached
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import Engine, IdArray
from covey.matcher.engines.rows.arrays import object_bytes
from covey.matcher.errors import VariableError
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.problem import TRUE, UNDECIDED
from covey.matcher.evaluation.residues import Residues
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.events.value_columns import columns_of, element_of, elements_of, is_column, taken_all
from covey.matcher.expressions.expression import Scalar
from covey.matcher.filters.filter import Filter
from covey.matcher.load import Load
from covey.matcher.matches import Matches

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class GatedSubscriptions:
    """An engine's subscriptions with calls; the engine checks that ids are new, known and distinct."""

    def __init__(self, gates: Engine, evaluator: Evaluator) -> None:
        self.gates = gates
        self._evaluator = evaluator
        self._residues = Residues()
        self._number_of: dict[int, int] = {}
        self._filters: dict[int, Filter] = {}
        self._values: dict[int, dict[str, Scalar]] = {}
        self._ids: Numbers = np.zeros(0, np.int64)  # by residue, as interfaces
        self._interfaces: Numbers = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._number_of)

    def __contains__(self, subscription_id: object) -> bool:
        return subscription_id in self._number_of

    def widen(self, event_type: EventType) -> None:
        self.gates.widen(event_type)

    def contain(self, ids: IdArray) -> Mask:
        return np.array([i in self._number_of for i in ids.tolist()], np.bool_)

    # --- changes ----------------------------------------------------------------------------------

    def add_many(
        self, ids: IdArray, filter: Filter, values: Mapping[str, Any] | None, interfaces: Numbers
    ) -> None:
        """Add subscriptions of one filter over the engine's schema; raises as `Engine.add_many`."""
        each = _one_by_one(filter, columns_of(values), len(ids))
        numbers = self._residues.add_many(filter, _columns(filter, each), len(ids))
        try:
            gates = [filter.gate_at(mine) for mine in each]
            if gates:
                gate = gates[0][0]
                self.gates.add_many(numbers, gate, _columns(gate, [values for _, values in gates]))
        except BaseException:
            self._residues.remove(numbers)
            raise
        top = int(numbers.max()) + 1
        if top > len(self._ids):
            more = np.zeros(top + top // 4 - len(self._ids), np.int64)
            self._ids = np.concatenate([self._ids, more])
            self._interfaces = np.concatenate([self._interfaces, more])
        self._ids[numbers], self._interfaces[numbers] = ids, interfaces
        self._number_of.update(zip(ids.tolist(), numbers.tolist(), strict=True))
        for number, mine in zip(numbers.tolist(), each, strict=True):
            self._filters[number], self._values[number] = filter, mine

    def add_all(self, load: Load) -> None:
        """Add all subscriptions of a load; raises before any is added."""
        added: list[IdArray] = []
        try:
            for place, filter in enumerate(load.filters):
                part = load.part([place])
                self.add_many(part.ids, filter, taken_all(part.values), part.interfaces)
                added.append(part.ids)
        except BaseException:
            if added:
                self.remove_many(np.concatenate(added))
            raise

    def remove_many(self, ids: IdArray) -> None:
        numbers = self._numbers(ids)
        if not len(numbers):
            return
        self.gates.remove_many(numbers)
        self._residues.remove(numbers)
        for i, number in zip(ids.tolist(), numbers.tolist(), strict=True):
            del self._number_of[i], self._filters[number], self._values[number]

    def update_many(self, ids: IdArray, values: Mapping[str, Any]) -> None:
        """Raises as `Engine.update_many`, before any has changed."""
        numbers = self._numbers(ids).tolist()
        names = values.keys()
        before = [self._values[number] for number in numbers]
        after = []
        for place, number in enumerate(numbers):
            mine = element_of(values, place)
            filter = self._filters[number]
            unknown = names - set(filter.variables)
            if unknown:
                known = ", ".join(f"${variable}" for variable in filter.variables) or "none"
                raise VariableError(
                    f"variable ${min(unknown)} is unknown: subscription {int(ids[place])} has {known}"
                )
            after.append(filter.check_values({**before[place], **mine}))
        self._update_gates(numbers, before, after)
        for filter, places in self._by_filter(numbers):
            chosen = [after[place] for place in places]
            mine_numbers = np.array([numbers[place] for place in places], np.int64)
            self._residues.replace(mine_numbers, filter, _columns(filter, chosen))
        self._values.update(zip(numbers, after, strict=True))

    def _update_gates(
        self, numbers: list[int], before: list[dict[str, Scalar]], after: list[dict[str, Scalar]]
    ) -> None:
        done: list[tuple[Filter, list[int]]] = []
        try:
            for filter, places in self._by_filter(numbers):
                self._update_gates_of(filter, [numbers[p] for p in places], [after[p] for p in places])
                done.append((filter, places))
        except BaseException:
            for filter, places in done:
                self._update_gates_of(filter, [numbers[p] for p in places], [before[p] for p in places])
            raise

    def _update_gates_of(self, filter: Filter, numbers: list[int], each: list[dict[str, Scalar]]) -> None:
        gates = [filter.gate_at(mine) for mine in each]
        gate = gates[0][0]
        if gate.variables:
            columns = _columns(gate, [values for _, values in gates])
            self.gates.update_many(np.array(numbers, np.int64), columns)

    def _by_filter(self, numbers: Sequence[int]) -> list[tuple[Filter, list[int]]]:
        """Positions in `numbers` by identity of filter: gates of equal filters may differ in bounds."""
        places: dict[int, tuple[Filter, list[int]]] = {}
        for place, number in enumerate(numbers):
            filter = self._filters[number]
            places.setdefault(id(filter), (filter, []))[1].append(place)
        return list(places.values())

    def _numbers(self, ids: IdArray) -> Numbers:
        return np.array([self._number_of[i] for i in ids.tolist()], np.int64)

    def values_before(self, ids: IdArray, values: Mapping[str, Any]) -> dict[str, list[Scalar | None]]:
        """The present values of the variables in `values`, as `update_many` takes them."""
        each = [self._values[number] for number in self._numbers(ids).tolist()]
        return {name: [mine.get(name) for mine in each] for name in values}

    # --- matching ---------------------------------------------------------------------------------

    def match(self, batch: EventBatch) -> GatedSearch:
        return GatedSearch(self, batch, self.gates.match(batch))

    def decide(
        self, batch: EventBatch, rows: Numbers, numbers: Numbers, groups: Numbers | None = None
    ) -> Mask:
        """Which pairs match: bool[n]. With groups, at least one pair of each group that has a match."""
        matching: Mask = self._evaluator.decide(batch, self._residues, rows, numbers, groups) == TRUE
        return matching

    def are_late(self, numbers: Numbers) -> Mask:
        """Which residues have calls with state: these evaluate every event that passes their gates."""
        return self._residues.are_late(numbers)

    def ids_of(self, numbers: Numbers) -> IdArray:
        return self._ids[numbers]

    def interfaces_of(self, numbers: Numbers) -> Numbers:
        return self._interfaces[numbers]

    # --- inspection -------------------------------------------------------------------------------

    def explain(self, event: Mapping[str, object], subscription_id: int) -> str:
        """As `Engine.explain`: the gate, predicate by predicate, and the truth of every call."""
        number = self._number_of[subscription_id]
        batch = EventBatch.from_pylist(self.gates.event_type, [event])
        row, one = np.zeros(1, np.int64), np.array([number])
        lines = self.gates.explain(event, number).splitlines()[1:]
        through = number in self.gates.match(batch)[0].tolist()
        verdict = "does not match"
        filter = self._filters[number].substitute(self._values[number])
        if through:
            # Without state: the event is none of the stream.
            decided = self._evaluator.decide(batch, self._residues, row, one, readers=False)[0]
            undecided = "is undecided, and dropped"
            if self.are_late(one)[0]:
                undecided = "may match, depending on earlier events"
            verdict = {TRUE: "matches", UNDECIDED: undecided}.get(decided, verdict)
            shown = self._evaluator.explain(batch, self._residues, number, filter, readers=False)
            lines += [f"  {line}" for line in shown]
        else:
            lines.append("  no operator is asked: without them it is false already")
        return "\n".join([f"subscription {subscription_id} {verdict}", *lines, f"  of {filter}"])

    def memory_bytes(self) -> int:
        arrays = self._residues.nbytes + self._ids.nbytes + self._interfaces.nbytes
        objects = object_bytes([self._number_of, self._filters, self._values, self._residues])
        return sum(self.gates.memory_bytes().values()) + arrays + objects


def update_both(
    gated: GatedSubscriptions | None, other: Engine | None, ids: IdArray, values: Mapping[str, Any]
) -> None:
    """Update the subscriptions of both; raises before any has changed."""
    if gated is None:
        here, mine = np.zeros(len(ids), np.bool_), ids[:0]
    else:
        here = gated.contain(ids)
        mine = ids[here]
    before = {}
    if gated is not None and len(mine):
        chosen = elements_of(values, np.flatnonzero(here))
        before = gated.values_before(mine, chosen)
        gated.update_many(mine, chosen)
    if other is None or here.all():
        return
    try:
        other.update_many(ids[~here], elements_of(values, np.flatnonzero(~here)))
    except BaseException:
        if gated is not None and len(mine):
            gated.update_many(mine, before)
        raise


class GatedSearch:
    """What a batch matches among subscriptions with calls, computed on demand."""

    def __init__(self, gated: GatedSubscriptions, batch: EventBatch, gates: Matches) -> None:
        self._gated, self._batch, self._gates = gated, batch, gates
        self._pairs: tuple[Numbers, Numbers] | None = None
        self._matching: tuple[Numbers, Numbers] | None = None

    def pairs(self) -> tuple[Numbers, Numbers]:
        """(events, residues) that pass the gates, by event."""
        if self._pairs is None:
            offsets, numbers = self._gates.ids()
            self._pairs = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), numbers
        return self._pairs

    def matching(self) -> tuple[Numbers, Numbers]:
        """(events, residues) that match, by event."""
        if self._matching is None:
            rows, numbers = self.pairs()
            matching = self._gated.decide(self._batch, rows, numbers)
            self._matching = rows[matching], numbers[matching]
        return self._matching

    def counts(self) -> Numbers:
        return np.bincount(self.matching()[0], minlength=len(self._gates))

    def ids(self) -> tuple[Numbers, IdArray]:
        """As `Matches.ids`."""
        rows, numbers = self.matching()
        offsets = np.zeros(len(self._gates) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(self._gates)), out=offsets[1:])
        return offsets, self._gated.ids_of(numbers)

    def any(self, known: Mask) -> Mask:
        """Which events are in `known` or match a subscription: bool[events]."""
        rows, numbers = self.pairs() if self._matching is None else self._matching
        if self._matching is None:
            left = ~known[rows] | self._gated.are_late(numbers)
            rows, numbers = rows[left], numbers[left]
            matching = self._gated.decide(self._batch, rows, numbers, np.zeros(len(rows), np.int64))
            rows = rows[matching]
        known = known.copy()
        known[rows] = True
        return known

    def set_interfaces(self, bits: npt.NDArray[np.uint64]) -> None:
        """Set the bits of matching interfaces; set bits are evaluated again only for calls with state."""
        rows, numbers = self.pairs() if self._matching is None else self._matching
        interfaces = self._gated.interfaces_of(numbers)
        words, masks = interfaces >> 6, np.left_shift(np.uint64(1), (interfaces & 63).astype(np.uint64))
        if self._matching is None:
            left = (bits[rows, words] & masks == 0) | self._gated.are_late(numbers)
            rows, words, masks = rows[left], words[left], masks[left]
            matching = self._gated.decide(self._batch, rows, numbers[left], interfaces[left])
            rows, words, masks = rows[matching], words[matching], masks[matching]
        np.bitwise_or.at(bits, (rows, words), masks)


def _one_by_one(filter: Filter, values: Mapping[str, Any], count: int) -> list[dict[str, Scalar]]:
    """The checked values of each subscription; `VariableError` as `Filter.check_values`."""
    columns = {name: value for name, value in taken_all(values).items() if is_column(value)}
    for name, column in columns.items():
        if len(column) != count:
            raise VariableError(f"variable ${name}: {len(column)} values, expected one or {count}")
    if not columns:
        checked = filter.check_values(values)
        return [checked] * count
    common = {name: value for name, value in values.items() if name not in columns}
    names, each = list(columns), zip(*columns.values(), strict=True)
    return [filter.check_values({**common, **dict(zip(names, mine, strict=True))}) for mine in each]


def _columns(filter: Filter, each: list[dict[str, Scalar]]) -> dict[str, Any]:
    """By variable: the value of one subscription, a list for several."""
    if len(each) == 1:
        return {name: each[0][name] for name in filter.variables}
    return {name: [mine[name] for mine in each] for name in filter.variables}
