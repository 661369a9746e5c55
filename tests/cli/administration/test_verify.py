"""`covey verify` on the directory of a broker."""

import json
from pathlib import Path

import pytest
from commands import run

from covey.matcher import EventBatch, EventType
from covey.overlay.core.messages import Receiver
from covey.overlay.node.broker_storage import Retention
from covey.overlay.node.storage_directory import log_directory, open_storage

ORDER = EventType("Order", {"number": "int64"})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a broker b1 that has stored a hundred events."""
    directory = tmp_path / "b1"
    storage = open_storage(directory, {"Order": Retention()})
    for number in range(100):
        batch = EventBatch.from_pylist(ORDER, [{"number": number}])
        storage.append(batch.stamped(publisher="p", first_sequence=number + 1), [Receiver("broker/b2")])
    storage.close()
    return directory


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


def test_a_directory_without_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", tmp_path) == 2
    assert "expected the directory of a broker" in capsys.readouterr().err
