"""Columns: what a key vector holds, the attributes of an event type first, then derived boolean columns.

What is no interval (prefix, contains, the order of strings ...) is a derived column: key 1 where it
holds, 0 where not, MISSING where the attribute is missing. However many subscriptions share it, it is
computed once per batch, on the distinct values of the attribute. Derived columns are counted: the last to
release one frees its place. An attribute is encoded while subscriptions test it: a broker that passes events
on by their price alone never looks at the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.encoding.encode_kernels import encode_bools, encode_floats, encode_integers
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.strings import StringIds, as_bytes
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import MISSING
from covey.matcher.expressions.operators import SPECS, Operator
from covey.matcher.jit.compiling import compile_kernels

Derived = tuple[int, Operator, str]
"""(number of the attribute, operator, constant)"""


class Columns:
    """The columns of one engine: numbers for attributes and derived tests, and the keys of a batch."""

    def __init__(self, event_type: EventType) -> None:
        compile_kernels()  # a kernel called before would compile itself for the arrays at hand
        self.event_type = event_type
        self.strings = StringIds()
        self._derived: list[Derived | None] = []
        self._users: list[int] = []
        self._numbers: dict[Derived, int] = {}
        self._tested: dict[int, int] = {}  # how many rows test each attribute

    def __len__(self) -> int:
        return len(self.event_type.names) + len(self._derived)

    @property
    def derived(self) -> int:
        """How many derived columns are in use."""
        return len(self._numbers)

    def test(self, columns: Iterable[int], users: int = 1) -> None:
        """Add users of these attributes, which are encoded while they have any; the attribute of a derived
        column need not have one.
        """
        for number in columns:
            self._tested[number] = self._tested.get(number, 0) + users

    def untest(self, columns: Iterable[int], users: int = 1) -> None:
        """Remove users of these attributes."""
        for number in columns:
            self._tested[number] -= users
            if self._tested[number] == 0:
                del self._tested[number]

    def acquire(self, derived: Derived, users: int = 1) -> int:
        """The number of a derived column; adds users to it."""
        number = self._numbers.get(derived)
        if number is None:
            place = self._derived.index(None) if None in self._derived else len(self._derived)
            if place == len(self._derived):
                self._derived.append(None)
                self._users.append(0)
            self._derived[place] = derived
            number = self._numbers[derived] = len(self.event_type.names) + place
        self._users[number - len(self.event_type.names)] += users
        return number

    def release(self, number: int, users: int = 1) -> None:
        """Remove users of a derived column."""
        place = number - len(self.event_type.names)
        self._users[place] -= users
        derived = self._derived[place]
        if self._users[place] == 0 and derived is not None:
            del self._numbers[derived]
            self._derived[place] = None
            while self._derived and self._derived[-1] is None:
                self._derived.pop()
                self._users.pop()

    def is_derived(self, number: int) -> bool:
        return number >= len(self.event_type.names)

    def constant(self, number: int) -> str:
        """The constant of a derived column."""
        derived = self._derived[number - len(self.event_type.names)]
        assert derived is not None
        return derived[2]

    def describe(self, number: int) -> str:
        """The name of a column, for people."""
        if not self.is_derived(number):
            return self.event_type.names[number]
        derived = self._derived[number - len(self.event_type.names)]
        if derived is None:
            return "(free)"
        attribute, operator, text = derived
        return f"{self.event_type.names[attribute]} {operator} {text!r}"

    def encode(self, batch: EventBatch) -> Keys:
        """The key matrix of a batch, int64[n_events, n_columns]; 0 where nothing tests a column."""
        keys = np.zeros((len(batch), len(self)), dtype=np.int64)
        records = batch.record_batch
        if len(batch):
            for number in self._tested:
                self._encode(records.column(number), number, self.event_type.kinds[number], keys)
            if self._derived:
                self._derive(records, keys)
        return keys

    def _encode(self, column: pa.Array, number: int, kind: Kind, keys: Keys) -> None:
        if kind is Kind.STRING:
            self.strings.encode(column, number, keys)
            return
        validity, data = column.buffers()
        valid = as_bytes(validity if column.null_count else None)
        if kind is Kind.BOOL:
            encode_bools(as_bytes(data), valid, column.offset, number, keys)
            return
        values = np.frombuffer(data, np.int64, column.offset + len(column))
        encode_values = encode_floats if kind is Kind.FLOAT64 else encode_integers
        encode_values(values, valid, column.offset, number, keys)

    def _derive(self, records: pa.RecordBatch, keys: Keys) -> None:
        distinct: dict[int, tuple[pa.Array, npt.NDArray[np.int64]]] = {}
        for place, derived in enumerate(self._derived):
            if derived is None:
                continue
            attribute, operator, text = derived
            if attribute not in distinct:
                encoded = records.column(attribute).dictionary_encode()
                positions = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)
                distinct[attribute] = encoded.dictionary, positions
            values, positions = distinct[attribute]
            truth = np.empty(len(values) + 1, dtype=np.int64)
            test = SPECS[operator].column
            assert test is not None
            truth[:-1] = test(values, text).to_numpy(zero_copy_only=False)
            truth[-1] = MISSING
            keys[:, len(self.event_type.names) + place] = truth[positions]
