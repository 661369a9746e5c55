"""Compiling the kernels ahead of their first use, and whether to use them yet.

A process that may block (the simulator, a script) compiles or loads the kernels on its first match, or before
by `compile_kernels`. A process with an event loop sets a loader (`load_in_background`): until the kernels are
loaded, `kernels_usable` is false and filters are evaluated without them. Invariant: importing this costs
nothing, and Numba is imported only if kernels have no image (`image.py`): programs that only parse, publish
and subscribe never load it, nor do programs whose kernels are cached."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import RLock

from covey.matcher.jit.cache import cache_writable, have_folders, prune_cache
from covey.matcher.jit.image import image_path, images_supported, load_image
from covey.matcher.jit.kernel import Kernel, registered, types_checked

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
    "covey.matcher.engines.reference.store_kernels",
    "covey.matcher.engines.trees.tree_kernels",
)

_compiled = 0
_ready = False
_loader: Callable[[], None] | None = None
_lock = RLock()  # held while a kernel is loaded


def compile_kernels(progress: Callable[[int, int], None] | None = None) -> None:
    """Compile all kernels, or load them from the cache: some milliseconds if their image is cached, a second
    if Numba has to load them, else about a minute, once.

    `progress(done, total)` is called before the first and after each; if it raises, the call ends. Later
    calls return at once."""
    global _compiled, _ready
    registered = _registered()
    total = len(registered)
    if _compiled < total and not kernels_cached():
        prune_cache()
    with _lock:
        image_missing = images_supported() and not _ready and not _use_image()
    while _compiled < total:
        if progress:
            progress(_compiled, total)
        with _lock:
            if _compiled < total:  # else another thread has loaded it
                if not registered[_compiled].is_loaded:
                    registered[_compiled].load()
                _compiled += 1
    with _lock:
        if image_missing and cache_writable():
            _make_image()
    _ready = True
    if progress:
        progress(total, total)


def kernels_cached() -> bool:
    """Whether `compile_kernels` will find all kernels in the cache on disk, or has loaded them already.
    Imports Numba only if kernels have no image, and the cache is not empty."""
    if _ready and _compiled == len(_registered()):
        return True
    kernels = _registered()
    if images_supported() and image_path(KERNEL_MODULES).exists():
        kernels = [each for each in kernels if not _in_image(each)]
    elif images_supported() and cache_writable():
        return False
    return have_folders(KERNEL_MODULES) and all(each.is_loaded or each.is_cached() for each in kernels)


def kernels_usable() -> bool:
    """False only while a background loader, which the first call starts, is at work."""
    if _ready or _loader is None:
        return True
    _loader()
    return False


def load_in_background(loader: Callable[[], None] | None) -> None:
    """Set the loader of the kernels of this process: a function that returns at once, also when called again.
    None for the default, to load them at their first use."""
    global _loader
    _loader = loader


def _registered() -> list[Kernel]:
    for module in KERNEL_MODULES:
        import_module(module)
    return registered


def _in_image(kernel: Kernel) -> bool:
    return kernel.function.__module__ in KERNEL_MODULES


def _use_image() -> bool:
    """Load the kernels of the image, unless types are checked; returns whether there is an image."""
    path = image_path(KERNEL_MODULES)
    if types_checked():
        return path.exists()
    functions = load_image(path)
    for each in registered:
        if each.name in functions:
            each.use(functions[each.name])
    return bool(functions)


def _make_image() -> None:
    """Link the image for later processes, an empty one if Numba's code cannot be linked."""
    from covey.matcher.jit.linking import LinkError, link
    from covey.matcher.jit.numba_compiler import object_code

    codes = {each.name: object_code(each.compiled, each.signature) for each in registered if _in_image(each)}
    try:
        image = link({name: code for name, code in codes.items() if code})
    except LinkError:
        image = link({})
    with suppress(OSError):
        image.save(image_path(KERNEL_MODULES))
