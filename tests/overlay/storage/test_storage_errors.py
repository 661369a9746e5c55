"""One clear error for each unusable place, and nothing lost: real files and real processes."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from draws import SEED

from covey.overlay.storage.files import OsFiles, StorageError
from covey.overlay.storage.log import Log
from covey.overlay.storage.recovery import verify

WRITER = """
import sys
from covey.overlay.storage.files import OsFiles
from covey.overlay.storage.log import Log
log = Log(OsFiles(sys.argv[1]), salt=int(sys.argv[2]), segment_bytes=20_000)
while True:
    first = log.end
    for number in range(first, first + 7):
        log.append(b"%d " % number * 20, first)
    print(log.sync(), flush=True)
"""


def opened(path: Path) -> Log:
    return Log(OsFiles(path, create=True), salt=7)


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="none: it does not exist: expected an existing one") as error:
        OsFiles(tmp_path / "none")
    assert error.value.problem == "missing"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file: it is not a directory: expected one"):
        OsFiles(tmp_path / "file")


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """In a process without root's rights, which may write anywhere."""
    directory = tmp_path / "log"
    directory.mkdir()
    tmp_path.chmod(0o755)
    directory.chmod(0o555)
    program = """
import fcntl, os, sys
from covey.overlay.storage.files import OsFiles
from covey.overlay.storage.log import Log
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    Log(OsFiles("."), salt=1)
except Exception as error:
    print(type(error).__name__, error.problem, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("StorageError read-only ./lock: it cannot be written: expected a directory")


def test_a_second_process(tmp_path: Path) -> None:
    with _writer(tmp_path) as child:
        child.stdout.readline()
        with pytest.raises(StorageError, match=f"process {child.pid} uses it: expected a directory") as error:
            opened(tmp_path)
        assert error.value.problem == "in use"
        child.kill()
    log = opened(tmp_path)
    with pytest.raises(StorageError, match=f"process {os.getpid()} uses it"):
        opened(tmp_path)
    log.close()
    opened(tmp_path).close()


def test_a_process_that_is_killed_loses_nothing_that_it_has_synced(tmp_path: Path) -> None:
    confirmed = 0
    for number in range(3):
        with _writer(tmp_path, SEED + number) as child:
            assert child.stdout is not None
            for _ in range(3 + SEED % 50):
                confirmed = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            confirmed = max([confirmed, *map(int, child.stdout.read().split("\n")[:-1])])
        log = opened(tmp_path)
        assert log.end >= confirmed
        offset = 0
        while offset < log.end:
            reading = log.read(offset)
            for record in reading.records:
                assert record.payload == b"%d " % record.offset * 20
            assert all(each.reason == "cut" and each.first >= confirmed for each in reading.missing)
            offset = reading.next
        confirmed = log.end
        log.close()
    assert all(report.sound for report in verify(OsFiles(tmp_path)))


def _writer(path: Path, salt: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(salt)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on file sizes stands for it: the system writes a part, then nothing."""
    log = opened(tmp_path)
    for _ in range(10):
        log.append(b"synced", 0)
    log.sync()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        log.append(bytes(20_000), 0)
        with pytest.raises(StorageError, match="the file may not grow further: expected room") as error:
            log.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert error.value.problem == "full"
    with pytest.raises(StorageError, match="takes no records until it is opened again, since a write"):
        log.append(b"more", 0)
    with pytest.raises(StorageError, match="takes no records"):
        log.sync()
    assert [record.payload for record in log.read(0).records] == [b"synced"] * 10
    assert log.end == log.synced == 10
    log.close()
    log = opened(tmp_path)
    assert log.recovery.torn_bytes == 10_000 - 16 - 10 * 46
    assert [record.payload for record in log.read(0).records] == [b"synced"] * 10
    log.append(b"more", 0)
    assert log.sync() == log.end
    assert log.read(log.end - 1).records[0].payload == b"more"
    log.close()


@pytest.mark.thorough
def test_a_log_of_a_gibibyte_opens_with_the_memory_of_a_segment(tmp_path: Path) -> None:
    """In its own process, which reports its peak memory."""
    log = opened(tmp_path)
    payload = os.urandom(1 << 20)
    for number in range(1 << 10):
        log.append(payload[number:] + payload[:number], number)
        if number % 16 == 15:
            log.sync()
    log.close()
    program = """
import resource, sys
from covey.overlay.storage.files import OsFiles
from covey.overlay.storage.log import Log
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before = peak()
log = Log(OsFiles(sys.argv[1]), salt=1)
for offset in range(0, log.end, 100):
    assert log.read(offset, 1).records[0].offset == offset
print(log.end, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    records, growth_mb = map(int, done.stdout.split())
    assert records == 1 << 10
    assert growth_mb < 64


def test_a_log_that_is_removed_while_it_is_in_use_confirms_nothing_more(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    log.append(b"first", 1)
    assert log.sync() == 1
    (segment,) = (path for path in (tmp_path / "log").iterdir() if path.suffix == ".segment")
    segment.unlink()
    log.append(b"second", 2)
    with pytest.raises(StorageError, match="it was removed while it was in use"):
        log.sync()
    assert log.synced == 1
    log.close()
