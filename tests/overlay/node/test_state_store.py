"""A broker's state in SQLite: writes, syncs, and refused files."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.storage import StoredSubscription
from covey.overlay.node.state_store import VERSION, StateStore
from covey.overlay.storage.files import StorageError

T = EventType("T", {"x": "int64", "s": "string"})
FIRST = StoredSubscription(1, parse("x >= $least and s == $name", T), {"least": 3, "name": "a"})
SECOND = StoredSubscription(2, parse("x < 5", T), {}, ends_ns=7)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    with closing(StateStore(str(tmp_path / "state.sqlite"))) as store:
        yield store


@pytest.fixture
def changes(state: StateStore, tmp_path: Path) -> Iterator[Callable[[], list[int]]]:
    """The subscriptions whose rows another connection has seen change, by number."""
    with closing(sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)) as database:
        database.execute("CREATE TABLE changes (id INTEGER)")
        for change, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")):
            database.execute(
                f"CREATE TRIGGER after_{change} AFTER {change} ON subscriptions "
                f"BEGIN INSERT INTO changes VALUES ({row}.id); END"
            )
        yield lambda: [number for (number,) in database.execute("SELECT id FROM changes ORDER BY id")]


def test_rows_that_have_not_changed_are_not_written(
    state: StateStore, changes: Callable[[], list[int]]
) -> None:
    state.save_session("client/c", "b1/1", [FIRST, SECOND])
    assert changes() == [1, 2]
    state.save_session("client/c", "b1/1", [FIRST, SECOND])
    state.save_subscriptions({"client/c": ([FIRST], [3])})
    assert changes() == [1, 2]
    third, fourth = replace(FIRST, values={"least": 4, "name": "a"}), replace(SECOND, subscription_id=4)
    state.save_session("client/c", "b1/1", [third, fourth])
    assert changes() == [1, 1, 2, 2, 4], "one that has new values, one that is gone, a new one"
    assert state.sessions()["client/c"].subscriptions == [third, fourth]
    state.save_session("client/c", "b1/2", [third])  # another session of that name
    assert state.sessions()["client/c"].identity == "b1/2"
    assert state.sessions()["client/c"].subscriptions == [third]


def test_new_values_wait_for_a_sync_or_for_what_is_synced_at_once(state: StateStore) -> None:
    state.save_session("client/c", "b1/1", [FIRST])
    moved = replace(FIRST, values={"least": 5, "name": "b"})
    assert not state.unsynced
    state.save_subscriptions({"client/c": ([moved], [])}, synced=False)
    assert state.unsynced
    written = state.written
    state.save_subscriptions({"client/c": ([FIRST], [])}, synced=False)
    thread = Thread(target=state.sync)
    thread.start()
    thread.join()
    state.synced(written)
    assert state.unsynced  # the second came after the sync had begun
    state.save_subscriptions({"client/c": ([FIRST], [])})  # the same values, to be on disk now
    assert not state.unsynced
    state.save_subscriptions({"client/c": ([moved], [])}, synced=False)
    state.save_awaited(["client/d"], [])
    assert not state.unsynced
    assert state.sessions()["client/c"].subscriptions == [moved]


def test_a_file_without_a_version_is_refused_unless_it_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE sessions (interface TEXT)")
    expected = f"it has version 0: expected a state of version {VERSION}, or no file"
    with pytest.raises(StorageError, match=expected):
        StateStore(str(path))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("sessions",)]
        other.execute("DROP TABLE sessions")
    StateStore(str(path)).close()


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_file_of_another_version_is_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.sqlite"
    StateStore(str(path)).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StorageError, match=f"version {version}: expected a state of version {VERSION}"):
        StateStore(str(path))
