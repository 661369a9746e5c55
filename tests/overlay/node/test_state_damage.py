"""Flipped bits in a broker's state are found before it is served."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from covey.cli.stored import verify_directory
from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.storage import Arrival, StoredSubscription
from covey.overlay.node.state_store import TABLES, UNSYNCED_TRANSACTIONS, StateStore, crc_of, cut_transactions
from covey.overlay.storage.files import StorageError

T = EventType("T", {"x": "int64", "s": "string"})
SUBSCRIPTIONS = [
    StoredSubscription(number, parse("x >= $least and s == $name", T), {"least": number, "name": "IBM"}, 7)
    for number in (1, 2, 3)
]


def fill(store: StateStore) -> None:
    """Rows in every table."""
    for name in ("a", "b"):
        store.save_session(f"client/{name}", f"b1/{name}", SUBSCRIPTIONS)
    store.save({("client/a", "T"): 5, ("broker/b2", "T"): 77}, {"T": {"p": 9, "q": 10}}, {"T": 80})
    store.save_awaited(["client/x", "client/y"], [])
    store.hand_over("client/b", "b3", 4)
    store.save_arrival("client/a", Arrival("~1/client/a", {"T": 9}, "b4", 12))


def content(store: StateStore) -> object:
    moved = [store.moved_to(f"client/{name}") for name in ("a", "b")]
    return store.cursors(), store.watermarks("T"), store.sessions(), sorted(store.awaited()), moved


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a killed broker: a database, and transactions in its write-ahead log."""
    running, killed = tmp_path / "running", tmp_path / "killed"
    running.mkdir()
    killed.mkdir()
    with closing(StateStore(str(running / "state.sqlite"))) as store:
        fill(store)
        with closing(sqlite3.connect(running / "state.sqlite", isolation_level=None)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for offset in range(6, 12):
            store.save({("client/a", "T"): offset}, {}, {})
        for path in running.iterdir():
            (killed / path.name).write_bytes(path.read_bytes())
    return killed


def test_a_check_is_the_same_under_every_version_of_python() -> None:
    """In Python 3.11, unlike 3.12, `repr` escapes U+1FAE8."""
    escaped = r"('awaited', 'client/\xe9\U0001fae8')"
    assert crc_of("awaited", ("client/\xe9\U0001fae8",)) == crc32(escaped.encode())


def flipped_value(value: int | str | bytes) -> int | str | bytes:
    if isinstance(value, int):
        return value ^ 64
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 2)
    return value[:-1] + bytes([value[-1] ^ 2])


def flipped(directory: Path, name: str, place: int, bit: int, check: Callable[[Path], object]) -> None:
    """Call `check` with the state after each flip of a bit in a file."""
    copy = directory / "copy"
    copy.mkdir(exist_ok=True)
    for each in ("state.sqlite", "state.sqlite-wal", "state.sqlite-shm"):
        (copy / each).unlink(missing_ok=True)
        if each != "state.sqlite-shm":
            data = bytearray((directory / each).read_bytes())
            if each == name:
                data[place] ^= 1 << bit
            (copy / each).write_bytes(data)
    check(copy / "state.sqlite")


@pytest.mark.parametrize("table", TABLES)
def test_a_flipped_bit_in_a_row_of_any_table_is_told_and_not_served(directory: Path, table: str) -> None:
    path = directory / "state.sqlite"
    StateStore(str(path)).close()
    for column in TABLES[table]:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            before = database.execute(f"SELECT {column} FROM {table}").fetchone()[0]
            changed = flipped_value(before)
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (changed, before))
        with pytest.raises(StorageError, match="it is damaged") as raised:
            StateStore(str(path))
        assert raised.value.problem == "damaged"
        (report,) = verify_directory(directory)
        assert table in report.damage
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (before, changed))
        StateStore(str(path)).close()


def test_a_flipped_bit_anywhere_is_told_or_was_of_no_use(directory: Path) -> None:
    with closing(StateStore(str(directory / "state.sqlite"))) as store:
        sound = content(store)
    with closing(sqlite3.connect(directory / "state.sqlite", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    draw, refused = random.Random(3), 0

    def check(path: Path) -> None:
        nonlocal refused
        try:
            with closing(StateStore(str(path))) as store:
                assert content(store) == sound
        except StorageError:
            refused += 1
            assert not any(report.sound for report in verify_directory(path.parent))

    (directory / "state.sqlite-wal").write_bytes(b"")
    data = (directory / "state.sqlite").read_bytes()
    used = [place for place, byte in enumerate(data) if byte]
    for place in draw.sample(used, 200):
        flipped(directory, "state.sqlite", place, draw.randrange(8), check)
    assert refused > 60


def test_a_flipped_bit_in_the_write_ahead_log_is_told(directory: Path) -> None:
    data = (directory / "state.sqlite-wal").read_bytes()
    draw, refused, cut = random.Random(4), 0, 0

    def check(path: Path) -> None:
        nonlocal refused, cut
        lost = cut_transactions(Path(f"{path}-wal"))
        assert lost, "else SQLite goes on without them and nobody knows"
        reports = list(verify_directory(path.parent))
        try:
            with closing(StateStore(str(path))) as store:
                cut += 1
                assert store.cut == lost
                least = 11 - UNSYNCED_TRANSACTIONS
                assert store.cursors()["client/a", "T"] >= least, "what was synced long ago"
        except StorageError:
            refused += 1
            assert not reports[0].sound

    for _ in range(60):
        flipped(directory, "state.sqlite-wal", draw.randrange(len(data)), draw.randrange(8), check)
    assert refused > 20
    assert cut > 3


def test_a_torn_end_of_the_write_ahead_log_is_no_damage(directory: Path) -> None:
    wal = directory / "state.sqlite-wal"
    whole = wal.read_bytes()
    assert cut_transactions(wal) == 0
    for size in (0, 10, 32, len(whole) - 1, len(whole) - 4_000, len(whole) - 4_121):
        wal.write_bytes(whole[:size])
        assert cut_transactions(wal) <= 1
        if size > 32:
            (report,) = verify_directory(directory)
            assert report.sound
    with closing(StateStore(str(directory / "state.sqlite"))) as store:
        assert store.cursors()["client/a", "T"] in (9, 10)
        for offset in range(20, 25):
            store.save({("client/a", "T"): offset}, {}, {})
        assert cut_transactions(wal) == 0, "nothing of the torn frame is left behind the new ones"


def test_a_state_is_opened_while_another_process_reads_it(directory: Path) -> None:
    path = directory / "state.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as backup:
        backup.execute("BEGIN")
        assert backup.execute("SELECT count(*) FROM cursors").fetchone() == (2,)
        with closing(StateStore(str(path))) as store:
            store.save({("client/a", "T"): 20}, {}, {})
    with closing(StateStore(str(path))) as store:
        assert store.cut == 0
        assert store.cursors()["client/a", "T"] == 20
