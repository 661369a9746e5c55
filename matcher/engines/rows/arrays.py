"""Arrays that grow, runs of places in them that are taken and given back, and the memory of Python
objects.
"""

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
Ids = npt.NDArray[np.int32]
"""Ids by row, in one or two columns (`row_kernels`)."""

SPARE = 128
"""Trimming an array leaves one part in this many as room."""
_Kind = TypeVar("_Kind", bound=np.generic)


MOST = 2**31 - 1
"""Places of arrays, and numbers of rows, are stored in 32 bits."""


def check_count(count: int, things: str) -> None:
    """`CoveyError` where more things are needed than 32 bits number."""
    if count > MOST:
        raise CoveyError(f"{count:,} {things}: expected at most {MOST:,} in one engine")


class Runs:
    """Numbers of `things` in runs of equal length, allocated and freed many at a time."""

    def __init__(self, things: str) -> None:
        self.top = 0
        self._things = things
        self._free: dict[int, _Stack] = {}

    def top_after(self, count: int, length: int) -> int:
        """One more than the highest number once `count` runs of `length` numbers are allocated; `CoveyError`
        where that needs more than 32 bits.
        """
        free = self._free.get(length)
        top = self.top + max(count - (free.count if free else 0), 0) * length
        check_count(top, self._things)
        return top

    def allocate(self, count: int, length: int) -> Numbers:
        """The first numbers of `count` runs of `length` numbers; `CoveyError` as `top_after`."""
        top = self.top_after(count, length)
        free = self._free.get(length)
        reused = free.pop(count) if free else np.zeros(0, dtype=np.int64)
        if top == self.top:
            return reused
        fresh = np.arange(self.top, top, length, dtype=np.int64)
        self.top = top
        return np.concatenate([reused, fresh]) if len(reused) else fresh

    def free(self, firsts: Numbers, length: int) -> None:
        """Free runs of `length` numbers."""
        if length:
            self._free.setdefault(length, _Stack()).push(firsts)

    @property
    def nbytes(self) -> int:
        """The bytes of the lists of free runs."""
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
        """Up to so many of the last ones, in the order in which they came."""
        end, self.count = self.count, max(self.count - most, 0)
        numbers = self._numbers[self.count : end].astype(np.int64)
        if 4 * self.count + 64 < len(self._numbers):
            self._numbers = grown(self._numbers, 2 * self.count + 64)
        return numbers


def grown(old: npt.NDArray[_Kind], size: int, fill: int = 0) -> npt.NDArray[_Kind]:
    """A copy with `size` lines: new ones are filled, those over `size` cut off."""
    new = (np.empty if fill else np.zeros)((size, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old[:size]
    if fill:
        new[len(old) :] = fill
    return new


def wide(ids: Ids) -> Ids:
    """The same ids in two columns."""
    return np.concatenate([ids, ids >> 31], axis=1)


def resized(array: npt.NDArray[_Kind], size: int) -> npt.NDArray[_Kind]:
    """The same array with `size` lines; no view of it may be in use. The pages of a large one are mapped to
    other addresses rather than copied, where the system can do that.
    """
    array.resize((size, *array.shape[1:]), refcheck=False)
    return array


def positions_by_value(numbers: npt.NDArray[np.integer]) -> list[Numbers]:
    """The positions of each number, by ascending numbers."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, Enum, EventType, pa.DataType)
"""What engines refer to and do not own."""


def object_bytes(objects: Iterable[object]) -> int:
    """The bytes of these objects and of all that they refer to, without the data of arrays; about a
    microsecond per object.
    """
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
