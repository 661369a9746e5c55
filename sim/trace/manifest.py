"""The manifest of a run, a JSON file that lists its trace, and the attempts that write it.

- RUN/manifest.json: the attempt that counts, once it has completed
- RUN/ATTEMPT/manifest.json: rewritten after every part
- RUN/ATTEMPT/TABLE/part-00000.parquet

Readers read the files that a manifest lists, never a folder; while no attempt has completed, those of the
newest one.

Invariants: an attempt writes only into its own folder until it completes, so a task that Spark runs twice or
kills does no harm. The first attempt that completes writes `RUN/manifest.json` and removes killed ones; a
later one stops writing and removes its folder.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyarrow import fs, parquet

from covey.matcher.errors import CoveyError
from covey.sim.trace.storage import Folder, StorageError, UnknownSystemError, reason_of

FORMAT = "covey-trace-2"
FILE = "manifest.json"
ATTEMPT = "attempt-"
"""Prefix of the folders of attempts, by which the folder of a run that has not ended is recognised."""

Choices = Mapping[str, Mapping[str, Any]]
"""By dimension of a sweep, the choice: its `name`, and the `fields` of the scenario that it sets."""


class ManifestError(CoveyError, ValueError):
    """A text is not the manifest of a trace of this version."""


@dataclass(frozen=True, slots=True)
class Part:
    file: str
    rows: int
    bytes: int


@dataclass(slots=True)
class Manifest:
    """`state` is "running", "complete" or "failed"; `started` is ISO 8601 in UTC; `real` means that brokers
    were processes; `summary` is `RunSummary.as_json`, None until the run has ended."""

    run: str
    attempt: str
    scenario: Mapping[str, Any]
    state: str = "running"
    covey: str = ""
    started: str = ""
    clock_steps: int = 0
    real: bool = False
    inputs: dict[str, str] | None = None
    """By field of the scenario, the SHA-256 of the file that it names; None if unknown."""
    choices: Choices = field(default_factory=dict)
    phases: dict[str, int] = field(default_factory=dict)
    """The time in ns at which each phase began."""
    event_types: dict[str, dict[str, str]] = field(default_factory=dict)
    """By type and attribute, the kinds of all attributes with which clients have advertised or subscribed."""
    tables: dict[str, list[Part]] = field(default_factory=dict)
    summary: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return self.state == "complete"

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self.tables.get(table, ()))

    def as_json(self) -> str:
        return json.dumps({"format": FORMAT} | asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """`ManifestError` for a text that is not JSON, of another format, or without a field."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise ManifestError(f"no JSON: {error}") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            found = content.get("format") if isinstance(content, dict) else None
            raise ManifestError(f"format is {found!r}: expected {FORMAT!r}")
        try:
            tables = {name: [Part(**part) for part in parts] for name, parts in content["tables"].items()}
            known = {each.name for each in fields(cls)}
            return cls(**{name: content[name] for name in known & content.keys()} | {"tables": tables})
        except (AttributeError, KeyError, TypeError) as error:
            raise ManifestError(f"incomplete: {error}") from None


class TraceError(StorageError):
    """The trace cannot be written."""


class NoTraceError(TraceError, ValueError):
    """The folder has content that is not a trace, or the path names no file system."""


class Attempt:
    """Creates the folder of a new attempt at the run in the folder `place`.

    A completed run is removed, since it is repeated. Raises `TraceError` if the folder has other content or
    cannot be written.
    """

    def __init__(self, place: str | Path | Folder, scenario: Mapping[str, Any]) -> None:
        try:
            self.run_folder = Folder.at(place)
        except UnknownSystemError as error:
            raise NoTraceError(str(error)) from None
        except StorageError as error:
            raise TraceError(str(error)) from None
        self.superseded = False
        """Whether another attempt has completed: this one has removed its folder and writes no more."""
        started = datetime.now(UTC)
        name = f"{ATTEMPT}{started:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        self.folder = self.run_folder / name
        self.manifest = Manifest(
            self.run_folder.name,
            name,
            scenario,
            covey=version("covey"),
            started=started.isoformat(timespec="microseconds"),
        )
        self._guarded(self._begin)

    def _begin(self) -> None:
        _check_replaceable(self.run_folder)
        (self.run_folder / FILE).remove()
        for other in attempts_of(self.run_folder):
            if _has_ended(other):
                other.remove()
        self.folder.make()
        self._write_manifest()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TraceError:
            raise
        except (OSError, pa.ArrowException) as error:
            if self.manifest.tables and self._is_superseded():  # and its folder removed meanwhile
                return
            raise TraceError(f"{self.run_folder}: cannot be written: {reason_of(error)}") from None

    def _write_manifest(self) -> None:
        (self.folder / FILE).write_text(self.manifest.as_json())

    # --- writing --------------------------------------------------------------------------------------------

    def write(self, parts: Mapping[str, pa.Table]) -> None:
        """Write a part of each table, then the manifest, which makes all of them visible at once."""
        self._guarded(lambda: self._write(parts))

    def _write(self, parts: Mapping[str, pa.Table]) -> None:
        if self._is_superseded():
            return
        for name, table in parts.items():
            earlier = self.manifest.tables.setdefault(name, [])
            if not earlier:
                (self.folder / name).make()
            file = f"{name}/part-{len(earlier):05}.parquet"
            with (self.folder / file).writing() as stream:
                parquet.write_table(table, stream, compression="zstd")
                size = stream.tell()
            earlier.append(Part(file, table.num_rows, size))
        self._write_manifest()

    def _is_superseded(self) -> bool:
        if not self.superseded:
            run_manifest, own = (self.run_folder / FILE).exists, (self.folder / FILE).exists
            if run_manifest or not own:
                self._give_way()
        return self.superseded

    def _give_way(self) -> None:
        self.superseded = True
        with suppress(OSError):  # the attempt that has completed removes it as well
            self.folder.remove()

    # --- the end --------------------------------------------------------------------------------------------

    def complete(self) -> None:
        self._guarded(self._complete)

    def _complete(self) -> None:
        if self._is_superseded():
            return
        self.manifest.state = "complete"
        self._write_manifest()
        if not (self.run_folder / FILE).create_text(self.manifest.as_json()):
            self._give_way()
            return
        for other in attempts_of(self.run_folder):
            if other.name != self.manifest.attempt:
                with suppress(OSError):  # readers ignore it
                    other.remove()

    def fail(self) -> None:
        """The run ended with an error."""
        if not self._is_superseded():
            self.manifest.state = "failed"
            self._guarded(self._write_manifest)


def attempts_of(run: Folder) -> list[Folder]:
    return [
        run / info.base_name
        for info in run.children()
        if info.type == fs.FileType.Directory and info.base_name.startswith(ATTEMPT)
    ]


def is_first_version(folder: Folder) -> bool:
    """Whether this is a trace of the first version: parts of one table in a folder."""
    return any(
        info.base_name.startswith("part-") and info.base_name.endswith(".parquet")
        for info in folder.children()
    )


def _check_replaceable(run: Folder) -> None:
    """`NoTraceError` if there is anything that is not a trace of this version. Hidden files are ignored."""
    kind = run.info().type
    if kind == fs.FileType.File:
        raise NoTraceError(f"{run}: cannot be written: it is a file, expected a folder")
    if kind == fs.FileType.NotFound:
        if run.is_local and not Path(run.path).parent.is_dir():
            raise TraceError(f"{run}: cannot be written: No such file or directory: {Path(run.path).parent}")
        return
    if is_first_version(run):
        raise NoTraceError(f"{run}: cannot be written: it has a trace of the first version, which stays")
    for info in run.children():
        if info.base_name.startswith((".", ATTEMPT)):
            continue
        if info.base_name != FILE or not _is_manifest(run / FILE):
            raise NoTraceError(f"{run}: cannot be written: {info.base_name} in it is not part of a trace")


def _is_manifest(file: Folder) -> bool:
    try:
        Manifest.from_json(file.read_text())
    except ManifestError:
        return False
    return True


def _has_ended(attempt: Folder) -> bool:
    try:
        return Manifest.from_json((attempt / FILE).read_text()).state != "running"
    except (OSError, ManifestError):
        return False
