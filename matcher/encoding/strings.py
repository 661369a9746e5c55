"""The dictionary of string constants: a code for every string that some filter names.

Invariant: equal strings have one code, from 1 up; an event's string has the code of the constant it
equals, else 0, so events never grow the dictionary. Codes of constants that no filter names any more are
harmless (an event that has one matches nothing by it); `collect` takes them back, given the codes still
in use.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.encoding.encode_kernels import encode_strings, enter_string
from covey.matcher.encoding.keys import Keys

_SMALLEST = 64


class StringCodes:
    """Codes of constants, for people in a dict, for kernels in a table (drawn in `encode_kernels`)."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: list[str | None] = [None]
        self._free: list[int] = []
        self._table = np.zeros(_SMALLEST, dtype=np.int32)
        self._spans = np.zeros((_SMALLEST, 2), dtype=np.int64)
        self._heap = np.zeros(16 * _SMALLEST, dtype=np.uint8)
        self._heap_end = 0

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def limit(self) -> int:
        """One more than the highest code given out."""
        return len(self._names)

    def code(self, text: str) -> int:
        """The code of a constant, a new one if it is new."""
        found = self._codes.get(text)
        if found is None:
            found = self._free.pop() if self._free else len(self._names)
            if found == len(self._names):
                self._names.append(text)
            else:
                self._names[found] = text
            self._codes[text] = found
            self._enter(text, found)
        return found

    def codes(self, texts: pa.StringArray) -> Keys:
        """The codes of many constants, none of them null; costs one step of Python per distinct one."""
        encoded = texts.dictionary_encode()
        codes = np.array([self.code(text) for text in encoded.dictionary.to_pylist()], dtype=np.int64)
        return codes[encoded.indices.to_numpy()] if len(texts) else np.zeros(0, dtype=np.int64)

    def name(self, code: int) -> str | None:
        """The constant of a code; None for that of all other strings."""
        return self._names[code] if 0 < code < len(self._names) else None

    def encode(self, column: pa.StringArray, number: int, keys: npt.NDArray[np.int64]) -> None:
        """Write the keys of a batch's string column into column `number` of the key matrix."""
        valid, offsets, data = column.buffers()
        if offsets is None or offsets.size == 0:
            return
        encode_strings(
            np.frombuffer(offsets, dtype=np.int32),
            as_bytes(data),
            as_bytes(valid if column.null_count else None),
            column.offset,
            number,
            self._table,
            self._spans,
            self._heap,
            keys,
        )

    def collect(self, live: npt.NDArray[np.bool_]) -> None:
        """Take back all codes that are not `live` (bool[limit]) and rebuild the table: linear in the
        codes given out.
        """
        for code in (np.flatnonzero(~live[1:]) + 1).tolist():
            text = self._names[code]
            if text is not None:
                del self._codes[text]
                self._names[code] = None
                self._free.append(code)
        self._table = np.zeros(_size_for(len(self._codes)), dtype=np.int32)
        self._heap_end = 0
        for text, code in self._codes.items():
            self._place(text.encode(), code)

    def memory_bytes(self) -> int:
        """What the kernel's side takes; Python's own strings come on top."""
        return self._table.nbytes + self._spans.nbytes + self._heap.nbytes

    def _enter(self, text: str, code: int) -> None:
        if 2 * len(self._codes) > len(self._table):
            old, self._table = self._table, np.zeros(2 * len(self._table), dtype=np.int32)
            for entered in old[old != 0].tolist():
                start, length = self._spans[entered]
                enter_string(self._heap, start, start + length, entered, self._table, self._spans, self._heap)
        self._place(text.encode(), code)

    def _place(self, data: bytes, code: int) -> None:
        end = self._heap_end + len(data)
        if end > len(self._heap):
            self._heap = np.concatenate(
                [self._heap, np.zeros(max(len(self._heap), len(data)), dtype=np.uint8)]
            )
        if code >= len(self._spans):
            self._spans = np.concatenate([self._spans, np.zeros_like(self._spans)])
        self._heap[self._heap_end : end] = np.frombuffer(data, dtype=np.uint8)
        self._spans[code] = (self._heap_end, len(data))
        enter_string(self._heap, self._heap_end, end, code, self._table, self._spans, self._heap)
        self._heap_end = end


def as_bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """A buffer of Arrow's as an array; None, and a buffer of no bytes, as an empty one."""
    return np.frombuffer(buffer, dtype=np.uint8) if buffer is not None and buffer.size else _EMPTY


_EMPTY = np.zeros(0, dtype=np.uint8)


def _size_for(count: int) -> int:
    return max(_SMALLEST, 1 << (2 * count).bit_length())
