"""The traces found at a path, and errors in the others."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.sim.trace.finding import TracesError, find_traces
from covey.sim.trace.manifest import Manifest, ManifestError, Part
from covey.sim.trace.storage import Folder
from covey.sim.trace.trace import Trace


def write(path: Path, crashes: int = 3) -> Path:
    """A trace with a part of history per crash; returns its attempt's folder."""
    with Trace(path, lambda: 0, {"seed": 1}) as trace:
        for _ in range(crashes):
            trace.phase("running", {"broker/b": 1})
            trace.crashed("broker/b")
    return path / trace.attempt.manifest.attempt


def change(file: Path, **fields: Any) -> None:
    """Replace fields of a manifest; None removes one."""
    content = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def test_a_run_a_folder_of_runs_and_several_paths_are_found(tmp_path: Path) -> None:
    for name in ("sweep/a", "sweep/b", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name)
    (tmp_path / "sweep" / "plots").mkdir()
    (tmp_path / "sweep" / "report.html").touch()
    (tmp_path / "sweep" / ".cache" / "attempt-1").mkdir(parents=True)
    assert [*find_traces([tmp_path / "sweep"]).runs] == ["a", "b"]
    traces = find_traces([tmp_path / "c", (tmp_path / "sweep").as_uri(), tmp_path / "sweep" / "a"])
    assert ([*traces.runs], traces.broken) == (["c", "a", "b"], {})
    assert len(traces.files("history")) == 3 * 4
    assert all(Path(file).is_file() for file in traces.files("history"))
    assert traces.runs["a"].scenario == {"seed": 1}


def test_an_attempt_can_be_named_itself(tmp_path: Path) -> None:
    attempt = write(tmp_path / "run")
    assert find_traces([attempt]).files("work") == find_traces([tmp_path / "run"]).files("work")


def test_broken_traces_are_named_with_the_reason_and_the_others_are_found(tmp_path: Path) -> None:
    attempts = {
        name: write(tmp_path / name)
        for name in ("good", "cut", "grown", "gone", "empty", "half", "other", "future", "odd", "bare")
    }
    history = {name: attempt / "history" / "part-00001.parquet" for name, attempt in attempts.items()}
    content = history["cut"].read_bytes()
    history["cut"].write_bytes(content[: len(content) // 2])
    history["grown"].write_bytes(history["grown"].read_bytes() + b"more")
    history["gone"].unlink()
    shutil.rmtree(attempts["empty"])
    manifests = {name: tmp_path / name / "manifest.json" for name in attempts}
    manifests["half"].write_bytes(manifests["half"].read_bytes()[:100])
    manifests["other"].write_bytes(b"\xff\xfe")
    change(manifests["future"], format="covey-trace-3")
    change(manifests["odd"], tables=None)
    manifests["bare"].unlink()
    (attempts["bare"] / "manifest.json").unlink()
    traces = find_traces([tmp_path])
    assert [*traces.runs] == ["good"]
    reasons = {name: reason.removeprefix(f"{tmp_path / name}: ") for name, reason in traces.broken.items()}
    part = "history/part-00001.parquet"
    assert reasons["cut"] == (
        f"{attempts['cut'].name}/{part} is cut short: {len(content) // 2:,} of {len(content):,} bytes"
    )
    assert "was changed" in reasons["grown"]
    assert reasons["gone"] == f"{attempts['gone'].name}/{part} is missing"
    assert reasons["empty"] == f"{attempts['empty'].name}/history/part-00000.parquet is missing"
    assert reasons["half"].startswith("manifest.json is damaged: no JSON: ")
    assert reasons["other"].startswith("manifest.json is damaged: ")
    assert reasons["future"] == (
        "manifest.json is damaged: format is 'covey-trace-3': expected 'covey-trace-2'"
    )
    assert reasons["odd"] == "manifest.json is damaged: incomplete: 'tables'"
    assert reasons["bare"] == f"{attempts['bare'].name}/manifest.json is missing"
    assert not any("\n" in reason for reason in reasons.values())


def test_two_runs_of_one_name_are_refused_with_both_paths(tmp_path: Path) -> None:
    for name in ("a/run", "b/run"):
        (tmp_path / name).parent.mkdir()
        write(tmp_path / name)
    with pytest.raises(TracesError) as error:
        find_traces([tmp_path / "a", tmp_path / "b" / "run"])
    assert str(error.value) == (
        f"two runs are named 'run', in {tmp_path}/a/run and in {tmp_path}/b/run: expected one of each name"
    )


def test_a_path_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TracesError, match="absent: no such folder: expected a trace, or a folder of traces"):
        find_traces([tmp_path / "absent"])
    with pytest.raises(TracesError, match="no traces: expected a trace, or a folder of traces"):
        find_traces([tmp_path])
    (tmp_path / "file").touch()
    with pytest.raises(TracesError, match="file: a file: expected a trace"):
        find_traces([tmp_path / "file"])
    with pytest.raises(TracesError, match="no traces: expected at least one path"):
        find_traces([])
    with pytest.raises(TracesError, match="gopher://a: "):
        find_traces(["gopher://a"])


def test_a_manifest_survives_its_text() -> None:
    part = Part("events/part-00000.parquet", 2, 9)
    manifest = Manifest("run", "attempt-1", {"seed": 1}, tables={"events": [part]})
    assert Manifest.from_json(manifest.as_json()) == manifest
    with pytest.raises(ManifestError, match="format is None"):
        Manifest.from_json("[]")


def test_the_options_of_a_uri_are_no_part_of_the_paths_below() -> None:
    place = Folder.at("s3://bucket/runs/one/?region=us-east-1&endpoint_override=localhost:1")
    assert (str(place / "events"), place.name) == ("s3://bucket/runs/one/events", "one")
    assert (place / "events").path == "bucket/runs/one/events"
