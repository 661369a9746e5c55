"""The texts that filters look for in the strings of one attribute, all found in one walk of a string."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.encoding import encode_kernels as k
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.strings import string_buffers
from covey.matcher.expressions.operators import Operator

_SMALLEST = 64
_PLACES = {Operator.CONTAINS: k.CONTAINS, Operator.SUFFIX: k.SUFFIX}


class Texts:
    """Texts by operator, each with its column, in a trie (drawn in `encode_kernels.py`)."""

    def __init__(self) -> None:
        self._columns: dict[tuple[Operator, str], int] = {}
        self._bytes = 0
        """Of the texts put into the trie; a removal counts its text once more."""
        self._dropped = 0
        self._allocate(0)

    def __len__(self) -> int:
        return len(self._columns)

    def _allocate(self, size: int) -> None:
        places = max(_SMALLEST, 1 << (4 * size).bit_length())
        self._edges = np.full((places, 2), k.NONE, dtype=np.int64)
        self._nodes = np.full((places // 2 + 1, 2), k.NONE, dtype=np.int64)
        self._top, self._bytes, self._dropped = 1, 0, 0

    def enter(self, operator: Operator, text: str, column: int) -> None:
        self._columns[operator, text] = column
        if 2 * (self._bytes + len(text.encode())) > len(self._edges):
            self._rebuild()
        else:
            self._put(operator, text, column)

    def remove(self, operator: Operator, text: str) -> None:
        del self._columns[operator, text]
        self._put(operator, text, k.NONE)
        self._dropped += len(text.encode())
        if 3 * self._dropped > self._bytes and len(self._edges) > _SMALLEST:
            self._rebuild()

    def _put(self, operator: Operator, text: str, column: int) -> None:
        data = np.frombuffer(text.encode(), dtype=np.uint8)
        both = k.enter_text(data, self._top, self._edges, self._nodes)
        node, self._top = both >> 32, both & 0xFFFF_FFFF
        self._nodes[node, _PLACES[operator]] = column
        self._bytes += len(data)

    def _rebuild(self) -> None:
        self._allocate(sum(len(text.encode()) for _, text in self._columns))
        for (operator, text), column in self._columns.items():
            self._put(operator, text, column)

    def encode(self, column: pa.StringArray, keys: npt.NDArray[np.int64]) -> None:
        valid, offsets, data = string_buffers(column)
        columns: Keys = np.array(list(self._columns.values()), dtype=np.int64)
        k.encode_texts(offsets, data, valid, column.offset, self._edges, self._nodes, columns, keys)

    def memory_bytes(self) -> int:
        return self._edges.nbytes + self._nodes.nbytes
