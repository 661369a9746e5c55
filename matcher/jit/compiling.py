"""Compiling the kernels ahead of their first use, and whether to use them yet.

A process that blocks on its first match (the simulator, a script) compiles or loads the kernels then, or
before by `compile_kernels`. A process with an event loop sets a loader (`load_in_background`): until that has
loaded them, `kernels_usable` is false and filters are evaluated without kernels.

Invariant: importing this costs nothing; Numba is imported when kernels are, so that programs that only
parse, publish and subscribe never load it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from covey.matcher.jit.cache import have_folders, prune_cache

if TYPE_CHECKING:
    from covey.matcher.jit.kernel import Kernel

KERNEL_MODULES = (
    "covey.matcher.jit.sort_kernels",
    "covey.matcher.encoding.encode_kernels",
    "covey.matcher.compile.bound_kernels",
    "covey.matcher.engines.rows.row_kernels",
    "covey.matcher.engines.cluster.row_bounds_kernels",
    "covey.matcher.engines.cluster.sample_kernels",
    "covey.matcher.engines.cluster.placing_kernels",
    "covey.matcher.engines.cluster.leaves.search_kernels",
    "covey.matcher.engines.cluster.match_kernels",
    "covey.matcher.engines.cluster.tuning.schema_kernels",
    "covey.matcher.covering.region_kernels",
    # of the engine of trees
    "covey.matcher.engines.reference.answer_kernels",
    "covey.matcher.engines.trees.tree_kernels",
)

_compiled = 0
_ready = False
_loader: Callable[[], None] | None = None


def compile_kernels(progress: Callable[[int, int], None] | None = None) -> None:
    """Compile all kernels, or load them from the cache: about a second when cached, else about a minute,
    once.

    `progress(done, total)` is called before the first and after each; an exception that it raises ends the
    call. Later calls return at once.
    """
    global _compiled, _ready
    registered = _registered()
    total = len(registered)
    if _compiled < total and not kernels_cached():
        prune_cache()
    while _compiled < total:
        if progress:
            progress(_compiled, total)
        with import_module("covey.matcher.jit.kernel").lock:
            if _compiled < total:  # else another thread has loaded it
                registered[_compiled].load()
                _compiled += 1
    _ready = True
    if progress:
        progress(total, total)


def kernels_cached() -> bool:
    """Whether `compile_kernels` will find all of them in the on-disk cache (or has done its work already).

    Imports Numba only if there is something in the cache.
    """
    if "covey.matcher.jit.kernel" not in sys.modules and not have_folders(KERNEL_MODULES):
        return False
    return all(kernel.is_loaded() or kernel.is_cached() for kernel in _registered())


def kernels_usable() -> bool:
    """Whether to match by kernels now. False only while a background loader is at work, which the first call
    starts.
    """
    if _ready or _loader is None:
        return True
    _loader()
    return False


def load_in_background(loader: Callable[[], None] | None) -> None:
    """Set what loads the kernels of this process: a function that returns at once, and at once again when it
    has been called before. None for the default, to load them when they are first used.
    """
    global _loader
    _loader = loader


def _registered() -> list[Kernel]:
    for module in KERNEL_MODULES:
        import_module(module)
    kernels: list[Kernel] = import_module("covey.matcher.jit.kernel").registered
    return kernels
