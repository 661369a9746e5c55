"""Kernels: functions compiled by Numba once, with explicit signatures and an on-disk cache, that release
the GIL.

Invariant: importing a kernel module compiles nothing. A kernel is compiled, or loaded from the cache, by
`compile_kernels` (`compiling.py`), which engines call when they are created; it never compiles a second
signature. A cached kernel is used only while the source it was compiled from is unchanged: its own module
and those it imports helpers and constants from. The cache is the user's, not the checkout's: all checkouts
and installations with the same sources share it (`cache.py`).

With COVEY_DEBUG_BOUNDS=1 in the environment, kernels check every index: `IndexError` for one outside the
array or below 0, which Numba would count from the end. Slices are cut to the array in any case, and
`prefetch` reads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, njit, types
from numba.core import cgutils
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic
from numba.np import arrayobj

from covey.matcher.jit.cache import BOUNDS_CHECKED, cache_folder, source_stamp

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "boundscheck": BOUNDS_CHECKED,
}
"""Kernels allocate nothing, so they need no reference counts; without `_nrt` every access to a field of a
tuple of arrays counts references, with locked instructions: it made the counting engine half as fast, and the
scan a sixth.
"""


def _index_as_given(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:
    """Stands for Numba's `fix_integer_index`, which counts negative indices from the end."""
    return context.cast(builder, index, index_type, types.intp)


if BOUNDS_CHECKED:
    arrayobj.fix_integer_index = _index_as_given


class Kernel:
    """A compiled function of one signature, for callers in Python.

    Numba finds out the types of the arguments at every call, which takes several microseconds for a tuple of
    arrays: longer than what most kernels do for one event. Here they are known. Once loaded, a kernel is
    called at its entry point, which trusts its arguments; tests have `check_types` in force.
    """

    __slots__ = ("_call", "compiled", "signature")

    def __init__(self, compiled: Any, signature: tuple[Any, ...]) -> None:
        self.compiled = self._call = compiled
        self.signature = signature

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def load(self) -> None:
        """Compile it, or load it from the cache; from then on it takes no other types."""
        self.compiled.compile(self.signature)
        self.compiled.disable_compile()
        if not _checked:
            self._call = self.compiled.get_overload(self.signature)

    def is_loaded(self) -> bool:
        return bool(self.compiled.signatures)

    def is_cached(self) -> bool:
        """Whether `load` will find it in the on-disk cache."""
        cache = self.compiled._cache
        key = cache._index_key(self.signature, self.compiled.targetctx.codegen())
        try:
            return key in cache._cache_file._load_index()
        except OSError:
            return False

    def check(self) -> None:
        """Have Numba look at the arguments of each call: `TypeError` for those of other types."""
        self._call = self.compiled


def entry_point(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """What a loaded kernel is called at, for callers that call it for every single event."""
    return kernel._call if isinstance(kernel, Kernel) else kernel


lock = global_compiler_lock
"""Held while a kernel is loaded: Numba's own, for one thread at a time."""

registered: list[Kernel] = []
"""Every kernel; none where Numba is told not to compile (NUMBA_DISABLE_JIT)."""

_checked = False


def check_types() -> None:
    """From now on all kernels check the types of their arguments."""
    global _checked
    _checked = True
    for each in registered:
        each.check()


def kernel(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorates a kernel; the arguments are the Numba types of its parameters."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = _jitted(function)
        if config.DISABLE_JIT:  # type: ignore[attr-defined]
            return compiled
        registered.append(Kernel(compiled, signature))
        return registered[-1]

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Decorates a helper that only kernels call; it is compiled into each of them."""
    return _jitted(function, forceinline=True)


def _jitted(function: Callable[..., Any], **options: Any) -> Any:
    compiled = njit(**_OPTIONS, **options)(function)
    if not config.DISABLE_JIT:  # type: ignore[attr-defined]
        compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return compiled


class _SourceLocator(_CacheLocator):
    """Places a kernel by the sources it is compiled from.

    Numba's own locators place it by the path of its file and know the source of that one file, so that every
    checkout would compile anew, and a kernel would outlive the helpers compiled into it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._stamp = source_stamp(function.__module__)
        self._path = cache_folder(function.__module__)
        with suppress(OSError):
            os.utime(self._path)

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> _SourceLocator:
        return cls(function)


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = [_SourceLocator]  # type: ignore[list-item]  # noqa: RUF012


class _Cache(FunctionCache):
    """A cache that may be read-only, full or absent: then kernels are compiled and not stored."""

    _impl_class = _CacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with suppress(OSError):
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


@intrinsic
def _prefetch(context: Any, values: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        name = "llvm.prefetch.p0i8"
        function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(values, types.int64), generate


def _nothing(values: Any, position: Any) -> None:
    """Uncompiled code has no cache lines to fetch."""


prefetch: Any = _nothing if config.DISABLE_JIT else _prefetch  # type: ignore[attr-defined]
"""prefetch(values, position) asks for the cache line of an element, which will be read soon (Fabret et al.
2001, 2.2); for kernels only.
"""


@intrinsic
def _trailing_zeros(context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(True))

    return types.int64(types.uint64), generate


def _trailing_zeros_plainly(word: Any) -> int:
    return (int(word) & -int(word)).bit_length() - 1


trailing_zeros: Any = (
    _trailing_zeros_plainly if config.DISABLE_JIT else _trailing_zeros  # type: ignore[attr-defined]
)
"""trailing_zeros(word) is the number of the lowest bit set in a uint64 that is not 0; for kernels only."""


@intrinsic
def _load_word(context: Any, data: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_word_at(context, builder, signature, arguments), align=1)

    return types.int64(data, types.int64), generate


@intrinsic
def _store_word(context: Any, data: Any, position: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _word_at(context, builder, signature, arguments), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


def _word_at(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())


def _load_word_plainly(data: Any, position: Any) -> Any:
    return data[position : position + 8].view(np.int64)[0]


def _store_word_plainly(data: Any, position: Any, word: Any) -> None:
    data[position : position + 8] = np.array([word], dtype=np.int64).view(np.uint8)


load_word: Any = _load_word_plainly if config.DISABLE_JIT else _load_word  # type: ignore[attr-defined]
store_word: Any = _store_word_plainly if config.DISABLE_JIT else _store_word  # type: ignore[attr-defined]
"""load_word(data, position) reads eight bytes of a uint8 array as an int64, wherever they start, and
store_word(data, position, word) writes them; for kernels only.
"""


def frozen(dtype: Any, dimensions: int = 1) -> types.Array:
    """The Numba type of a C-contiguous array that a kernel only reads (Arrow's buffers are read-only)."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def array(dtype: Any, dimensions: int = 1) -> types.Array:
    """The Numba type of a C-contiguous array."""
    return types.Array(dtype, dimensions, "C")
