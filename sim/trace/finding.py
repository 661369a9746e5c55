"""Finds the traces at paths from their manifests and the sizes of their files; reads no Parquet footer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from covey.matcher.errors import CoveyError
from covey.sim.trace.manifest import ATTEMPT, FILE, Manifest, ManifestError, attempts_of, is_first_version
from covey.sim.trace.storage import Folder, StorageError, reason_of


class TracesError(CoveyError, ValueError):
    """No trace was found, or two have one name; the message names the paths."""


@dataclass(slots=True)
class Traces:
    """By name of the run. `folders` has the attempt that counts, `broken` the reason why a trace cannot be
    read, by the name of its run or else its folder."""

    runs: dict[str, Manifest] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)

    def files(self, table: str) -> list[str]:
        """The Parquet files of a table, of all runs: paths, or URIs where the trace was found by one."""
        return [
            f"{self.folders[name]}/{part.file}"
            for name, manifest in self.runs.items()
            for part in manifest.tables.get(table, ())
        ]

    def rows(self, table: str) -> int:
        return sum(manifest.rows(table) for manifest in self.runs.values())

    def bytes(self, table: str) -> int:
        parts = [part for manifest in self.runs.values() for part in manifest.tables.get(table, ())]
        return sum(part.bytes for part in parts)


class _BrokenTraceError(Exception):
    """One trace cannot be read."""


def find_traces(paths: Iterable[str | Path | Folder]) -> Traces:
    """The traces at `paths`: folders of runs, or folders of such folders, as paths or URIs of `pyarrow.fs`.

    A trace whose manifest or parts are damaged is `broken`. Raises `TracesError` for a path without traces,
    for two runs of one name, and if every trace is broken. Cost: a manifest and a listing per run.
    """
    traces = Traces()
    where: dict[str, str] = {}
    for path in paths:
        for run in _runs_at(path):
            if run.shown in where.values():
                continue
            try:
                manifest, folder = _read(run)
            except _BrokenTraceError as error:
                traces.broken[run.name] = f"{run}: {error}"
                continue
            name = manifest.run
            if name in where:
                raise TracesError(
                    f"two runs are named {name!r}, in {where[name]} and in {run}: expected one of each name"
                )
            where[name] = run.shown
            traces.runs[name], traces.folders[name] = manifest, folder
    if not traces.runs:
        raise TracesError(next(iter(traces.broken.values()), "no traces: expected at least one path"))
    return traces


def _runs_at(path: str | Path | Folder) -> list[Folder]:
    try:
        folder = Folder.at(path)
        kind = folder.info().type
        if kind == fs.FileType.NotFound:
            raise TracesError(f"{path}: no such folder: expected a trace, or a folder of traces")
        if kind == fs.FileType.File:
            raise TracesError(f"{path}: a file: expected a trace, which is a folder, or a folder of traces")
        if _is_run(folder):
            return [folder]
        inner = [folder / info.base_name for info in folder.children() if info.type == fs.FileType.Directory]
        runs = [each for each in inner if not each.name.startswith(".") and _is_run(each)]
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, StorageError):
            raise TracesError(str(error)) from None
        raise TracesError(f"{path}: cannot be read: {reason_of(error)}") from None
    if not runs:
        raise TracesError(f"{path}: no traces: expected a trace, or a folder of traces")
    return runs


def _is_run(folder: Folder) -> bool:
    return (folder / FILE).exists or bool(attempts_of(folder)) or is_first_version(folder)


def _read(run: Folder) -> tuple[Manifest, Folder]:
    try:
        if (run / FILE).exists:
            manifest = _manifest(run / FILE)
        elif attempts := attempts_of(run):
            begun = [each for each in attempts if (each / FILE).exists] or attempts[-1:]
            manifest = max((_manifest(each / FILE) for each in begun), key=lambda each: each.started)
        else:
            raise _BrokenTraceError("a trace of the first version, which this version of Covey does not read")
        folder = run if run.name == manifest.attempt else run / manifest.attempt
        sizes = folder.sizes()
    except (OSError, pa.ArrowException) as error:
        raise _BrokenTraceError(f"cannot be read: {reason_of(error)}") from None
    for parts in manifest.tables.values():
        for part in parts:
            size = sizes.get(part.file)
            if size is None:
                raise _BrokenTraceError(f"{manifest.attempt}/{part.file} is missing")
            if size != part.bytes:
                what = "is cut short" if size < part.bytes else "was changed"
                sizes_shown = f"{size:,} of {part.bytes:,} bytes"
                raise _BrokenTraceError(f"{manifest.attempt}/{part.file} {what}: {sizes_shown}")
    return manifest, folder


def _manifest(file: Folder) -> Manifest:
    try:
        return Manifest.from_json(file.read_text())
    except FileNotFoundError:
        raise _BrokenTraceError(f"{_below(file)} is missing") from None
    except (ManifestError, UnicodeDecodeError) as error:
        raise _BrokenTraceError(f"{_below(file)} is damaged: {error}") from None


def _below(file: Folder) -> str:
    attempt = file.path.split("/")[-2]
    return f"{attempt}/{FILE}" if attempt.startswith(ATTEMPT) else FILE
