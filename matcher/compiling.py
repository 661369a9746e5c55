"""Compiling the kernels ahead of their first use, and knowing beforehand whether that will take its time.

Invariant: importing this costs nothing; Numba is imported when kernels are, so that programs that only
parse, publish and subscribe never load it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

KERNEL_MODULES = (
    "covey.matcher.encode_kernels",
    "covey.matcher.engines.id_kernels",
    "covey.matcher.engines.cluster_kernels",
    "covey.matcher.engines.cluster_match_kernels",
    "covey.matcher.region_kernels",
)

_compiled = 0


def compile_kernels(progress: Callable[[int, int], None] | None = None) -> None:
    """Compile all kernels, or load them from the cache: under a second when cached, else some 10 s, once.

    `progress(done, total)` is called before the first and after each. Later calls return at once.
    """
    global _compiled
    registered = _registered()
    total = len(registered)
    if _compiled == total and not progress:
        return
    while _compiled < total:
        if progress:
            progress(_compiled, total)
        compiled, signature = registered[_compiled]
        compiled.compile(signature)
        compiled.disable_compile()
        _compiled += 1
    if progress:
        progress(total, total)


def kernels_cached() -> bool:
    """Whether `compile_kernels` will find all of them in the on-disk cache (or has done its work already)."""
    return all(
        compiled.signatures or _is_cached(compiled, signature) for compiled, signature in _registered()
    )


def _registered() -> list[tuple[Any, tuple[Any, ...]]]:
    for module in KERNEL_MODULES:
        import_module(module)
    kernels: list[tuple[Any, tuple[Any, ...]]] = import_module("covey.matcher.kernel").registered
    return kernels


def _is_cached(compiled: Any, signature: tuple[Any, ...]) -> bool:
    cache = compiled._cache
    key = cache._index_key(signature, compiled.targetctx.codegen())
    return key in cache._cache_file._load_index()
