"""Kernels: functions that Numba compiles once, with explicit signatures and a cache, and that release the
GIL.

Invariant: importing a kernel module compiles nothing and does not import Numba, which takes a second and 130
MB. `compile_kernels` (`compiling.py`), which engines call when they are created, compiles or loads a kernel;
a kernel never compiles a second signature. Cached code is used only while its sources are unchanged
(`cache.py`).

With COVEY_DEBUG_BOUNDS=1 in the environment, kernels check every index: `IndexError` for one outside the
array or below 0, which Numba would count from the end. Slices are cut to the array, and `prefetch` reads
nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")  # kernels are run by the interpreter


@dataclass(frozen=True, slots=True)
class Scalar:
    name: str


@dataclass(frozen=True, slots=True)
class Array:
    item: Scalar
    dimensions: int
    readonly: bool


@dataclass(frozen=True, slots=True)
class Record:
    fields: tuple[Array | Record, ...]
    of: type


boolean, float64 = Scalar("boolean"), Scalar("float64")
int32, int64 = Scalar("int32"), Scalar("int64")
uint8, uint16, uint32, uint64 = Scalar("uint8"), Scalar("uint16"), Scalar("uint32"), Scalar("uint64")


def array(item: Scalar, dimensions: int = 1) -> Array:
    return Array(item, dimensions, readonly=False)


def frozen(item: Scalar, dimensions: int = 1) -> Array:
    """The type of a C-contiguous array that a kernel only reads (Arrow's buffers are read-only)."""
    return Array(item, dimensions, readonly=True)


def record(fields: Sequence[Array | Record], of: type) -> Record:
    return Record(tuple(fields), of)


class Kernel:
    """A compiled function of one signature, for callers in Python.

    Numba resolves the types of the arguments at every call, which takes several microseconds for a tuple of
    arrays: longer than most kernels take for one event. A loaded kernel is called at its entry point instead,
    which trusts its arguments; tests enable `check_types`."""

    __slots__ = ("_call", "_compiled", "function", "is_loaded", "signature")

    def __init__(self, function: Callable[..., Any], signature: tuple[Scalar | Array | Record, ...]) -> None:
        self.function = function
        self.signature = signature
        self.is_loaded = False
        self._compiled: Any = None
        self._call: Callable[..., Any] = self._load_and_call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__name__}"

    @property
    def compiled(self) -> Any:
        """Numba's dispatcher. Imports Numba."""
        if self._compiled is None:
            self._compiled = _numba_compiler().dispatcher(self.function)
        return self._compiled

    def load(self) -> None:
        """Compile it, or load it from Numba's cache; afterwards it takes no other types."""
        entry_point = _numba_compiler().compile_signature(self.compiled, self.signature)
        self.use(self.compiled if _checked else entry_point)

    def use(self, entry_point: Callable[..., Any]) -> None:
        self._call = entry_point
        self.is_loaded = True

    def is_cached(self) -> bool:
        return bool(_numba_compiler().is_cached(self.compiled, self.signature))

    def _load_and_call(self, *arguments: Any) -> Any:
        if not self.is_loaded:
            self.load()
        return self._call(*arguments)


def _numba_compiler() -> Any:
    """Imports Numba, and this module."""
    return import_module("covey.matcher.jit.numba_compiler")


def entry_point(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The callable of a loaded kernel, for callers that call it for every single event."""
    return kernel._call if isinstance(kernel, Kernel) else kernel


registered: list[Kernel] = []  # all kernels; none if they are interpreted
helpers: list[Callable[..., Any]] = []  # functions that are compiled into kernels

_checked = False


def check_types() -> None:
    """From now on Numba checks the arguments of each call: `TypeError` for other types."""
    global _checked
    _checked = True
    for each in registered:
        if each.is_loaded:
            each.load()


def types_checked() -> bool:
    return _checked


def kernel(*signature: Scalar | Array | Record) -> Callable[[Callable[..., Any]], Any]:
    """Decorates a kernel; the arguments are the types of its parameters."""

    def decorate(function: Callable[..., Any]) -> Any:
        if INTERPRETED:
            return function
        registered.append(Kernel(function, signature))
        return registered[-1]

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Decorates a helper that only kernels call; it is compiled into each of them."""
    helpers.append(function)
    return function


def prefetch(values: Any, position: Any) -> None:
    """Prefetch the cache line of an element (Fabret et al. 2001, 2.2); for kernels only. Does nothing if
    interpreted."""


def trailing_zeros(word: Any) -> int:
    """The number of the lowest bit set in a uint64 that is not 0; for kernels only."""
    return (int(word) & -int(word)).bit_length() - 1


def load_word(data: Any, position: Any) -> Any:
    """Eight bytes of a uint8 array as an int64, at any alignment; for kernels only."""
    return data[position : position + 8].view(np.int64)[0]


def store_word(data: Any, position: Any, word: Any) -> None:
    """Write an int64 to eight bytes of a uint8 array, at any alignment; for kernels only."""
    data[position : position + 8] = np.array([word], dtype=np.int64).view(np.uint8)


# Hashes are products modulo 2**64: Numba compiles a product of signed integers for one that never overflows,
# and LLVM relies on that, so two kernels that inline the same hash could get different ones.

_MULTIPLIER = np.int64(-7046029254386353131)
_OTHER_MULTIPLIER = np.int64(-4417276706812531889)


@inlined
def product(a, b):  # type: ignore[no-untyped-def]
    """Modulo 2**64."""
    return np.int64(np.uint64(np.int64(a)) * np.uint64(np.int64(b)))


@inlined
def spread(key):  # type: ignore[no-untyped-def]
    """A number in which the upper bits depend on all bits of an int64."""
    return product(key, _MULTIPLIER)


@inlined
def first_hash(key):  # type: ignore[no-untyped-def]
    return product(key, _OTHER_MULTIPLIER)


@inlined
def mix(h, key):  # type: ignore[no-untyped-def]
    h = spread(h ^ key)
    return h ^ (h >> 32)
