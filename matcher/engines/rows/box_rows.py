"""The boxes of plans as rows of a store, one row per box and subscription. The value of a text test
(`suffix`, `contains`) decides which derived columns a row tests, so a new value moves the row to another
signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher.compile.bounds import Operands, box_bounds, end_keys, ranked_operands
from covey.matcher.compile.plan import BoxPlan, Plan
from covey.matcher.encoding.columns import Columns, Derived
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.members import ALONE
from covey.matcher.encoding.ranks import Relabelling
from covey.matcher.encoding.strings import FEWEST_COLLECTED
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.store import RowStore
from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import Kind


class BoxRows:
    """Inserts, moves and removes rows, and counts the users of the columns that they test."""

    def __init__(self, columns: Columns, store: RowStore) -> None:
        self._columns = columns
        self._store = store
        self._removed = 0  # rows since strings were collected

    def insert(self, number: int, plan: BoxPlan, rows: Numbers, operands: Operands) -> None:
        """Insert the rows of one box of plan `number`; some may be `inserted` if room is lacking."""
        self._columns.test(plan.columns, len(rows))
        try:
            if plan.skeleton.is_plain:
                lows, highs = box_bounds(plan, operands, len(rows), self._columns)
                self._store.insert(
                    rows, self._store.signature(plan.columns, plan.shapes, number), lows, highs
                )
                return
            self._enter_texts(plan, operands)
            lows, highs = box_bounds(plan, operands, len(rows), self._columns)
            for positions, signature in self._signatures(number, plan, len(rows), operands):
                self._key_texts(plan, operands, lows, highs)
                if positions is None:
                    self._store.insert(rows, signature, lows, highs)
                else:
                    self._store.insert_chosen(rows, signature, lows, highs, positions)
        except (CoveyError, MemoryError):
            self._columns.untest(plan.columns, len(rows) - len(self.inserted(rows)))
            raise

    def inserted(self, rows: Numbers) -> Numbers:
        """The part of `rows` that is in the store."""
        return rows[self._store.signatures_of(rows) >= 0]

    def insert_alike(
        self,
        plan: BoxPlan,
        numbers: list[int],
        attributes: list[tuple[int, ...]],
        of_plan: Numbers,
        rows: Numbers,
        operands: Operands,
    ) -> None:
        """Insert the rows of one box of plans that differ in columns alone and test no strings; `plan` is one
        of them. Row i is of plan of_plan[i], and plan p has attributes[p] at the places of the skeleton.
        """
        columns = np.array(self._columns.schema.columns)[np.array(attributes)]
        tested = columns[:, list(plan.skeleton.places)]
        counts = np.bincount(of_plan, minlength=len(numbers))
        users = np.bincount(tested.ravel(), np.repeat(counts, tested.shape[1])).astype(np.int64)
        for column in np.flatnonzero(users).tolist():
            self._columns.test((column,), int(users[column]))
        lows, highs = box_bounds(plan, operands, len(rows), self._columns)
        tuples = list(map(tuple, tested.tolist()))
        try:
            self._store.insert_alike(rows, tuples, plan.shapes, numbers, of_plan, lows, highs)
        except (CoveyError, MemoryError):
            missing = np.bincount(of_plan[self._store.signatures_of(rows) < 0], minlength=len(numbers))
            for each, count in zip(tuples, missing.tolist(), strict=True):
                self._columns.untest(each, count)
            raise

    def check_texts(self, values: Iterable[tuple[Plan, Operands]]) -> None:
        """`CapacityError` where text tests with these values would need too many columns."""
        texts: list[Derived] = []
        for box, operands in ((box, operands) for plan, operands in values for box in plan.boxes):
            for attribute, text in zip(box.text_columns, box.texts, strict=True):
                if text.operand in operands and not text.is_set and not text.is_ending:
                    value = operands[text.operand]
                    constants = value.unique().to_pylist() if isinstance(value, pa.Array) else [str(value)]
                    texts += [(attribute, text.operator, constant) for constant in constants]
        if texts:
            self._columns.check_room(texts)

    def remove(self, plan: BoxPlan, rows: Numbers) -> None:
        if not len(rows):
            return
        self._removed += len(rows)
        self._columns.untest(plan.columns, len(rows))
        if not plan.texts:
            self._store.remove(rows)
            return
        signatures, counts = np.unique(self._store.signatures_of(rows), return_counts=True)
        derived = [self._derived(plan, signature) for signature in signatures.tolist()]
        numbers = self._store.read(rows[:1], plan.size)[0][len(plan.tests) :, 0].tolist()
        self._store.remove(rows)
        for columns, count in zip(derived, counts.tolist(), strict=True):
            for text, column, number in zip(plan.texts, columns, numbers, strict=True):
                if text.is_set:
                    self._columns.release_set(column, number if text.expected else ALONE, count)
                else:
                    self._columns.release(column, count)

    def move(
        self, number: int, plan: BoxPlan, rows: Numbers, operands: Operands, changed: frozenset[int]
    ) -> None:
        """Give rows new values of the operands `changed`, texts among them."""
        self._enter_texts(plan, operands)
        lows, highs = self._store.read(rows, plan.size)
        for t, test in enumerate(plan.tests):
            if test.lower is not None and test.lower.operand in changed:
                lows[t] = end_keys(plan, t, operands, self._columns, lower=True)
            if test.upper is not None and test.upper.operand in changed:
                highs[t] = end_keys(plan, t, operands, self._columns, lower=False)
        for t, text in enumerate(plan.texts, len(plan.tests)):
            if text.is_ending and text.operand in changed:
                lows[t] = highs[t] = self._ids_of(operands[text.operand])
        old = self._store.signatures_of(rows).tolist()
        derived = {signature: self._derived(plan, signature) for signature in set(old)}
        self._store.remove(rows)
        by_signature: dict[int, list[int]] = {}
        for position, signature in enumerate(old):
            columns = []
            for attribute, text, column in zip(
                plan.text_columns, plan.texts, derived[signature], strict=True
            ):
                if text.is_set:
                    columns.append(column)
                    continue
                constant = self._columns.constant(column)
                if text.operand in changed:
                    value = operands[text.operand]
                    constant = value[position].as_py() if isinstance(value, pa.Array) else str(value)
                    constant = len(constant.encode()) if text.is_ending else constant
                columns.append(self._columns.acquire((attribute, text.operator, constant)))
            fresh = self._store.signature((*plan.columns, *columns), plan.shapes, number)
            by_signature.setdefault(fresh, []).append(position)
        for signature in old:
            for text, column in zip(plan.texts, derived[signature], strict=True):
                if not text.is_set:
                    self._columns.release(column)
        for signature, positions in by_signature.items():
            self._store.insert_chosen(rows, signature, lows, highs, np.array(positions, dtype=np.int64))

    def enter_text(self, column: int, past: bool, texts: str | pa.StringArray) -> None:
        """Enter bounds of string ranges into a column of ranks; a relabelling rewrites the bounds of rows."""
        relabelling = self._columns.enter_texts(column, past, texts)
        if relabelling is not None:
            self._relabel(column, relabelling)

    def collect_removed(self, subscriptions: int) -> None:
        """`collect_texts`, once enough rows were removed to amortise it."""
        texts = self._columns.strings.limit + sum(map(len, self._columns.ranks.values()))
        if texts > FEWEST_COLLECTED and 2 * self._removed >= max(texts, subscriptions):
            self._columns.collect_soon()
            self.collect_texts()

    def collect_texts(self) -> None:
        """Drop strings that bound no row, once strings have doubled; linear in the rows that test strings."""
        columns = self._columns
        due = {column: ranks for column, ranks in columns.ranks.items() if len(ranks) >= ranks.collect_at}
        kinds = columns.schema.kinds
        live: npt.NDArray[np.bool_] | None = None
        if columns.strings.limit >= columns.strings.collect_at:
            live = np.zeros(columns.strings.limit, dtype=np.bool_)
        elif not due:
            return
        strings = [*(c for c, kind in kinds.items() if kind is Kind.STRING), *columns.endings]
        strings = strings if live is not None else []
        self._removed = 0
        used: dict[int, list[Keys]] = {column: [] for column in due}
        for _, tested, lows, highs in self._store.testing({*strings, *due}):
            for t, column in enumerate(tested):
                if column in due:
                    used[column].append(due[column].labels_of_bounds(lows[t], highs[t]))
                elif live is not None and column in strings:
                    live[lows[t, (lows[t] > 0) & (lows[t] < len(live))]] = True
        for column, ranks in due.items():
            ranks.keep(np.concatenate([*used[column], np.zeros(0, dtype=np.int64)]))
        if live is not None:
            columns.mark_members(live)
            columns.strings.collect(live)

    def _enter_texts(self, plan: BoxPlan, operands: Operands) -> None:
        for operand, column, past in ranked_operands(plan):
            if operand in operands:
                self.enter_text(column, past, operands[operand])

    def _relabel(self, column: int, relabelling: Relabelling) -> None:
        for rows, columns, lows, highs in self._store.testing({column}):
            for t in [t for t, tested in enumerate(columns) if tested == column]:
                for part, old in ((1 + 2 * t, lows[t]), (2 + 2 * t, highs[t])):
                    new = relabelling.bounds(old, lower=part % 2 == 1)
                    if (new != old).any():  # a row has no room for an open end
                        self._store.write_parts(rows, [part], new.reshape(1, -1))

    def _key_texts(self, plan: BoxPlan, operands: Operands, lows: Keys, highs: Keys) -> None:
        """Write the ids of endings, and the numbers of sets, one set for all rows."""
        for t, (attribute, text) in enumerate(
            zip(plan.text_columns, plan.texts, strict=True), len(plan.tests)
        ):
            value: Any = operands[text.operand]
            if text.is_ending:
                lows[t] = highs[t] = self._ids_of(value)
            elif text.is_set and text.expected:
                lows[t] = highs[t] = self._columns.set_number(attribute, value)

    def _ids_of(self, texts: str | pa.StringArray) -> int | Keys:
        strings = self._columns.strings
        return strings.id_of(texts) if isinstance(texts, str) else strings.ids_of(texts)

    def _derived(self, plan: BoxPlan, signature: int) -> tuple[int, ...]:
        return self._store.signatures.columns[signature][len(plan.tests) :]

    def _signatures(
        self, number: int, plan: BoxPlan, count: int, operands: Operands
    ) -> Iterator[tuple[Numbers | None, int]]:
        """(positions or None for all, their signature)"""
        if not plan.texts:
            yield None, self._store.signature(plan.columns, plan.shapes, number)
            return
        values: list[Any] = [
            _lengths(operands[text.operand]) if text.is_ending else operands[text.operand]
            for text in plan.texts
        ]
        if count == 1 or not any(isinstance(value, pa.Array) for value in values):
            yield None, self._text_signature(number, plan, values, count)
            return
        columns = [value.to_pylist() if isinstance(value, pa.Array) else [value] * count for value in values]
        group_of: dict[tuple[Any, ...], int] = {}
        group = np.zeros(count, dtype=np.int64)
        for position, constants in enumerate(zip(*columns, strict=True)):
            group[position] = group_of.setdefault(constants, len(group_of))
        for constants, member in group_of.items():
            positions = np.flatnonzero(group == member)
            yield positions, self._text_signature(number, plan, constants, len(positions))

    def _text_signature(self, number: int, plan: BoxPlan, constants: Sequence[Any], users: int) -> int:
        derived = [
            self._columns.acquire_set(column, constant, alone=not text.expected, users=users)
            if text.is_set
            else self._columns.acquire((column, text.operator, constant), users)
            for column, text, constant in zip(plan.text_columns, plan.texts, constants, strict=True)
        ]
        return self._store.signature((*plan.columns, *derived), plan.shapes, number)


def _lengths(texts: str | pa.StringArray) -> int | pa.Array:
    """In UTF-8 bytes."""
    return len(texts.encode()) if isinstance(texts, str) else pc.binary_length(texts)
