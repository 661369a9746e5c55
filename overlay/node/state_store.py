"""A broker's cursors, watermarks and durable sessions, in SQLite.

Each call is one transaction, on disk when it returns, except new values of subscriptions, which wait for
`sync` in the thread that syncs the logs. That thread has no connection, since its writes would have to be
ordered with the event loop's. Cursors and watermarks never exceed what is synced in the logs.

A damaged state is not opened: rows have a CRC, SQLite checks pages, and frames of the write-ahead log
(`-wal`) have checksums. SQLite silently ends that log at the first wrong one, so transactions behind it are
counted here. At most `UNSYNCED_TRANSACTIONS` may be torn: one of new values and one after it. More means that
synced ones were damaged.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from struct import iter_unpack, unpack_from
from zlib import crc32

from covey.matcher.filters.filter import Filter, parse
from covey.overlay.core.endpoint.storage import (
    Arrival,
    StoredSession,
    StoredSubscription,
    SubscriptionChanges,
)
from covey.overlay.core.messages import Interface
from covey.overlay.core.watermarks import WATERMARKS
from covey.overlay.storage.files import StorageError, check_linked, storage_error, sync_file
from covey.overlay.transport.codec import decode_values, encode_values
from covey.overlay.transport.wire_values import decode_event_type, encode_event_type

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
"""By table, the columns that `crc` covers."""
UNSYNCED_TRANSACTIONS = 2
CUT = "a bit has flipped in what was written last"
_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC, _WORD = 0x377F0682, 0xFFFFFFFF
VERSION = 4
MOVED_SESSIONS = 10_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS cursors (
    interface TEXT, type TEXT, next INTEGER NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (interface, type)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS watermarks (
    type TEXT, publisher TEXT, sequence INTEGER NOT NULL, offset INTEGER NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY (type, publisher)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marked (
    type TEXT PRIMARY KEY, offset INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    interface TEXT PRIMARY KEY, identity TEXT NOT NULL DEFAULT '', crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS arrivals (
    interface TEXT PRIMARY KEY, receiver TEXT NOT NULL, ends TEXT NOT NULL, origin TEXT NOT NULL,
    number INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS moved (
    place INTEGER PRIMARY KEY, interface TEXT UNIQUE, broker TEXT NOT NULL, number INTEGER NOT NULL,
    crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS awaited (interface TEXT PRIMARY KEY, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (
    interface TEXT, id INTEGER, type BLOB NOT NULL, filter TEXT NOT NULL, bindings BLOB NOT NULL,
    ends_ns INTEGER NOT NULL DEFAULT 0, crc INTEGER NOT NULL,
    PRIMARY KEY (interface, id)) WITHOUT ROWID;
"""
_BUSY_MS = 5_000
_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's codes for a damaged database; `SQLITE_ERROR` is for a damaged name of a table or column."""
_SUBSCRIPTION = "SELECT * FROM subscriptions WHERE interface = ? AND id = ?"
_FORGET_COPIES = "DELETE FROM cursors WHERE interface IN (SELECT receiver FROM arrivals WHERE interface = ?)"


_Statement = tuple[str, Iterable[Sequence[object]]]


def crc_of(table: str, row: Sequence[object]) -> int:
    """Of values, their kinds and the table. `ascii`, since `repr` depends on Python's version of Unicode."""
    return crc32(ascii((table, *row)).encode())


def with_crc(table: str, row: Sequence[object]) -> tuple[object, ...]:
    return (*row, crc_of(table, row))


def damage_of(database: sqlite3.Connection) -> str:
    """What is damaged, in one phrase, or "". Reads everything."""
    (said,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        return str(said).replace("\n", " ")
    for table, columns in TABLES.items():
        stored = database.execute(f"SELECT {', '.join(columns)}, crc FROM {table}")
        damaged = sum(row[-1] != crc_of(table, row[:-1]) for row in stored)
        if damaged:
            return f"rows of {table} that are not as they were written: {damaged:,}"
    return ""


def cut_transactions(wal: Path) -> int:
    """How many transactions at the end of a write-ahead log SQLite drops for a wrong checksum. Some 20
    MB/s."""
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
    first, second = sums
    for one, other in iter_unpack(order + "2I", data[: len(data) & ~7]):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second


class StateStore:
    """`path` may be ":memory:". `StorageError` if the database cannot be used, or is damaged."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._log: int | None = None
        """The descriptor of the write-ahead log."""
        self._written = self._synced = 0
        """The number of transactions not synced at once, and how many of them are on disk."""
        self.cut = cut_transactions(Path(path + "-wal"))
        """Transactions that a torn write or damage has cut off; possibly never confirmed."""
        if self.cut > UNSYNCED_TRANSACTIONS:  # SQLite would go on without them
            raise self._damaged(CUT)
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            try:
                self._prepare()
                damage = damage_of(self._db)
                if damage:
                    raise self._damaged(damage)
                self._db.execute(f"PRAGMA user_version = {VERSION}")  # fails where it cannot be written
                # What an earlier process has written may be in memory alone, before torn frames.
                self._db.execute("PRAGMA busy_timeout = 0")  # a backup may read; it is not waited for
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            except BaseException:
                self._db.close()
                raise
            self.sync()
        except UnicodeDecodeError:  # of SQLite's own sentence
            raise self._damaged("no text where its tables are described") from None
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) in _DAMAGE:
                raise self._damaged(str(error)) from None
            raise self._error(error) from None

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version != VERSION and (version or tables):
            sentence = f"it has version {version}: expected a state of version {VERSION}, or no file"
            raise StorageError("version", self._path, sentence)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if version != VERSION:
            with self._db:
                for statement in ("BEGIN IMMEDIATE", *_SCHEMA.split(";"), f"PRAGMA user_version = {VERSION}"):
                    self._db.execute(statement)

    def _damaged(self, damage: str) -> StorageError:
        said = f"it is damaged ({damage}): expected what was written; docs/durability.md says how to go on"
        return StorageError("damaged", self._path, said)

    def _error(self, error: sqlite3.Error) -> StorageError:
        return StorageError("input/output", self._path, f"{error}: expected a database that can be written")

    def _write(self, statements: Iterable[_Statement], *, synced: bool = True) -> None:
        try:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for statement, rows in statements:
                    self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._error(error) from None
        self._written += not synced
        if synced:
            self._synced = self._written

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
        self._db.close()

    # --- syncing --------------------------------------------------------------------------------------------

    @property
    def written(self) -> int:
        return self._written

    @property
    def unsynced(self) -> bool:
        return self._synced < self._written

    def sync(self) -> None:
        """Make earlier writes durable. May be called in another thread."""
        if self._path == ":memory:":
            return
        try:
            if self._log is None:
                self._log = os.open(self._path + "-wal", os.O_RDWR | os.O_CLOEXEC)
            sync_file(self._log)
            check_linked(self._log, self._path + "-wal")
        except OSError as error:
            raise storage_error(self._path, error) from None

    def synced(self, written: int) -> None:
        """To be called after a `sync` with `written` from its beginning."""
        self._synced = max(self._synced, written)

    # --- cursors and watermarks -----------------------------------------------------------------------------

    def cursors(self) -> dict[tuple[Interface, str], int]:
        rows = self._db.execute("SELECT interface, type, next FROM cursors")
        return {(interface, name): offset for interface, name, offset in rows}

    def watermarks(self, type_name: str) -> tuple[dict[str, int], int]:
        """The highest sequence number by publisher in records below an offset, and that offset."""
        marks = self._db.execute(
            "SELECT publisher, sequence FROM watermarks WHERE type = ? ORDER BY offset", (type_name,)
        )
        offset = self._db.execute("SELECT offset FROM marked WHERE type = ?", (type_name,)).fetchone()
        return dict(marks), 0 if offset is None else offset[0]

    def save(
        self,
        cursors: Mapping[tuple[Interface, str], int],
        watermarks: Mapping[str, Mapping[str, int]],
        offsets: Mapping[str, int],
    ) -> None:
        """`watermarks` are the changed ones, by type, as of `offsets`."""
        changed = [
            (name, publisher, sequence, offsets[name])
            for name, marks in watermarks.items()
            for publisher, sequence in marks.items()
        ]
        kept = _put("cursors", ((*key, offset) for key, offset in cursors.items()))
        self._write([kept, _put("watermarks", changed), _put("marked", offsets.items())])

    def prune(self, type_name: str) -> None:
        """Keep the watermarks of publishers with the latest events."""
        statement = (
            "DELETE FROM watermarks WHERE type = ? AND publisher IN (SELECT publisher FROM watermarks"
            " WHERE type = ? ORDER BY offset DESC LIMIT -1 OFFSET ?)"
        )
        self._write([(statement, [(type_name, type_name, WATERMARKS)])])

    # --- sessions -------------------------------------------------------------------------------------------

    def sessions(self) -> dict[Interface, StoredSession]:
        subscriptions: dict[Interface, list[StoredSubscription]] = {}
        rows = self._db.execute(
            "SELECT interface, id, type, filter, bindings, ends_ns FROM subscriptions ORDER BY id"
        )
        filters: dict[tuple[bytes, str], Filter] = {}
        for interface, number, event_type, text, bindings, ends_ns in rows:
            filter = filters.get((event_type, text))
            if filter is None:
                filter = parse(text, decode_event_type(event_type), unknown_operators=True)
                filters[event_type, text] = filter
            stored = StoredSubscription(number, filter, decode_values(bindings), ends_ns)
            subscriptions.setdefault(interface, []).append(stored)
        arrivals = {
            interface: Arrival(receiver, json.loads(ends), origin, number)
            for interface, receiver, ends, origin, number in self._db.execute(
                "SELECT interface, receiver, ends, origin, number FROM arrivals"
            )
        }
        return {
            interface: StoredSession(identity, subscriptions.get(interface, []), arrivals.get(interface))
            for interface, identity in self._db.execute("SELECT interface, identity FROM sessions")
        }

    def awaited(self) -> list[Interface]:
        return [interface for (interface,) in self._db.execute("SELECT interface FROM awaited")]

    def save_awaited(self, added: Iterable[Interface], removed: Iterable[Interface]) -> None:
        self._write([_put("awaited", ((each,) for each in added)), _delete("awaited", removed)])

    def save_session(
        self,
        interface: Interface,
        identity: str,
        subscriptions: Iterable[StoredSubscription],
        arrival: Arrival | None = None,
    ) -> None:
        present = list(subscriptions)
        stored = self._db.execute("SELECT id FROM subscriptions WHERE interface = ?", (interface,))
        absent = {number for (number,) in stored} - {each.subscription_id for each in present}
        known = self._db.execute("SELECT identity FROM sessions WHERE interface = ?", (interface,))
        if arrival is None and known.fetchone() == (identity,):
            self.save_subscriptions({interface: (present, sorted(absent))})
            return
        statements = [
            _put("sessions", [(interface, identity)]),
            _delete("moved", [interface]),
            _delete("subscriptions", [interface]),
            _put("subscriptions", (_row(interface, each) for each in present)),
        ]
        if arrival is not None:
            statements.append(_put_arrival(interface, arrival))
        self._write(statements)

    def save_subscriptions(
        self, changes: Mapping[Interface, SubscriptionChanges], *, synced: bool = True
    ) -> None:
        """By stored session: new or changed ones, and ids of removed ones. Unless `synced`, durable after the
        next `sync`."""
        rows, removed = list[tuple[object, ...]](), list[tuple[object, ...]]()
        for interface, (present, absent) in changes.items():
            for row in (_row(interface, each) for each in present):
                stored = self._db.execute(_SUBSCRIPTION, row[:2]).fetchone()
                if stored != with_crc("subscriptions", row):
                    rows.append(row)
            for key in ((interface, each) for each in absent):
                if self._db.execute(_SUBSCRIPTION, key).fetchone() is not None:
                    removed.append(key)
        if rows or removed:
            delete = "DELETE FROM subscriptions WHERE interface = ? AND id = ?"
            self._write([_put("subscriptions", rows), (delete, removed)], synced=synced)
        elif synced and self.unsynced:
            written = self._written
            self.sync()
            self.synced(written)

    def forget_sessions(self, interfaces: Iterable[Interface]) -> None:
        self._write(_forgetting(tuple(interfaces)))

    def hand_over(self, interface: Interface, moved_to: str, number: int) -> None:
        insert = "INSERT INTO moved (interface, broker, number, crc) VALUES (?, ?, ?, ?)"
        oldest = "DELETE FROM moved WHERE place <= (SELECT max(place) FROM moved) - ?"
        moved = with_crc("moved", (interface, moved_to, number))
        self._write([*_forgetting([interface]), (insert, [moved]), (oldest, [(MOVED_SESSIONS,)])])

    def save_arrival(self, interface: Interface, arrival: Arrival | None) -> None:
        """An arrival is None once all that the session brought was delivered."""
        if arrival is None:
            self._write([(_FORGET_COPIES, [(interface,)]), _delete("arrivals", [interface])])
        else:
            self._write([_put_arrival(interface, arrival)])

    def copies_of(self, interface: Interface) -> Interface:
        """The receiver of what a session brought from another broker; "" for none."""
        rows = self._db.execute("SELECT receiver FROM arrivals WHERE interface = ?", (interface,))
        row = rows.fetchone()
        return "" if row is None else str(row[0])

    def moved_to(self, interface: Interface) -> tuple[str, int]:
        """The broker to which a session was handed over, and the attempt; "" for none."""
        rows = self._db.execute("SELECT broker, number, crc FROM moved WHERE interface = ?", (interface,))
        row = rows.fetchone()
        if row is not None and row[2] != crc_of("moved", (interface, *row[:2])):
            raise self._damaged("rows of moved that are not as they were written: 1")
        return ("", 0) if row is None else (row[0], row[1])


def _put(table: str, rows: Iterable[Sequence[object]]) -> _Statement:
    marks = ", ".join("?" * (len(TABLES[table]) + 1))
    return f"REPLACE INTO {table} VALUES ({marks})", [with_crc(table, row) for row in rows]


def _put_arrival(interface: Interface, arrival: Arrival) -> _Statement:
    ends = json.dumps(dict(arrival.ends))
    return _put("arrivals", [(interface, arrival.receiver, ends, arrival.origin, arrival.number)])


def _delete(table: str, interfaces: Iterable[Interface]) -> _Statement:
    return f"DELETE FROM {table} WHERE interface = ?", [(each,) for each in interfaces]


def _forgetting(interfaces: Sequence[Interface]) -> list[_Statement]:
    tables = ("sessions", "subscriptions", "cursors", "arrivals", "moved")
    copies = _FORGET_COPIES, [(each,) for each in interfaces]
    return [copies, *(_delete(table, interfaces) for table in tables)]


def _row(interface: Interface, each: StoredSubscription) -> tuple[object, ...]:
    event_type, values = encode_event_type(each.filter.event_type), encode_values(each.values)
    return interface, each.subscription_id, event_type, str(each.filter), values, each.ends_ns
