"""Columns of a key vector: attributes, ranks of their strings (`schema_columns.py`), and derived columns.

A test that is no interval has a derived column, MISSING where the attribute is missing. A text (`contains`,
`not suffix`) has the key 1 where it holds, else 0 (`texts.py`); endings, for `suffix`, the string id of a
fixed number of last bytes; sets the number of the set that contains the value (`members.py`). Columns are
reference-counted, and an attribute or its ranks are encoded only while subscriptions test them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.encoding.encode_kernels import encode_bools, encode_floats, encode_integers
from covey.matcher.encoding.keys import Keys, bound_keys
from covey.matcher.encoding.members import MemberTable
from covey.matcher.encoding.ranks import Ranks, Relabelling
from covey.matcher.encoding.schema_columns import MOST_TEXTS, SchemaColumns
from covey.matcher.encoding.strings import StringIds, as_bytes
from covey.matcher.encoding.texts import Texts
from covey.matcher.errors import CapacityError
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import MISSING, NOTHING
from covey.matcher.events.packed_columns import PackedColumns
from covey.matcher.expressions.expression import Scalar
from covey.matcher.expressions.operators import Operator, prefix_span
from covey.matcher.jit.compiling import compile_kernels

Derived = tuple[int, Operator, str | int]
"""The attribute's number, the operator, and its constant; for endings how many bytes; for sets ""."""

RESERVED: Derived = (-1, Operator.IN, "")
"""In place of a derived column where an added attribute has its column."""

Constants = tuple[Scalar, ...]


_NARROW = 64  # the most columns for which keys of a single event are collected in a list
_SHOWN = 4  # constants of a set that are shown


@dataclass(slots=True)
class _SetUse:
    column: int
    number: int
    users: int = 0


class Columns:
    """The columns of one engine: numbers for attributes and derived tests, and the keys of a batch."""

    def __init__(self, event_type: EventType) -> None:
        compile_kernels()  # a kernel called before would compile itself for the arrays at hand
        self.event_type = event_type
        self.strings = StringIds()
        self.ranks: dict[int, Ranks] = {}  # by column
        self.schema = SchemaColumns(event_type)
        self._first_derived = self._top = self.schema.top
        self._derived: list[Derived | None] = []
        """By number from `_first_derived` on; RESERVED for attributes that have been added."""
        self._users: list[int] = []
        self.most_texts = MOST_TEXTS
        self._free: list[int] = []
        self._numbers: dict[Derived, int] = {}
        self.members: dict[int, MemberTable] = {}  # by attribute
        self.texts: dict[int, Texts] = {}  # by attribute
        self.endings: dict[int, tuple[int, int]] = {}
        """The attribute of each column of endings, and how many bytes they have."""
        self._sets: dict[tuple[int, Constants, bool], _SetUse] = {}
        self._set_keys: dict[tuple[int, int], tuple[int, Constants, bool]] = {}
        self._tested: dict[int, int] = {}  # how many rows test each attribute
        self._plain: list[tuple[int, int, bool]] | None = None
        """Number, attribute, whether it has strings: of the tested columns without ranks."""

    def __len__(self) -> int:
        if self._derived:
            return self._first_derived + len(self._derived)
        return max(self.ranks) + 1 if self.ranks else len(self.event_type.names)

    def widen(self, event_type: EventType) -> None:
        """Add columns for new attributes, at the end of a schema that begins with the present one."""
        first, self.event_type = self._top, event_type
        self._plain = None
        self.schema.widen(event_type, first)
        self._top = max(first, self.schema.top)
        self._derived += [None] * (first - self._first_derived - len(self._derived))
        self._derived += [RESERVED] * (self._top - first)
        self._users += [0] * (len(self._derived) - len(self._users))
        self._free = [place for place, derived in enumerate(self._derived) if derived is None]

    @property
    def derived(self) -> int:
        return sum(derived is not None and derived is not RESERVED for derived in self._derived)

    def collect_soon(self) -> None:
        """Drop unused constants at the next collection, however few."""
        self.strings.collect_at = 0
        for ranks in self.ranks.values():
            ranks.collect_at = 0

    def test(self, columns: Iterable[int], users: int = 1) -> None:
        """Add users of attributes and ranks, which are encoded while they have any; derived columns do not
        count as users."""
        for number in columns:
            self._tested[number] = self._tested.get(number, 0) + users
            if self.schema.is_of_ranks(number):
                self.ranks.setdefault(number, Ranks())
        self._plain = None

    def untest(self, columns: Iterable[int], users: int = 1) -> None:
        for number in columns:
            self._tested[number] -= users
            if self._tested[number] == 0:
                del self._tested[number]
                self.ranks.pop(number, None)
        self._plain = None

    def acquire(self, derived: Derived, users: int = 1) -> int:
        """The number of a text test's derived column; adds users to it."""
        number = self._numbers.get(derived)
        if number is None:
            number = self._numbers[derived] = self._allocate(derived)
            attribute, operator, constant = derived
            if isinstance(constant, int):
                self.endings[number] = attribute, constant
            else:
                self.texts.setdefault(attribute, Texts()).enter(operator, constant, number)
        self._users[number - self._first_derived] += users
        return number

    def check_room(self, texts: Iterable[Derived]) -> None:
        """`CapacityError` if these texts, which need a column each, would be too many."""
        known = sum(map(len, self.texts.values()))
        if known + len({text for text in texts if text not in self._numbers}) > self.most_texts:
            raise CapacityError(
                f"over {self.most_texts:,} different constants of contains and not suffix: "
                "expected fewer, or an engine with a larger value of texts"
            )

    def release(self, number: int, users: int = 1) -> None:
        place = number - self._first_derived
        self._users[place] -= users
        derived = self._derived[place]
        if self._users[place] == 0 and derived is not None:
            if derived in self._numbers:
                self._forget(derived)
            self._derived[place] = None
            while self._derived and self._derived[-1] is None:
                self._derived.pop()
                self._users.pop()
            self._free.append(place)

    def _forget(self, derived: Derived) -> None:
        attribute, operator, constant = derived
        number = self._numbers.pop(derived)
        if isinstance(constant, int):
            del self.endings[number]
            return
        self.texts[attribute].remove(operator, constant)
        if not len(self.texts[attribute]):
            del self.texts[attribute]

    def _allocate(self, derived: Derived) -> int:
        place = self._free.pop() if self._free else len(self._derived)
        while self._free and place >= len(self._derived):
            place = self._free.pop()  # free places may have gone from the end
        if place >= len(self._derived):
            place = len(self._derived)
            self._derived.append(None)
            self._users.append(0)
        self._derived[place] = derived
        self._top = max(self._top, self._first_derived + place + 1)
        return self._first_derived + place

    def acquire_set(self, attribute: int, constants: Constants, *, alone: bool, users: int = 1) -> int:
        """The column of a set of an attribute's values, unshared if `alone`; adds users to the set and the
        column."""
        key = attribute, constants, alone
        use = self._sets.get(key)
        if use is None:
            keys = self._keys_of(attribute, constants)
            table = self.members.setdefault(attribute, MemberTable())
            column = None if alone else table.column_for(keys)
            if column is None:
                column = self._allocate((attribute, Operator.IN, ""))
            number = table.enter(keys, column, alone=alone)
            use = self._sets[key] = _SetUse(column, number)
            self._set_keys[column, number] = key
            self.test([self.schema.columns[attribute]])
        use.users += users
        self._users[use.column - self._first_derived] += users
        return use.column

    def set_number(self, attribute: int, constants: Constants) -> int:
        """The number of a set in the column that it shares with others."""
        return self._sets[attribute, constants, False].number

    def release_set(self, column: int, number: int, users: int = 1) -> None:
        key = self._set_keys[column, number]
        attribute = key[0]
        use = self._sets[key]
        use.users -= users
        if use.users == 0:
            del self._sets[key], self._set_keys[column, number]
            self.members[attribute].leave(column, number)
            if not self.members[attribute].sets:
                del self.members[attribute]
            self.untest([self.schema.columns[attribute]])
        self.release(column, users)

    def _keys_of(self, attribute: int, constants: Constants) -> Keys:
        """The keys of the constants that the attribute can have, each once."""
        kind = self.event_type.kinds[attribute]
        if kind is Kind.STRING:
            return self.strings.ids_of(pa.array(constants, pa.string()))
        types = {type(constant) for constant in constants}
        plain = len(types) == 1 and kind is not Kind.TIMESTAMP
        column: npt.NDArray[Any] = np.array(constants) if plain else np.array(constants, dtype=object)
        if column.dtype.kind not in "if":
            column = column.astype(object)
        low, high = (bound_keys(kind, column, False, lower=lower) for lower in (True, False))
        return np.unique(low[low == high])

    def mark_members(self, live: npt.NDArray[np.bool_]) -> None:
        for attribute, table in self.members.items():
            if self.event_type.kinds[attribute] is Kind.STRING:
                for keys in table.each():
                    live[keys] = True

    def is_derived(self, number: int) -> bool:
        return number not in self.schema.attributes

    def constant(self, number: int) -> str | int:
        """The constant of a derived column; for endings how many bytes."""
        derived = self._derived[number - self._first_derived]
        assert derived is not None
        return derived[2]

    def attribute(self, number: int) -> int | None:
        """The attribute of a column; None for a derived one."""
        return self.schema.attributes.get(number)

    def source(self, number: int) -> int:
        attribute = self.attribute(number)
        if attribute is None:
            derived = self._derived[number - self._first_derived]
            assert derived is not None
            attribute = derived[0]
        return attribute

    def is_text(self, number: int) -> bool:
        derived = self._derived[number - self._first_derived] if self.is_derived(number) else None
        return derived is not None and derived[1] is not Operator.IN and isinstance(derived[2], str)

    def describe(self, number: int) -> str:
        tested = self.attribute(number)
        if tested is not None:
            return self.event_type.names[tested]
        place = number - self._first_derived
        derived = self._derived[place] if place < len(self._derived) else None
        if derived is None:
            return "(free)"
        attribute, operator, text = derived
        name = self.event_type.names[attribute]
        if operator is Operator.IN:
            return f"{name} in sets"
        return f"last {text} bytes of {name}" if isinstance(text, int) else f"{name} {operator} {text!r}"

    def show_set(self, column: int, number: int) -> str | None:
        """A set of a column, for people; None if the column has no set of that number."""
        key = self._set_keys.get((column, number))
        if key is None:
            return None
        constants = key[1]
        shown = ", ".join(map(repr, constants[:_SHOWN]))
        return f"({shown}{f' and {len(constants) - _SHOWN} more' if len(constants) > _SHOWN else ''})"

    def memory_bytes(self) -> int:
        size = self.strings.memory_bytes() + sum(ranks.memory_bytes() for ranks in self.ranks.values())
        size += sum(texts.memory_bytes() for texts in self.texts.values())
        return size + sum(table.memory_bytes() for table in self.members.values())

    # --- strings in bounds ------------------------------------------------------------------------

    def text_keys(self, column: int, past: bool, texts: str | pa.StringArray) -> int | Keys:
        """Keys of strings that bound tests of a column: ids, or the ranks, entered before, of the strings or,
        if `past`, of their prefix ends; NOTHING if there is no such end."""
        if not self.schema.is_of_ranks(column):
            strings = self.strings
            return strings.id_of(texts) if isinstance(texts, str) else strings.ids_of(texts)
        constants = bounding(texts, past)
        keys = self.ranks[column].labels(constants.fill_null(""))
        keys[constants.is_null().to_numpy(zero_copy_only=False)] = NOTHING
        return int(keys[0]) if isinstance(texts, str) else keys

    def enter_texts(self, column: int, past: bool, texts: str | pa.StringArray) -> Relabelling | None:
        """Enter strings, or if `past` their prefix ends, that bound tests of a column of ranks."""
        return self.ranks[column].enter(bounding(texts, past).fill_null(""))

    # --- events -----------------------------------------------------------------------------------

    def encode(self, batch: EventBatch) -> Keys:
        """The key matrix of a batch, int64[n_events, n_columns]; 0 in columns that nothing tests."""
        if batch.columns is not None:
            return self._encode_packed(batch.columns)
        keys = np.zeros((len(batch), len(self)), dtype=np.int64)
        records = batch.record_batch
        if len(batch):
            for number in self._tested:
                column, ranks = records.column(self.schema.attributes[number]), self.ranks.get(number)
                if ranks is None:
                    self._encode(column, number, self.schema.kinds[number], keys)
                else:
                    ranks.encode(column, number, keys)
            for attribute, table in self.members.items():
                table.encode(self.schema.columns[attribute], keys)
            for attribute, texts in self.texts.items():
                texts.encode(records.column(attribute), keys)
            for number, (attribute, length) in self.endings.items():
                self.strings.encode(records.column(attribute), number, keys, length)
        return keys

    def _encode_packed(self, events: PackedColumns) -> Keys:
        """As `encode`, for a few events: without Arrow except for tests within strings. Keys that do not
        depend on this engine are computed once for all engines."""
        ids, is_single, width = self.strings.ids, events.count == 1, len(self)
        is_single = is_single and width <= _NARROW
        row = [0] * width if is_single else []
        keys = None if is_single else np.zeros((events.count, width), dtype=np.int64)
        plain = self._plain
        if plain is None:
            attributes, kinds = self.schema.attributes, self.schema.kinds
            plain = self._plain = [
                (n, attributes[n], kinds[n] is Kind.STRING) for n in self._tested if n in kinds
            ]
        for number, attribute, is_string in plain:
            if not is_string:
                column = events.keys(attribute)
            elif is_single:
                text = events.columns[attribute][0]
                row[number] = MISSING if text is None else ids.get(text, 0)
                continue
            else:
                column = [MISSING if text is None else ids.get(text, 0) for text in events.columns[attribute]]
            if keys is None:
                row[number] = column[0]
            else:
                keys[:, number] = column
        if keys is None:
            keys = np.array([row], dtype=np.int64)
        if not (self.ranks or self.members or self.texts or self.endings):
            return keys
        for number, ranks in self.ranks.items():
            ranks.encode(events.strings(self.schema.attributes[number]), number, keys)
        for attribute, table in self.members.items():
            table.encode(self.schema.columns[attribute], keys)
        for attribute, texts in self.texts.items():
            texts.encode(events.strings(attribute), keys)
        for number, (attribute, length) in self.endings.items():
            self.strings.encode(events.strings(attribute), number, keys, length)
        return keys

    def _encode(self, column: pa.Array, number: int, kind: Kind, keys: Keys) -> None:
        if kind is Kind.STRING:
            self.strings.encode(column, number, keys)
            return
        if kind is Kind.STRINGS:
            keys[:, number] = np.where(column.is_null().to_numpy(zero_copy_only=False), MISSING, 0)
            return
        validity, data = column.buffers()
        valid = as_bytes(validity if column.null_count else None)
        if kind is Kind.BOOL:
            encode_bools(as_bytes(data), valid, column.offset, number, keys)
            return
        values = np.frombuffer(data, np.int64, column.offset + len(column))
        encode_values = encode_floats if kind is Kind.FLOAT64 else encode_integers
        encode_values(values, valid, column.offset, number, keys)


def bounding(texts: str | pa.StringArray, past: bool) -> pa.StringArray:
    """The strings, or if `past` their prefix ends: the least string above all with the prefix, or null."""
    if isinstance(texts, str):
        return pa.array([prefix_span(texts)[1] if past else texts], pa.string())
    if not past:
        return texts
    distinct = texts.dictionary_encode()
    ends = [prefix_span(text)[1] for text in distinct.dictionary.to_pylist()]
    return pa.array(ends, pa.string()).take(distinct.indices)
