"""The machine code of all kernels in one file, loaded without Numba and LLVM, which take 130 MB.

An image is position-independent but for 64-bit addresses at known places, which are written when it is
loaded; then the memory is made executable. A kernel in it is called as by Numba: through the function of
CPython's calling convention that Numba has compiled for it. Invariant: an image is used only for the sources,
versions and processor for which it was linked. Without one, or on other systems than Linux on x86-64, Numba
loads the kernels."""

from __future__ import annotations

import builtins
import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from covey.matcher.jit.cache import BOUNDS_CHECKED, cache_directory, source_stamp

_HELPERS = "_helperlib"  # Numba's functions in C that machine code calls
_UNUSABLE = (OSError, EOFError, LookupError, TypeError, ValueError, BadZipFile)
"""Exceptions from loading a damaged image; a checksum covers each of its arrays."""
_METH_VARARGS, _METH_KEYWORDS = 1, 2
_loaded: list[Any] = []  # memory of images, and objects to which C code has pointers


@dataclass(frozen=True, slots=True)
class Image:
    """Machine code, and the addresses to write into it: at `inner_places` addresses of `inner_targets` in the
    image, at `outer_places` addresses of `symbols` by number. Python calls `kernels` at `entries`."""

    code: npt.NDArray[np.uint8]
    inner_places: npt.NDArray[np.int64]
    inner_targets: npt.NDArray[np.int64]
    outer_places: npt.NDArray[np.int64]
    outer_symbols: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.str_]
    kernels: npt.NDArray[np.str_]
    entries: npt.NDArray[np.int64]

    def save(self, path: Path) -> None:
        """`OSError` if that fails; other processes see the whole file or none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{os.getpid()}.npz")
        np.savez(partial, **asdict(self))
        partial.replace(path)

    def load(self) -> dict[str, Callable[..., Any]]:
        """The kernels by name. `OSError` without executable memory, `LookupError` for a missing symbol."""
        memory = mmap.mmap(-1, len(self.code))
        code = np.frombuffer(memory, np.uint8)
        code[:] = self.code
        base = code.ctypes.data
        addresses = np.array([_address(str(symbol)) for symbol in self.symbols], dtype=np.int64)
        _write(code, self.inner_places, base + self.inner_targets)
        _write(code, self.outer_places, addresses[self.outer_symbols])
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        if protect(ctypes.c_void_p(base), ctypes.c_size_t(len(memory)), mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "memory cannot be made executable")
        _loaded.append(memory)
        places = zip(self.kernels, self.entries, strict=True)
        return {str(name): _function(str(name), base + int(entry)) for name, entry in places}


def images_supported() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64" and not BOUNDS_CHECKED


def image_path(modules: Iterable[str]) -> Path:
    stamps = [source_stamp(module) for module in (*modules, "covey.matcher.jit.linking")]
    digest = sha256(" ".join([*stamps, sys.implementation.cache_tag, np.__version__, _processor()]).encode())
    return cache_directory() / digest.hexdigest()[:20] / "image.npz"


def load_image(path: Path) -> dict[str, Callable[..., Any]]:
    """The kernels of an image by name; none if it cannot be loaded."""
    with suppress(OSError):
        os.utime(path.parent)
    with suppress(*_UNUSABLE), np.load(path, allow_pickle=False) as arrays:
        return Image(**arrays).load()
    return {}


@cache
def _processor() -> str:
    """Numba's target: this processor, unless the environment names another."""
    named = [os.environ.get(f"NUMBA_CPU_{what}", "") for what in ("NAME", "FEATURES")]
    first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    lines = [line for line in first.splitlines() if line.startswith(("model name", "flags"))]
    return "\n".join([*named, *lines])


def _write(code: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> None:
    code[places[:, None] + np.arange(8)] = values.astype("<i8").view(np.uint8).reshape(-1, 8)


def _address(symbol: str) -> int:
    if symbol.startswith("numba_"):
        return int(_numba_helpers()[symbol.removeprefix("numba_")])
    if symbol.startswith("PyExc_"):  # Numba means the class, C the pointer to it
        return id(getattr(builtins, symbol.removeprefix("PyExc_")))
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, symbol))
    except ValueError:
        raise LookupError(symbol) from None


@cache
def _numba_helpers() -> dict[str, int]:
    package = find_spec("numba")
    folders = (package and package.submodule_search_locations) or []
    paths = [Path(folder) / (_HELPERS + suffix) for folder in folders for suffix in EXTENSION_SUFFIXES]
    path = next(path for path in paths if path.exists())
    spec = spec_from_loader(_HELPERS, ExtensionFileLoader(_HELPERS, str(path)))
    assert spec is not None
    module = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    _loaded.append(module)
    helpers: dict[str, int] = module.c_helpers
    return helpers


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    ]  # fmt: skip


def _function(name: str, address: int) -> Callable[..., Any]:
    method = _Method(name.encode(), address, _METH_VARARGS | _METH_KEYWORDS, None)
    _loaded.append(method)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Method), ctypes.py_object, ctypes.py_object)
    function: Callable[..., Any] = make(("PyCFunction_NewEx", ctypes.pythonapi))(method, None, name)
    return function
