"""`covey backup` and `covey verify` on the directory of a broker b1."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run

from covey.cli.stored import back_up
from covey.matcher import EventBatch, EventType
from covey.overlay.core.messages import Receiver
from covey.overlay.node.broker_storage import BrokerStorage, Retention
from covey.overlay.node.storage_directory import log_directory, open_storage

ORDER = EventType("Order", {"number": "int64"})


def append(storage: BrokerStorage, numbers: range) -> None:
    for number in numbers:
        batch = EventBatch.from_pylist(ORDER, [{"number": number}])
        storage.append(batch.stamped(publisher="p", first_sequence=number + 1), [Receiver("broker/b2")])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With a hundred events."""
    storage = open_storage(tmp_path / "b1", {"Order": Retention()})
    append(storage, range(100))
    storage.close()
    return tmp_path / "b1"


def test_a_directory_in_use_is_copied_and_opens_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = open_storage(tmp_path / "b1", {"Order": Retention()})
    append(storage, range(100))
    storage.begin_sync()
    storage.run_sync()
    storage.end_sync()
    assert run("backup", tmp_path / "b1", "--to", tmp_path / "copy") == 0
    assert "log-Order: 100 records" in (said := capsys.readouterr().out)
    assert "bytes copied" in said
    append(storage, range(100, 120))
    storage.close()
    assert run("backup", tmp_path, "--to", tmp_path / "all") == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["b1", "copy"]
    copy = open_storage(tmp_path / "copy", {"Order": Retention()})
    copy.close()


def test_a_target_with_files_and_a_source_without_a_broker_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_storage(tmp_path / "b1", {"Order": Retention()}).close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert run("backup", tmp_path / "b1", "--to", tmp_path / "full") == 2
    assert "it exists: expected a new or an empty directory" in capsys.readouterr().err
    assert run("backup", tmp_path / "full", "--to", tmp_path / "copy") == 2
    assert "expected the directory of a broker" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()
    assert run("verify", tmp_path / "full") == 2
    assert "expected the directory of a broker" in capsys.readouterr().err


def test_a_sound_directory(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for each in (directory, directory.parent):
        assert run("verify", each, "--json") == 0
        reports = json.loads(capsys.readouterr().out)
        assert [(Path(report["path"]).name, report["damage"]) for report in reports] == [
            ("state.sqlite", ""),
            ("log-Order", ""),
        ]
        assert reports[1]["records"] == 100


def test_a_flipped_bit_is_told(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segment,) = (path for path in log_directory(directory, "Order").iterdir() if path.stat().st_size > 1_000)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert run("verify", directory) == 1
    assert "1 records cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["b%C3%BC", "50% #1?"])
def test_a_directory_of_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """The directory of broker bü is b%C3%BC."""
    open_storage(tmp_path / "from" / name, {"Order": Retention()}).close()
    assert run("verify", tmp_path / "from" / name) == 0
    assert [each.name for each in (tmp_path / "from").iterdir()] == [name]
    assert run("backup", tmp_path / "from", "--to", tmp_path / "copy") == 0
    assert (tmp_path / "copy" / name / "state.sqlite").stat().st_size


def test_a_target_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_storage(tmp_path / "b1", {"Order": Retention()}).close()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert run("backup", tmp_path / "b1", "--to", ".") == 2
    assert "--to .: expected a directory by its name" in capsys.readouterr().err


def test_a_copy_is_on_the_disk_under_its_name(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, directories of new names, and last the copy's own directory are synced."""
    synced: list[Path] = []
    for name in ("fsync", "fdatasync"):
        sync = getattr(os, name)

        def seen(file: int, sync: Callable[[int], None] = sync) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{file}")))
            sync(file)

        monkeypatch.setattr(os, name, seen)
    back_up(directory, tmp_path / "new" / "copy")
    partial = tmp_path / "new" / "copy.partial"
    files = [each.relative_to(tmp_path / "new" / "copy") for each in (tmp_path / "new" / "copy").rglob("*")]
    assert Path("state.sqlite") in files
    assert {partial / each for each in files} | {tmp_path, tmp_path / "new", partial} <= {*synced}
    assert synced[-1] == tmp_path / "new"
