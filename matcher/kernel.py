"""Kernels: functions compiled by Numba once, with explicit signatures and an on-disk cache, that release
the GIL.

Invariant: importing a kernel module compiles nothing. A kernel is compiled, or loaded from the cache, by
`compile_kernels`, which engines call when they are created; it never compiles a second signature (DESIGN
section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from numba import config, njit, types

KERNEL_MODULES = (
    "covey.matcher.encode_kernels",
    "covey.matcher.engines.id_kernels",
    "covey.matcher.engines.cluster_kernels",
)

_registered: list[tuple[Any, tuple[Any, ...]]] = []
_compiled = 0


def kernel(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorates a kernel; the arguments are the Numba types of its parameters."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = njit(cache=True, nogil=True, error_model="numpy")(function)
        if not config.DISABLE_JIT:
            _registered.append((compiled, signature))
        return compiled

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Decorates a helper that only kernels call; it is compiled into each of them."""
    return njit(cache=True, nogil=True, error_model="numpy", inline="never")(function)


def frozen(dtype: Any, dimensions: int = 1) -> types.Array:
    """The Numba type of a C-contiguous array that a kernel only reads (Arrow's buffers are read-only)."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def array(dtype: Any, dimensions: int = 1) -> types.Array:
    """The Numba type of a C-contiguous array."""
    return types.Array(dtype, dimensions, "C")


def compile_kernels(progress: Callable[[int, int], None] | None = None) -> None:
    """Compiles all kernels, or loads them from the cache: under a second when cached, else about 20 s, once.

    `progress(done, total)` is called before the first and after each. Later calls return at once.
    """
    global _compiled
    if _compiled and _compiled == len(_registered):
        return
    _import_all()
    total = len(_registered)
    while _compiled < total:
        if progress:
            progress(_compiled, total)
        compiled, signature = _registered[_compiled]
        compiled.compile(signature)
        compiled.disable_compile()
        _compiled += 1
    if progress:
        progress(total, total)


def kernels_cached() -> bool:
    """Whether `compile_kernels` will find all of them in the on-disk cache (or has done its work already)."""
    _import_all()
    return all(compiled.signatures or _is_cached(compiled, signature) for compiled, signature in _registered)


def _import_all() -> None:
    for module in KERNEL_MODULES:
        import_module(module)


def _is_cached(compiled: Any, signature: tuple[Any, ...]) -> bool:
    cache = compiled._cache
    key = cache._index_key(signature, compiled.targetctx.codegen())
    return key in cache._cache_file._load_index()
