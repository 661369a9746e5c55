"""Compiling the kernels ahead of their first use, and knowing beforehand whether that will take its time.

Invariant: importing this costs nothing; Numba is imported when kernels are, so that programs that only
parse, publish and subscribe never load it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.matcher.jit.kernel import Kernel

KERNEL_MODULES = (
    "covey.matcher.encoding.encode_kernels",
    "covey.matcher.compile.bound_kernels",
    "covey.matcher.engines.rows.id_kernels",
    "covey.matcher.engines.cluster.row_bounds_kernels",
    "covey.matcher.engines.cluster.sample_kernels",
    "covey.matcher.engines.cluster.placing_kernels",
    "covey.matcher.engines.cluster.match_kernels",
    "covey.matcher.engines.cluster.tuning.schema_kernels",
    "covey.matcher.covering.region_kernels",
)

_compiled = 0


def compile_kernels(progress: Callable[[int, int], None] | None = None) -> None:
    """Compile all kernels, or load them from the cache: under a second when cached, else a minute or
    two, once.

    `progress(done, total)` is called before the first and after each. Later calls return at once.
    """
    global _compiled
    registered = _registered()
    total = len(registered)
    if _compiled == total and not progress:
        return
    if not kernels_cached():
        import_module("covey.matcher.jit.kernel").prune_cache()
    while _compiled < total:
        if progress:
            progress(_compiled, total)
        registered[_compiled].load()
        _compiled += 1
    if progress:
        progress(total, total)


def kernels_cached() -> bool:
    """Whether `compile_kernels` will find all of them in the on-disk cache (or has done its work already)."""
    return all(kernel.is_loaded() or kernel.is_cached() for kernel in _registered())


def _registered() -> list[Kernel]:
    for module in KERNEL_MODULES:
        import_module(module)
    kernels: list[Kernel] = import_module("covey.matcher.jit.kernel").registered
    return kernels
