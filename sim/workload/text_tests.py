"""Subscriptions by symbol and price, and beside them some whose test is on strings or a list of constants.

The subscriptions are those of SYMBOLS-tail but for `tests` of them, which test the attribute `note`: by an
operator and a constant of their own, or by a list of `constants` of them. Notes of events are drawn evenly
from the words that constants are drawn from. Compared with SYMBOLS-tail over as many subscriptions, this
shows what such tests cost all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.errors import InputError
from covey.sim.workload.symbols import SYMBOLS_TAIL
from covey.sim.workload.workload import Column, Indices, SubscriptionGroup, Workload

_LETTERS, _LENGTH = 26, 6
_LISTS = ("in", "not in")
OPERATORS = ("prefix", "suffix", "contains", "!=", "<", *_LISTS)


@dataclass(frozen=True)
class TextTests(Workload):
    """`tests` subscriptions with `operator`, each with one of `words`, or a list of `constants` of them."""

    name: str = "PREFIXES"
    operator: str = "prefix"
    tests: int = 10_000
    constants: int = 1
    words: int = 200_000

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise InputError(f"operator {self.operator!r}: expected one of {', '.join(OPERATORS)}")
        if not 1 <= self.constants <= self.words:
            raise InputError(f"constants {self.constants}: expected 1 to the number of words, {self.words}")

    @property
    def description(self) -> str:  # type: ignore[override]
        operand = f"lists of {self.constants:,}" if self.operator in _LISTS else "words"
        return f"SYMBOLS-tail, {self.tests:,} of them replaced by `note {self.operator}` with {operand}"

    @property
    def event_type(self) -> EventType:  # type: ignore[override]
        return EventType("Trade", {**SYMBOLS_TAIL.event_type.attributes, "note": "string"})

    def _words(self, numbers: Indices) -> Column:
        """Distinct words by number, of six letters in no order."""
        scattered = numbers * 7_368_787 % _LETTERS**_LENGTH  # the factor has no divisor in common with 26
        letters = scattered[:, None] // _LETTERS ** np.arange(_LENGTH) % _LETTERS + ord("a")
        words: Column = letters.astype(np.uint32).view(f"U{_LENGTH}")[:, 0]
        return words

    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]:
        tests = min(self.tests, count)
        event_type, ids = self.event_type, rng.permutation(count).astype(np.int64)
        for group in SYMBOLS_TAIL._groups(count - tests, rng):
            mine = np.sort(ids[tests:])[group.ids]
            yield SubscriptionGroup(parse(str(group.filter), event_type), mine, group.values)
        rest = np.sort(ids[:tests])
        if self.operator not in _LISTS:
            words = self._words(np.arange(tests) % self.words)
            yield SubscriptionGroup(parse(f"note {self.operator} $w", event_type), rest, {"w": words})
            return
        for number in range(tests):
            drawn = self._words(rng.choice(self.words, self.constants, replace=False))
            listed = ", ".join([f"'{word}'" for word in drawn.tolist()])
            yield SubscriptionGroup(
                parse(f"note {self.operator} ({listed})", event_type), rest[number : number + 1], {}
            )

    def _events(self, count: int, rng: np.random.Generator) -> EventBatch:
        trades = SYMBOLS_TAIL._events(count, rng).record_batch.columns
        notes = pa.array(self._words(rng.integers(0, self.words, count)), pa.string())
        schema = self.event_type.arrow_schema
        return EventBatch.from_arrow(
            self.event_type, pa.RecordBatch.from_arrays([*trades, notes], schema=schema)
        )

    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]:
        if "symbol" in group.values:
            return SYMBOLS_TAIL._moves(group, rng)
        if not group.values:
            return {}
        return {"w": self._words(rng.integers(0, self.words, len(group)))}


PREFIXES = TextTests()
MEMBERS = TextTests("MEMBERS", "in", tests=100, constants=1_000)
