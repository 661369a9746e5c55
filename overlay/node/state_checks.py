"""Finds damage in the state of a broker (`state_store.py`), so that a flipped bit is never served.

The values of a row have a CRC beside them, SQLite examines the pages around the rows, and the frames of its
write-ahead log (`-wal`) have checksums. SQLite takes that log to end before the first frame whose checksum is
wrong, and says nothing of transactions behind it: these are counted here.

A torn write looks the same as a flipped bit. `StateStore` has at most two transactions that are not synced,
one of new values and one after it; so where more are cut, some of them had been synced: that is damage. One
or two may be writes that nobody has confirmed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import iter_unpack, unpack_from
from zlib import crc32

TABLES: Mapping[str, tuple[str, ...]] = {
    "cursors": ("interface", "type", "next"),
    "watermarks": ("type", "publisher", "sequence", "offset"),
    "marked": ("type", "offset"),
    "sessions": ("interface", "identity"),
    "arrivals": ("interface", "receiver", "ends", "origin", "number"),
    "moved": ("interface", "broker", "number"),
    "awaited": ("interface",),
    "subscriptions": ("interface", "id", "type", "filter", "bindings", "ends_ns"),
}
"""By table the columns of which the column `crc` has the check."""
UNSYNCED_TRANSACTIONS = 2
CUT = "a bit has flipped in what was written last"
_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC, _WORD = 0x377F0682, 0xFFFFFFFF


def crc_of(table: str, row: Sequence[object]) -> int:
    """The check of a row: its values and their kinds, and the table in which it is. `ascii`, since what
    `repr` shows of a character depends on the Unicode of the Python that reads it.
    """
    return crc32(ascii((table, *row)).encode())


def with_crc(table: str, row: Sequence[object]) -> tuple[object, ...]:
    return (*row, crc_of(table, row))


def damage_of(database: sqlite3.Connection, *, rows: bool = True) -> str:
    """What is damaged in a state, in one phrase; "" if nothing is. States of earlier versions have no
    checks of `rows`. Reads all of it."""
    (said,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        return str(said).replace("\n", " ")
    for table, columns in TABLES.items() if rows else ():
        stored = database.execute(f"SELECT {', '.join(columns)}, crc FROM {table}")
        damaged = sum(row[-1] != crc_of(table, row[:-1]) for row in stored)
        if damaged:
            return f"rows of {table} that are not as they were written: {damaged:,}"
    return ""


def cut_transactions(wal: Path) -> int:
    """How many transactions at the end of a write-ahead log SQLite does not read, since a checksum in them or
    before them is wrong; one that was never finished counts as well. Reads all of it, some 20 MB/s.
    """
    data = wal.read_bytes() if wal.exists() else b""
    if len(data) <= _HEADER_BYTES:
        return 0
    magic, _, page_bytes, _, first_salt, second_salt = unpack_from(">6I", data)
    order = ">" if magic & 1 else "<"
    sums = _sums(order, data[:24], (0, 0))
    if magic & ~1 != _MAGIC or sums != unpack_from(">2I", data, 24):
        return UNSYNCED_TRANSACTIONS + 1  # a header is synced before the first frame is written
    frames = range(_HEADER_BYTES, len(data) - _FRAME_HEADER_BYTES + 1, _FRAME_HEADER_BYTES + page_bytes)
    torn, commits = False, 0
    for start in frames:
        _, committed, *salts = unpack_from(">4I", data, start)
        if not torn:
            page = start + _FRAME_HEADER_BYTES
            sums = _sums(order, data[start : start + 8] + data[page : page + page_bytes], sums)
            whole = page + page_bytes <= len(data) and salts == [first_salt, second_salt]
            if whole and sums == unpack_from(">2I", data, start + 16):
                continue
        if salts[0] == first_salt or salts[1] == second_salt:  # else it is left over from an earlier log
            torn = True
            commits += committed > 0
        elif not torn:
            return 0
    return max(int(torn), commits)


def _sums(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's checksum of a write-ahead log, continued."""
    first, second = sums
    for one, other in iter_unpack(order + "2I", data[: len(data) & ~7]):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
