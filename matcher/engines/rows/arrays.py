"""Growing arrays, runs of reusable places in them, and the memory of Python objects."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from enum import Enum
from sys import getsizeof
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import EventType

Numbers = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]  # by row, in one or two columns (`row_kernels`)

SPARE = 128  # trimming leaves one part in this many as room
_Kind = TypeVar("_Kind", bound=np.generic)


MOST = 2**31 - 1  # places of arrays and row numbers are stored in 32 bits


def check_count(count: int, things: str) -> None:
    """`CoveyError` where `count` exceeds `MOST`."""
    if count > MOST:
        raise CoveyError(f"{count:,} {things}: expected at most {MOST:,} in one engine")


class Runs:
    """Allocates runs of consecutive numbers, many of one length at a time; freed runs are reused."""

    def __init__(self, things: str) -> None:
        self.top = 0
        self._things = things
        self._free: dict[int, _Stack] = {}

    def top_after(self, count: int, length: int) -> int:
        """One above the highest number after such an `allocate`; `CoveyError` where it exceeds 32 bits."""
        free = self._free.get(length)
        top = self.top + max(count - (free.count if free else 0), 0) * length
        check_count(top, self._things)
        return top

    def allocate(self, count: int, length: int) -> Numbers:
        """The first number of each of `count` runs; `CoveyError` as `top_after`."""
        top = self.top_after(count, length)
        free = self._free.get(length)
        reused = free.pop(count) if free else np.zeros(0, dtype=np.int64)
        if top == self.top:
            return reused
        fresh = np.arange(self.top, top, length, dtype=np.int64)
        self.top = top
        return np.concatenate([reused, fresh]) if len(reused) else fresh

    def free(self, firsts: Numbers, length: int) -> None:
        if length:
            self._free.setdefault(length, _Stack()).push(firsts)

    @property
    def nbytes(self) -> int:
        """Bytes of the free lists."""
        return sum(stack.nbytes for stack in self._free.values())


class _Stack:
    """Numbers of 31 bits, in one array: removing subscriptions one by one leaves millions."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers = np.zeros(64, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        return self._numbers.nbytes

    def push(self, numbers: Numbers) -> None:
        start, self.count = self.count, self.count + len(numbers)
        if self.count > len(self._numbers):
            self._numbers = grown(self._numbers, max(self.count, 2 * start))
        self._numbers[start : self.count] = numbers

    def pop(self, most: int) -> Numbers:
        """Up to `most` of the last numbers, in the order in which they were pushed."""
        end, self.count = self.count, max(self.count - most, 0)
        numbers = self._numbers[self.count : end].astype(np.int64)
        if 4 * self.count + 64 < len(self._numbers):
            self._numbers = grown(self._numbers, 2 * self.count + 64)
        return numbers


def grown(old: npt.NDArray[_Kind], size: int, fill: int = 0) -> npt.NDArray[_Kind]:
    """A copy with `size` lines: truncated, or extended with `fill`."""
    new = (np.empty if fill else np.zeros)((size, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old[:size]
    if fill:
        new[len(old) :] = fill
    return new


def wide(ids: Ids) -> Ids:
    """The same ids in two columns."""
    return np.concatenate([ids, ids >> 31], axis=1)


def resized(array: npt.NDArray[_Kind], size: int) -> npt.NDArray[_Kind]:
    """Resize in place; no view may be in use. Large arrays are remapped, not copied, where possible."""
    array.resize((size, *array.shape[1:]), refcheck=False)
    return array


def positions_by_value(numbers: npt.NDArray[np.integer]) -> list[Numbers]:
    """The positions of each distinct number, by ascending numbers."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, Enum, EventType, pa.DataType)
"""What engines refer to and do not own."""


def object_bytes(objects: Iterable[object]) -> int:
    """Bytes of these objects and all that they refer to, without arrays' data; about 1 us per object."""
    total, waiting = 0, list(objects)
    seen = {id(each) for each in waiting}
    while waiting:
        each = waiting.pop()
        total += getsizeof(each)
        if isinstance(each, np.ndarray):
            total -= each.nbytes if each.base is None else 0
            continue
        for other in gc.get_referents(each):
            if id(other) not in seen and not isinstance(other, _SHARED):
                seen.add(id(other))
                waiting.append(other)
    return total
