"""Numba's part of kernels: options, types, the cache, and functions for which Numba has none."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import intrinsic, overload
from numba.np import arrayobj

from covey.matcher.jit.cache import BOUNDS_CHECKED, cache_folder, source_stamp
from covey.matcher.jit.kernel import (
    Array,
    Record,
    Scalar,
    helpers,
    load_word,
    prefetch,
    store_word,
    trailing_zeros,
)

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "boundscheck": BOUNDS_CHECKED,
}
"""Kernels allocate nothing, so they need no reference counts, which made the counting engine half as fast and
the scan a sixth: every access to a field of a tuple of arrays counts, with locked instructions."""
_known_helpers = 0


def _index_as_given(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:
    """Replaces Numba's `fix_integer_index`, which counts negative indices from the end."""
    return context.cast(builder, index, index_type, types.intp)


if BOUNDS_CHECKED:
    arrayobj.fix_integer_index = _index_as_given


def dispatcher(function: Callable[..., Any]) -> Any:
    compiled = njit(**_OPTIONS)(function)
    compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return compiled


def compile_signature(compiled: Any, signature: tuple[Any, ...]) -> Callable[..., Any]:
    """The entry point of a kernel, compiled or loaded from the cache. It then takes no other types."""
    numba_types = tuple(_numba_type(each) for each in signature)
    if not compiled.signatures:
        _register_helpers()
        compiled.compile(numba_types)
        compiled.disable_compile()
    entry_point: Callable[..., Any] = compiled.get_overload(numba_types)
    return entry_point


def is_cached(compiled: Any, signature: tuple[Any, ...]) -> bool:
    try:
        return _key(compiled, signature) in compiled._cache._cache_file._load_index()
    except OSError:
        return False


def object_code(compiled: Any, signature: tuple[Any, ...]) -> tuple[bytes, str] | None:
    """The object file of a cached kernel, and its symbol that Python calls; None without one, or if it needs
    constants that are Python objects."""
    with suppress(OSError):
        cached = compiled._cache._cache_file.load(_key(compiled, signature))
        if cached is not None:
            (_, kind, content), description, environment, *_ = cached
            if kind == "object" and not environment.consts:
                return content[0], description.llvm_cpython_wrapper_name
    return None


def _key(compiled: Any, signature: tuple[Any, ...]) -> Any:
    numba_types = tuple(_numba_type(each) for each in signature)
    return compiled._cache._index_key(numba_types, compiled.targetctx.codegen())


def _numba_type(of: Any) -> Any:
    match of:
        case Scalar(name):
            return getattr(types, name)
        case Array(item, dimensions, readonly):
            return types.Array(_numba_type(item), dimensions, "C", readonly=readonly)
        case Record(fields, named_tuple):
            return types.BaseTuple.from_types(  # type: ignore[no-untyped-call]
                [_numba_type(each) for each in fields], named_tuple
            )
    return of


def _register_helpers() -> None:
    global _known_helpers
    for function in helpers[_known_helpers:]:
        _implement(function, function)
    _known_helpers = len(helpers)


class _SourceLocator(_CacheLocator):
    """Places a kernel by the sources from which it is compiled. Numba's own locators place it by its file's
    path and hash only that file, so every checkout would compile anew, and a kernel would outlive the helpers
    compiled into it."""

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


@intrinsic
def _trailing_zeros(context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(True))

    return types.int64(types.uint64), generate


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


def _implement(function: Callable[..., Any], implementation: Callable[..., Any]) -> None:
    options: Any = {**_OPTIONS, "forceinline": True}
    overload(function, jit_options=options, strict=False)(lambda *arguments: implementation)


_implement(prefetch, lambda values, position: _prefetch(values, position))  # type: ignore[call-arg]
_implement(trailing_zeros, lambda word: _trailing_zeros(word))  # type: ignore[call-arg]
_implement(load_word, lambda data, position: _load_word(data, position))  # type: ignore[call-arg]
_implement(store_word, lambda data, position, word: _store_word(data, position, word))  # type: ignore[call-arg]
