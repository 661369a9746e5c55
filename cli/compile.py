"""`covey compile`: the matching kernels, compiled before anything needs them."""

from __future__ import annotations


def compile_ahead() -> None:
    """Compile the matching kernels into the cache of this user, which all later starts share.

    Brokers and clients do this in the background, and evaluate filters without kernels until then. The cache
    is ~/.cache/covey/kernels, or in the directory that NUMBA_CACHE_DIR names.

    Example: covey compile
    """
    from covey.cli.support.output import compile_once
    from covey.matcher.errors import CoveyError
    from covey.matcher.jit.cache import cache_directory, cache_writable

    if not cache_writable():
        raise CoveyError(f"the kernel cache {cache_directory()} is not writable: set NUMBA_CACHE_DIR")
    compile_once()
    print(f"the kernels are in {cache_directory()}")
