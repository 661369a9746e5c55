"""The dictionary of string constants: a string id for every string that some filter names.

Invariant: equal strings have one id, from 1 up; an event's string has the id of the equal constant, else 0,
so events never grow the dictionary. The id of a constant that no filter names any more is harmless; `collect`
frees such ids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.encoding.encode_kernels import encode_strings, enter_string
from covey.matcher.encoding.keys import Keys

_EMPTY = np.zeros(0, dtype=np.uint8)


def as_bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """A buffer as an array, empty for None and for a buffer without bytes."""
    return np.frombuffer(buffer, dtype=np.uint8) if buffer is not None and buffer.size else _EMPTY


def string_buffers(
    column: pa.StringArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The validity bitmap (empty if all are valid), the offsets, and the text."""
    valid, offsets, text = column.buffers()
    starts = (
        np.zeros(1, np.int32) if offsets is None or not offsets.size else np.frombuffer(offsets, np.int32)
    )
    return as_bytes(valid if column.null_count else None), starts, as_bytes(text)


WHOLE = -1  # in place of a number of bytes: the whole string
_SMALLEST = 64
FEWEST_COLLECTED = 1024  # no more constants are worth dropping, whether in use or not


class StringIds:
    """Ids of constants, in a dict and, for kernels, in a table (drawn in `encode_kernels.py`)."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}  # by constant
        self._names: list[str | None] = [None]
        self._free: list[int] = []
        self._table = np.zeros(_SMALLEST, dtype=np.int32)
        self._spans = np.zeros((_SMALLEST, 2), dtype=np.int64)
        self._heap = np.zeros(16 * _SMALLEST, dtype=np.uint8)
        self._heap_end = 0
        self.collect_at = FEWEST_COLLECTED  # the limit from which on freeing unused ids is worthwhile

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def limit(self) -> int:
        """One more than the highest id."""
        return len(self._names)

    def id_of(self, text: str) -> int:
        """The id of a constant; a new constant gets a new id."""
        string_id = self.ids.get(text)
        if string_id is None:
            string_id = self._free.pop() if self._free else len(self._names)
            if string_id == len(self._names):
                self._names.append(text)
            else:
                self._names[string_id] = text
            self.ids[text] = string_id
            self._enter(text, string_id)
        return string_id

    def ids_of(self, texts: pa.StringArray) -> Keys:
        """The ids of constants, none of them null; one step of Python per distinct one."""
        encoded = texts.dictionary_encode()
        ids = np.array([self.id_of(text) for text in encoded.dictionary.to_pylist()], dtype=np.int64)
        return ids[encoded.indices.to_numpy()] if len(texts) else np.zeros(0, dtype=np.int64)

    def name(self, string_id: int) -> str | None:
        return self._names[string_id] if 0 < string_id < len(self._names) else None

    def encode(
        self, column: pa.StringArray, number: int, keys: npt.NDArray[np.int64], last: int = WHOLE
    ) -> None:
        """Write the keys of a string column, or of the `last` bytes of its strings, into column `number` of
        the matrix."""
        valid, offsets, data = string_buffers(column)
        encode_strings(
            offsets, data, valid, column.offset, last, number, self._table, self._spans, self._heap, keys
        )

    def collect(self, live: npt.NDArray[np.bool_]) -> None:
        """Free all ids that are not `live` (bool[limit]) and rebuild the table; linear in the ids."""
        for string_id in (np.flatnonzero(~live[1:]) + 1).tolist():
            text = self._names[string_id]
            if text is not None:
                del self.ids[text]
                self._names[string_id] = None
        while len(self._names) > 1 and self._names[-1] is None:
            self._names.pop()
        self._free = [number for number, name in enumerate(self._names) if number and name is None]
        size = max(_SMALLEST, len(self._names))
        self._spans = np.zeros((size, 2), dtype=np.int64)
        self._heap = np.zeros(max(16 * _SMALLEST, sum(len(text.encode()) for text in self.ids)), np.uint8)
        self._table = np.zeros(_size_for(len(self.ids)), dtype=np.int32)
        self._heap_end = 0
        for text, string_id in self.ids.items():
            self._place(text.encode(), string_id)
        self.collect_at = max(FEWEST_COLLECTED, self.limit + 1, 2 * len(self.ids))

    def memory_bytes(self) -> int:
        return self._table.nbytes + self._spans.nbytes + self._heap.nbytes

    def _enter(self, text: str, string_id: int) -> None:
        if 2 * len(self.ids) > len(self._table):
            old, self._table = self._table, np.zeros(2 * len(self._table), dtype=np.int32)
            for entered in old[old != 0].tolist():
                start, length = self._spans[entered]
                enter_string(self._heap, start, start + length, entered, self._table, self._spans, self._heap)
        self._place(text.encode(), string_id)

    def _place(self, data: bytes, string_id: int) -> None:
        end = self._heap_end + len(data)
        if end > len(self._heap):
            self._heap = np.concatenate(
                [self._heap, np.zeros(max(len(self._heap), len(data)), dtype=np.uint8)]
            )
        if string_id >= len(self._spans):
            self._spans = np.concatenate([self._spans, np.zeros_like(self._spans)])
        self._heap[self._heap_end : end] = np.frombuffer(data, dtype=np.uint8)
        self._spans[string_id] = (self._heap_end, len(data))
        enter_string(self._heap, self._heap_end, end, string_id, self._table, self._spans, self._heap)
        self._heap_end = end


def _size_for(count: int) -> int:
    return max(_SMALLEST, 1 << (2 * count).bit_length())
