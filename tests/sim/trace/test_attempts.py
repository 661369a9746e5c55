"""Attempts at one run on several file systems: the one that counts, after repetitions, kills and
obstacles."""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from written_traces import write_and_kill

from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.finding import TracesError, find_traces
from covey.sim.trace.manifest import TraceError
from covey.sim.trace.storage import Folder, reason_of
from covey.sim.trace.trace import Trace

TINY = Scenario(brokers=4, publishers=1, subscribers=5, types=2, duration_s=0.3)
SYSTEMS: dict[str, Callable[[Path], Folder]] = {
    "path": Folder.at,
    "file URI": lambda path: Folder.at(path.as_uri()),
    "subtree": lambda path: Folder(
        fs.SubTreeFileSystem(str(path.parent), fs.LocalFileSystem()), path.name, f"sub/{path.name}"
    ),
    "mock": lambda path: Folder(fs._MockFileSystem(), path.name, f"mock://{path.name}"),
}


@pytest.fixture(params=SYSTEMS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A run's future folder, on each file system."""
    return SYSTEMS[request.param](tmp_path / "run")


def begin(place: Folder) -> Trace:
    trace = Trace(place, lambda: 0)
    trace.crashed("broker/b")
    return trace


def end(trace: Trace) -> None:
    trace.__exit__(None, None, None)


def names(folder: Folder) -> list[str]:
    return [info.base_name for info in folder.children()]


def test_a_run_is_written_and_found(place: Folder) -> None:
    report = SimulatedRun(TINY).run(place)
    traces = find_traces([place])
    assert traces.broken == {}
    assert traces.runs["run"].summary["trace_rows"] == report.trace_rows
    (file, *_) = traces.files("events")
    assert file.startswith(f"{place}/attempt-")
    folder = traces.folders["run"]
    with folder.system.open_input_file(f"{folder.path}/events/part-00000.parquet") as stream:
        assert pq.read_table(stream).num_rows == traces.rows("events") == report.published


def test_the_first_attempt_that_completes_counts_and_a_later_one_removes_itself(place: Folder) -> None:
    first, second = begin(place), begin(place)
    end(second)
    before = names(place)
    assert before == [second.attempt.manifest.attempt, "manifest.json"]
    end(first)
    assert first.attempt.superseded
    assert names(place) == before
    assert find_traces([place]).runs["run"].attempt == second.attempt.manifest.attempt


def test_an_attempt_that_was_overtaken_writes_no_more(place: Folder) -> None:
    first, second = begin(place), begin(place)
    end(second)
    first.phase("running", {"broker/b": 1})
    first.phase("resting", {"broker/b": 2})
    assert first.attempt.superseded
    first.attempt.fail()
    assert names(place) == [second.attempt.manifest.attempt, "manifest.json"]


def test_while_none_has_completed_the_newest_attempt_is_the_run_so_far(place: Folder) -> None:
    for _ in range(3):
        newest = begin(place)
    newest.phase("running", {})
    manifest = find_traces([place]).runs["run"]
    assert (manifest.attempt, manifest.state) == (newest.attempt.manifest.attempt, "running")
    assert manifest.rows("history") == 2
    assert len(names(place)) == 3
    end(newest)
    assert names(place) == [manifest.attempt, "manifest.json"]


def test_a_run_that_is_repeated_replaces_the_completed_one(place: Folder) -> None:
    end(begin(place))
    again = begin(place)
    assert names(place) == [again.attempt.manifest.attempt]
    end(again)
    assert find_traces([place]).runs["run"].attempt == again.attempt.manifest.attempt


def test_a_run_that_failed_says_so_and_is_removed_by_the_next(place: Folder) -> None:
    with pytest.raises(ValueError, match="mistake"), begin(place):
        raise ValueError("a mistake")
    manifest = find_traces([place]).runs["run"]
    assert (manifest.state, manifest.rows("history"), manifest.complete) == ("failed", 2, False)
    again = begin(place)
    assert names(place) == [again.attempt.manifest.attempt]


def test_a_run_that_fails_and_cannot_be_written_keeps_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = begin(Folder.at(tmp_path / "run"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(TraceError, match=r"run: cannot be written: No space left on device$"):
        trace.phase("running", {})
    with pytest.raises(ValueError, match="mistake"), trace:
        raise ValueError("a mistake")


def test_of_attempts_that_complete_at_once_exactly_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all look for a manifest before any writes it."""
    place = Folder.at(tmp_path / "run")
    traces = [begin(place) for _ in range(8)]
    exists = Folder.exists

    def slowly(folder: Folder) -> bool:
        found: bool = exists.fget(folder)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(Folder, "exists", property(slowly))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(end, traces))
    (winner,) = [trace for trace in traces if not trace.attempt.superseded]
    assert names(place) == [winner.attempt.manifest.attempt, "manifest.json"]


def test_a_file_system_without_links_keeps_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*paths: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_link)
    file = Folder.at(tmp_path / "file")
    assert [file.create_text("1"), file.create_text("2"), file.read_text()] == [True, False, "1"]
    assert names(Folder.at(tmp_path)) == ["file"]


_FULL = """
import resource, signal, sys
from covey.cli.main import main
from covey.sim.trace.storage import Folder

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
if sys.argv[2:3] == ["create"]:
    try:
        Folder.at(sys.argv[3]).create_text("x" * 2 * int(sys.argv[1]))
    except OSError as error:
        sys.exit(str(error))
main(sys.argv[2:])
"""
"""In this process, a file of more bytes than this is as on a full disk."""


def full(limit: int, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _FULL, str(limit), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_manifest_that_does_not_fit_the_disk_is_not_created(tmp_path: Path) -> None:
    done = full(1_000, "create", tmp_path / "manifest.json")
    assert (done.returncode, "File too large" in done.stderr) == (1, True)
    assert [*tmp_path.iterdir()] == []


def test_a_run_whose_disk_is_full_ends_with_one_sentence(tmp_path: Path) -> None:
    small = ["--brokers", 4, "--publishers", 2, "--subscribers", 200, "--duration", 2]
    done = full(8_000, "sim", *small, "--trace", tmp_path / "run")
    sentence = f"covey: {tmp_path}/run: cannot be written: File too large\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)
    assert not [*tmp_path.rglob(".*")]
    traces = find_traces([tmp_path / "run"])
    assert (len(traces.runs), traces.broken, traces.runs["run"].complete) == (1, {}, False)


def test_errors_of_object_stores_are_short() -> None:
    text = (
        "When resolving region for bucket 'mine': AWS Error NETWORK_CONNECTION during HeadBucket operation: "
        "curlCode: 6, Could not resolve hostname; Details: Could not resolve host: mine.s3.amazonaws.com"
    )
    assert reason_of(OSError(text)) == "HeadBucket failed: Could not resolve hostname"
    text = (
        "When getting information for key 'runs' in bucket 'mine': AWS Error ACCESS_DENIED during HeadObject "
        "operation: No response body."
    )
    assert reason_of(OSError(text)) == "HeadObject failed: ACCESS_DENIED, No response body"


def test_a_file_appears_whole_and_unfinished_ones_match_no_glob(tmp_path: Path) -> None:
    file = Folder.at(tmp_path / "part-00000.parquet")
    file.write_text("one")
    with file.writing() as stream:
        stream.write(b"two")
        assert [path.name for path in tmp_path.iterdir() if path.suffix == ".parquet"] == [file.name]
        assert file.read_text() == "one"
    assert (file.read_text(), names(Folder.at(tmp_path))) == ("two", [file.name])


@pytest.mark.parametrize("name", ["thesis.txt", "part-list.csv", "manifest.json", "events"])
def test_what_is_not_a_trace_is_not_overwritten(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / name).write_text("{}")
    with pytest.raises(TraceError, match=f"run: cannot be written: {name} in it is not part of a trace"):
        Trace(run, lambda: 0)
    assert [path.name for path in run.iterdir()] == [name]


def test_a_file_and_a_folder_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    file.write_text("a,b\n")
    with pytest.raises(TraceError, match=r"results.csv: cannot be written: it is a file, expected a folder"):
        Trace(file, lambda: 0)
    assert file.read_text() == "a,b\n"
    with pytest.raises(TraceError, match="where: cannot be written: No such file or directory"):
        Trace(tmp_path / "no" / "where", lambda: 0)
    for uri in ("gopher://a/b", "s3:///"):
        with pytest.raises(TraceError, match=uri) as error:
            Trace(uri, lambda: 0)
        assert "\n" not in str(error.value)


def test_a_trace_of_the_first_version_stays_and_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    pq.write_table(pa.table({"row": [0]}), old / "part-00000.parquet")
    with pytest.raises(TraceError, match="old: cannot be written: it has a trace of the first version"):
        Trace(old, lambda: 0)
    for path in (old, tmp_path):
        with pytest.raises(TracesError, match="old: a trace of the first version"):
            find_traces([path])


@pytest.mark.thorough
def test_a_run_that_is_killed_has_everything_up_to_one_moment(tmp_path: Path) -> None:
    write_and_kill(tmp_path)
    traces = find_traces([tmp_path / "run"])
    assert (traces.runs["run"].state, traces.broken) == ("running", {})
    tables = {
        name: pa.concat_tables([pq.read_table(file) for file in traces.files(name)]).to_pylist()
        for name in ("events", "deliveries", "versions", "messages")
    }
    last = {name: rows[-1]["time_ns"] for name, rows in tables.items()}
    assert max(last.values()) - min(last.values()) < 2e9, "virtual time; parts are seconds long"
    events = {(row["publisher"], row["sequence"]) for row in tables["events"]}
    assert {(row["publisher"], row["sequence"]) for row in tables["deliveries"]} <= events
    SimulatedRun(TINY).run(tmp_path / "run")
    assert len(names(Folder.at(tmp_path / "run"))) == 2, "the killed attempt is gone"
