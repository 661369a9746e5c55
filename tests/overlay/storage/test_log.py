"""A log on real files: reading, retention, and reports of damage."""

import os
from pathlib import Path
from threading import Thread
from zlib import crc32

import pytest

from covey.overlay.storage.files import OsFiles, StorageError
from covey.overlay.storage.log import Log, Reading
from covey.overlay.storage.recovery import backup, verify
from covey.overlay.storage.segment import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Missing, Record

SIZE = 100
EACH = RECORD_HEADER_BYTES + SIZE


def opened(path: Path, **options: int) -> Log:
    return Log(OsFiles(path, create=True), salt=7, **options)


def payload(offset: int) -> bytes:
    return offset.to_bytes(4, "little") * (SIZE // 4)


def append_all(log: Log, payloads: list[bytes], time_ns: int) -> None:
    for each in payloads:
        log.append(each, time_ns)


def written(log: Log, count: int, *, group: int = 5) -> None:
    """Write records, in groups, with their offsets as times."""
    for _ in range(count // group):
        append_all(log, [payload(log.end + number) for number in range(group)], log.end)
        log.sync()


def everything(log: Log, *, max_bytes: int = 1_000) -> Reading:
    records, missing, offset = list[Record](), list[Missing](), 0
    while offset < log.end:
        reading = log.read(offset, max_bytes)
        records += reading.records
        missing += reading.missing
        offset = reading.next
    return Reading(records, missing, offset)


def segment_of(path: Path, number: int) -> Path:
    return sorted(path.glob("*.segment"))[number]


def flip(file: Path, position: int, bit: int = 4) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= bit
    file.write_bytes(content)


def test_records_are_read_from_memory_and_from_files(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert (log.first, log.synced, log.end) == (0, 0, 0)
    assert log.read(0) == Reading([], [], 0)
    assert log.append(b"one", 5) == 0
    assert [log.append(b"two", 6), log.append(b"three", 6)] == [1, 2]
    assert (log.synced, log.end, log.unsynced_bytes) == (0, 3, 11)
    unsynced = log.read(0)
    assert unsynced == Reading([Record(0, 5, b"one"), Record(1, 6, b"two"), Record(2, 6, b"three")], [], 3)
    assert log.sync() == 3
    assert log.sync() == 3
    assert (log.synced, log.unsynced_bytes) == (3, 0)
    assert log.read(0) == unsynced
    log.append(b"four", 7)
    assert [record.payload for record in log.read(1).records] == [b"two", b"three", b"four"]
    log.close()
    again = opened(tmp_path)
    assert [record.payload for record in again.read(0).records] == [b"one", b"two", b"three", b"four"]
    assert again.recovery.missing == ()
    again.close()


def test_a_reading_has_as_many_records_as_fit_and_at_least_one(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=5 * EACH)
    written(log, 50)
    log.append(payload(50), 50)
    for start in range(51):
        assert [record.offset for record in log.read(start, 1).records] == [start]
        reading = log.read(start, 3 * SIZE)
        assert [record.offset for record in reading.records] == list(range(start, min(51, start + 3)))
        assert reading.next == reading.records[-1].offset + 1
    with pytest.raises(StorageError, match="offset 52 is behind the end: expected at most 51"):
        log.read(52)
    log.close()


def test_an_offset_is_found_in_a_large_segment(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append_all(log, [payload(offset) for offset in range(20_000)], 1)
    log.sync()
    for offset in (0, 1, 3_333, 9_999, 19_998, 19_999):
        assert log.read(offset, 1).records == [Record(offset, 1, payload(offset))]
    log.close()


@pytest.mark.parametrize(("size", "said"), [(0, "0 bytes"), (51, "51 bytes")])
def test_a_record_has_bounds(tmp_path: Path, size: int, said: str) -> None:
    log = opened(tmp_path, max_record_bytes=50)
    with pytest.raises(StorageError, match=f"a record has {said}: expected 1 to 50"):
        log.append(bytes(size), 0)
    assert log.end == 0
    log.close()


def test_a_commit_runs_beside_appends_and_reads(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(b"first", 0)
    commit = log.begin_sync()
    assert commit is not None
    with pytest.raises(RuntimeError, match="a commit is under way"):
        log.begin_sync()
    thread = Thread(target=commit.run)
    thread.start()
    log.append(b"second", 0)
    assert [record.payload for record in log.read(0).records] == [b"first", b"second"]
    thread.join()
    assert log.end_sync(commit) == 1
    assert (log.synced, log.end, log.unsynced_bytes) == (1, 2, 6)
    log.close()


def test_whole_segments_are_removed(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=SEGMENT_HEADER_BYTES + 10 * EACH)
    written(log, 50)
    assert len(log.segments) == 5
    assert not log.trim(9)
    assert log.trim(25) == range(20)
    assert log.first == 20
    assert len(list(tmp_path.glob("*.segment"))) == 3
    assert log.read(3, 1) == Reading([Record(20, 20, payload(20))], [Missing(3, 20, "removed")], 21)
    assert not log.retain(since_ns=25)
    assert log.retain(since_ns=26) == range(20, 30)
    assert not log.retain(max_bytes=2 * (SEGMENT_HEADER_BYTES + 10 * EACH))
    assert log.retain(max_bytes=log.stored_bytes - 1) == range(30, 40)
    assert not log.retain(max_bytes=0, since_ns=1_000)
    assert not log.trim(50)
    log.close()
    again = opened(tmp_path)
    assert (again.first, again.end) == (40, 50)
    again.close()


@pytest.mark.parametrize("position", [0, 3, 5, 10, 15, 25, 30, 37, RECORD_HEADER_BYTES, EACH - 1])
@pytest.mark.parametrize("number", [0, 4, 9])
def test_a_flipped_bit_costs_its_record_and_is_told(tmp_path: Path, position: int, number: int) -> None:
    """The positions are in marker, length, checks, time, offset, synced and payload."""
    log = opened(tmp_path, segment_bytes=SEGMENT_HEADER_BYTES + 10 * EACH)
    written(log, 40)
    flip(segment_of(tmp_path, 1), SEGMENT_HEADER_BYTES + number * EACH + position)
    offset = 10 + number
    for _ in range(2):
        reading = everything(log)
        assert reading.missing == [Missing(offset, offset + 1, "damaged")]
        assert [r.offset for r in reading.records] == [each for each in range(40) if each != offset]
        assert all(record.payload == payload(record.offset) for record in reading.records)
        log.close()
        log = opened(tmp_path)
        assert log.recovery.missing == ()
    log.close()
    reports = list(verify(OsFiles(tmp_path)))
    assert [report.records for report in reports] == [10, 9, 10, 10]
    assert [report.sound for report in reports] == [True, False, True, True]
    assert reports[1].missing == (Missing(offset, offset + 1, "damaged"),)
    assert reports[1].damaged_bytes == EACH


def test_damage_to_the_header_of_a_segment_costs_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=SEGMENT_HEADER_BYTES + 10 * EACH)
    written(log, 20)
    log.close()
    for number in (0, 1):
        flip(segment_of(tmp_path, number), 9)
    assert [report.header_damaged for report in verify(OsFiles(tmp_path))] == [True, True]
    log = opened(tmp_path)
    assert everything(log).missing == []
    written(log, 10)
    log.close()
    assert [report.header_damaged for report in verify(OsFiles(tmp_path))] == [True, False]


@pytest.mark.parametrize("kept", [0, 3, 16, 30, 16 + 4 * EACH, 16 + 5 * EACH - 1])
def test_a_segment_that_was_cut_short_is_told(tmp_path: Path, kept: int) -> None:
    log = opened(tmp_path, segment_bytes=SEGMENT_HEADER_BYTES + 10 * EACH)
    written(log, 30)
    log.close()
    os.truncate(segment_of(tmp_path, 1), kept)
    log = opened(tmp_path)
    left = max(0, kept - SEGMENT_HEADER_BYTES) // EACH
    reading = everything(log)
    assert reading.missing == [Missing(10 + left, 20, "damaged")]
    assert len(reading.records) == 20 + left
    log.close()


def test_a_segment_that_was_removed_by_hand_is_told(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=SEGMENT_HEADER_BYTES + 10 * EACH)
    written(log, 30)
    log.close()
    segment_of(tmp_path, 1).unlink()
    log = opened(tmp_path)
    assert everything(log).missing == [Missing(10, 20, "damaged")]
    assert log.append(b"next", 0) == 30
    log.close()


def test_a_torn_end_is_cut_and_its_offsets_are_not_used_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    written(log, 10)
    log.close()
    with segment_of(tmp_path, 0).open("ab") as file:
        file.write(b"torn" * 30)
    (report,) = verify(OsFiles(tmp_path))
    assert (report.records, report.torn_bytes) == (10, 120)
    log = opened(tmp_path)
    assert log.recovery.torn_bytes == 120
    assert log.recovery.missing == (Missing(10, 13, "cut"),)
    assert log.append(b"next", 0) == 13
    log.close()
    log = opened(tmp_path)
    assert log.recovery.missing == ()
    assert everything(log).missing == [Missing(10, 13, "cut")]
    assert [record.offset for record in log.read(11).records] == [13]
    log.close()
    assert all(report.sound for report in verify(OsFiles(tmp_path)))


def test_damage_to_the_last_records_is_told_from_a_torn_write_by_a_sync_mark(tmp_path: Path) -> None:
    """Without a mark nothing proves their sync, so the log is cut at the damage."""
    for marked in (True, False):
        path = tmp_path / str(marked)
        log = opened(path)
        written(log, 10)
        if marked:
            log.mark_synced()
        log.files.unlock()  # a process that ends without a close
        flip(segment_of(path, 0), SEGMENT_HEADER_BYTES + 7 * EACH + 50)
        log = opened(path)
        missing = everything(log).missing
        assert missing == [Missing(7, 8, "damaged") if marked else Missing(7, log.end, "cut")]
        assert log.end == 10 if marked else log.end > 10
        log.close()


def test_a_payload_with_a_copy_of_the_log_is_no_record(tmp_path: Path) -> None:
    log = opened(tmp_path)
    written(log, 10)
    copy = segment_of(tmp_path, 0).read_bytes()
    position = len(copy)
    append_all(log, [copy[SEGMENT_HEADER_BYTES:], b"last"], 0)
    log.sync()
    flip(segment_of(tmp_path, 0), position + 5)
    assert everything(log).missing == [Missing(10, 11, "damaged")]
    assert log.read(10).records == [Record(11, 0, b"last")]
    log.close()


def test_another_version_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    written(log, 5)
    log.close()
    file = segment_of(tmp_path, 0)
    content = file.read_bytes()
    header = b"COVEYLOG" + (2).to_bytes(4, "little")
    file.write_bytes(header + crc32(header).to_bytes(4, "little") + content[16:])
    for _ in range(2):  # nothing stays locked
        with pytest.raises(StorageError, match=r"\.segment: its format has version 2: expected 1"):
            opened(tmp_path)


def test_a_backup_has_what_was_written_when_it_began(tmp_path: Path) -> None:
    log = opened(tmp_path / "log", segment_bytes=SEGMENT_HEADER_BYTES + 10 * EACH)
    written(log, 25)
    steps = backup(OsFiles(tmp_path / "log"), OsFiles(tmp_path / "copy", create=True))
    copied = next(steps)
    written(log, 10)
    copied += sum(steps)
    assert copied == sum(file.stat().st_size for file in (tmp_path / "copy").iterdir())
    copy = opened(tmp_path / "copy")
    assert everything(copy) == Reading(everything(log).records[:25], [], 25)
    copy.close()
    with pytest.raises(StorageError, match="it has files: expected an empty directory for a backup"):
        next(backup(OsFiles(tmp_path / "log"), OsFiles(tmp_path / "copy")))
    log.close()


def test_a_backup_says_that_a_segment_was_removed(tmp_path: Path) -> None:
    log = opened(tmp_path / "log", segment_bytes=SEGMENT_HEADER_BYTES + 10 * EACH)
    written(log, 40)
    steps = backup(OsFiles(tmp_path / "log"), OsFiles(tmp_path / "copy", create=True))
    next(steps)
    log.trim(20)
    with pytest.raises(StorageError, match="it does not exist") as raised:
        list(steps)
    assert raised.value.problem == "missing"
    log.close()
