"""The simulated disk: files after a crash, and faults."""

import pytest

from covey.overlay.storage.files import StorageError
from covey.overlay.storage.log import Log
from covey.sim.simulator.disk import SimulatedCrash, SimulatedFiles

SYNCED, UNSYNCED = b"s" * 100, b"u" * 300


def crashed(seed: int) -> SimulatedFiles:
    """After a crash: a file with a synced and an unsynced part, a removed one and a new one."""
    files = SimulatedFiles(seed, sector_bytes=64)
    writer = files.create("a")
    writer.write(SYNCED)
    writer.sync()
    files.create("gone")
    files.sync_directory()
    files.remove("gone")
    writer.write(UNSYNCED)
    files.create("new").write(b"new")
    files.crash()
    return files


def test_a_crash_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    runs = [crashed(seed) for seed in range(200)]
    contents = [files.read("a", 0, 1_000) for files in runs]
    assert all(content.startswith(SYNCED) for content in contents)
    assert SYNCED in contents
    assert SYNCED + UNSYNCED in contents
    assert any(b"u" in content and len(content) < 400 for content in contents)
    assert any(b"\0" in content and content.endswith(b"u") for content in contents)
    assert any(set(content) - set(b"su\0") for content in contents)
    names = {tuple(files.names()) for files in runs}
    assert names == {("a",), ("a", "gone"), ("a", "new"), ("a", "gone", "new")}


def test_the_same_seed_gives_the_same_disk() -> None:
    for seed in range(20):
        assert crashed(seed).read("a", 0, 1_000) == crashed(seed).read("a", 0, 1_000)


def test_the_end_of_a_process_alone_loses_nothing() -> None:
    files = SimulatedFiles(0)
    writer = files.create("a")
    writer.write(UNSYNCED)
    files.crash(power=False)
    assert files.read("a", 0, 1_000) == UNSYNCED
    with pytest.raises(SimulatedCrash):
        writer.write(b"of a process that has ended")


def test_a_failed_sync_drops_its_writes_for_good() -> None:
    lost = 0
    for seed in range(20):
        files = SimulatedFiles(seed)
        writer = files.create("a")
        files.sync_directory()
        writer.write(SYNCED)
        files.failing_syncs = 1
        with pytest.raises(StorageError, match="a: input/output error at a sync"):
            writer.sync()
        writer.sync()
        assert files.read("a", 0, 100) == SYNCED
        files.crash()
        lost += files.read("a", 0, 100) != SYNCED
    assert lost


def test_a_disk_is_full_at_its_bound() -> None:
    files = SimulatedFiles(0)
    files.room = 150
    writer = files.create("a")
    writer.write(bytes(100))
    with pytest.raises(StorageError, match="no room is left") as error:
        writer.write(bytes(100))
    assert error.value.problem == "full"
    assert files.size("a") <= 150
    with pytest.raises(StorageError):
        writer.write(bytes(200))


def test_a_file_that_cannot_be_read_stops_readers_not_the_log() -> None:
    files = SimulatedFiles(0)
    log = Log(files, salt=1)
    log.append(b"one", 0)
    log.sync()
    files.unreadable.add(log.segments[0])
    with pytest.raises(StorageError, match="input/output error"):
        log.read(0)
    log.append(b"two", 0)
    assert log.sync() == 2
    files.unreadable.clear()
    assert [record.payload for record in log.read(0).records] == [b"one", b"two"]
