"""Links the object files of kernels into one image, which `image.py` loads without a linker.

Numba compiles for the large code model, so the only relocations on x86-64 are 64-bit addresses: of an object
file's own sections, of functions of Python, C and Numba, and of Numba's environments, which must exist, but
which kernels without Python constants do not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from covey.matcher.jit.image import Image

_MAGIC, _X86_64 = b"\x7fELF\x02\x01", 62
_HEADER = np.dtype([("magic", "S6"), ("", "V12"), ("machine", "<u2"), ("", "V20"), ("sections", "<u8"),
                    ("", "V12"), ("count", "<u2"), ("names", "<u2")])  # fmt: skip
_SECTION = np.dtype([("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"),
                     ("offset", "<u8"), ("size", "<u8"), ("link", "<u4"), ("info", "<u4"),
                     ("alignment", "<u8"), ("entry", "<u8")])  # fmt: skip
_SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
                    ("size", "<u8")])  # fmt: skip
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SYMBOLS, _RELOCATIONS, _IN_MEMORY, _R_X86_64_64 = 2, 4, 2, 1
_UNDEFINED, _FIRST_RESERVED, _COMMON = 0, 0xFF00, (0xFFF2, 0xFF02)
_ALIGNMENT = 64
_ENVIRONMENT_BYTES = 256  # more than an environment of Numba has


_Record = dict[str, Any]


class LinkError(Exception):
    """An object file has something that no image can have."""


def link(kernels: Mapping[str, tuple[bytes, str]]) -> Image:
    """The image of kernels by name, each an object file and the symbol that Python calls."""
    linker = _Linker()
    entries = {name: linker.add(content, symbol) for name, (content, symbol) in kernels.items()}
    return linker.image(entries)


class _Linker:
    def __init__(self) -> None:
        # An environment and a pointer to it begin the image.
        self._code = bytearray(_ENVIRONMENT_BYTES + _ALIGNMENT)
        self._inner: list[tuple[int, int]] = [(_ENVIRONMENT_BYTES, 0)]
        self._outer: list[tuple[int, int]] = []
        self._names: dict[str, int] = {}

    def add(self, content: bytes, entry: str) -> int:
        """Add an object file; returns the place of a symbol in the image."""
        (header,) = _records(content, _HEADER, 1, 0)
        if header["magic"] != _MAGIC or header["machine"] != _X86_64:
            raise LinkError("no object file of x86-64")
        sections = _records(content, _SECTION, header["count"], header["sections"])
        section_names = sections[header["names"]]
        places: dict[int, int] = {}
        for number, section in enumerate(sections):
            name = _text(content, section_names, section["name"])
            if section["flags"] & _IN_MEMORY and name != ".eh_frame":
                self._code += bytes(-len(self._code) % _ALIGNMENT)
                places[number] = len(self._code)
                self._code += content[section["offset"] :][: section["size"]]
        (table,) = (section for section in sections if section["type"] == _SYMBOLS)
        symbols = _entries(content, table, _SYMBOL)
        symbol_names = [_text(content, sections[table["link"]], symbol["name"]) for symbol in symbols]
        for section in sections:
            if section["type"] == _RELOCATIONS and section["info"] in places:
                for relocation in _entries(content, section, _RELOCATION):
                    if relocation["type"] != _R_X86_64_64:
                        raise LinkError(f"a relocation of type {relocation['type']}")
                    number, addend = relocation["symbol"], relocation["addend"]
                    at = places[section["info"]] + relocation["offset"]
                    self._relocate(at, symbols[number], symbol_names[number], addend, places)
        number = symbol_names.index(entry)
        place: int = places[symbols[number]["section"]] + symbols[number]["value"]
        return place

    def image(self, entries: Mapping[str, int]) -> Image:
        inner, outer = np.array(self._inner).T, np.array(self._outer, dtype=np.int64).reshape(-1, 2).T
        return Image(
            code=np.frombuffer(bytes(self._code), np.uint8),
            inner_places=inner[0],
            inner_targets=inner[1],
            outer_places=outer[0],
            outer_symbols=outer[1],
            symbols=np.array(list(self._names), dtype=np.str_),
            kernels=np.array(list(entries), dtype=np.str_),
            entries=np.array(list(entries.values()), dtype=np.int64),
        )

    def _relocate(self, at: int, symbol: _Record, name: str, addend: int, places: dict[int, int]) -> None:
        section = symbol["section"]
        if section == _UNDEFINED and not addend:
            self._outer.append((at, self._names.setdefault(name, len(self._names))))
        elif section in _COMMON and name.startswith("_ZN08NumbaEnv") and not addend:
            self._inner.append((at, _ENVIRONMENT_BYTES))
        elif section < _FIRST_RESERVED and section in places:
            self._inner.append((at, places[section] + symbol["value"] + addend))
        else:
            raise LinkError(f"a relocation to {name!r} in section {section}")


def _records(content: bytes, kind: np.dtype[np.void], count: int, offset: int) -> list[_Record]:
    """With integers of Python: those of NumPy before 2.0 have no `&` for a uint64 and a constant."""
    rows = np.frombuffer(content, kind, count, offset).tolist()
    return [dict(zip(kind.names or (), row, strict=True)) for row in rows]


def _entries(content: bytes, section: _Record, kind: np.dtype[np.void]) -> list[_Record]:
    return _records(content, kind, section["size"] // kind.itemsize, section["offset"])


def _text(content: bytes, table: _Record, at: int) -> str:
    start: int = table["offset"] + at
    return content[start : content.index(b"\0", start)].decode()
