"""Where compiled kernels are cached, by the state of their sources; without Numba, whose import takes a
second.

The cache directory has a folder `kernels/<hash>` for each state of a module's sources."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile

BOUNDS_CHECKED = os.environ.get("COVEY_DEBUG_BOUNDS", "0") not in ("", "0")
"""Whether kernels check the bounds of every access; such kernels have folders of their own."""
_MOST_FOLDERS = 500  # about 25 modules have kernels or helpers, each a folder for every state of its sources
_MATCHER = Path(__file__).parents[1]
_COMPILER = "covey.matcher.jit.numba_compiler"  # compiles all kernel modules, which do not import it


@cache
def cache_directory() -> Path:
    """The directory of compiled kernels: in NUMBA_CACHE_DIR, else in the user's cache directory."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or _user_cache()) / "kernels"


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path("~/Library/Caches/covey").expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "covey" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "covey"


@cache
def cache_writable() -> bool:
    """Whether the cache directory is writable; if not, each process compiles what the cache lacks."""
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True


def prune_cache() -> None:
    """Remove the kernels of old sources: all folders but the `_MOST_FOLDERS` last used."""
    folders = []
    for folder in cache_directory().glob("*/"):
        with suppress(OSError):  # another process may remove it at the same time
            folders.append((folder.stat().st_mtime_ns, folder))
    for _, folder in sorted(folders, reverse=True)[_MOST_FOLDERS:]:
        rmtree(folder, ignore_errors=True)


def have_folders(modules: Iterable[str]) -> bool:
    """Whether some kernels of every module are cached, perhaps for another processor; takes 0.1 s."""
    return all(cache_folder(module).is_dir() for module in modules)


def cache_folder(module: str) -> Path:
    """The folder of the kernels of a module with its present sources."""
    return cache_directory() / source_stamp(module)[:20]


@cache
def source_stamp(module: str) -> str:
    """A hash of Numba's version, `BOUNDS_CHECKED`, and the sources of a module, its imports and the compiler.
    """
    package = module.partition(".")[0] + "."
    sources: dict[str, bytes] = {}
    unread = [module, _COMPILER]
    while unread:
        name = unread.pop()
        file = _file_of(name)
        if name in sources or file is None:
            continue
        sources[name], imports = _read(file)
        unread += [each for each in imports if each.startswith(package)]
    digest = sha256(f"{version('numba')} {BOUNDS_CHECKED}".encode())
    for name in sorted(sources):
        digest.update(sources[name])
    return digest.hexdigest()


@cache
def _read(file: Path) -> tuple[bytes, list[str]]:
    source = file.read_bytes()
    imports = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            imports += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return source, imports


def _file_of(name: str) -> Path | None:
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is not None:
        return Path(loaded)
    if not name.startswith("covey.matcher."):
        return None
    path = _MATCHER.joinpath(*name.split(".")[2:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
