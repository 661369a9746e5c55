"""The manifest of a run: a JSON file that says what its trace consists of.

    RUN/manifest.json                    which attempt counts, once it has ended
    RUN/ATTEMPT/manifest.json            rewritten after every part
    RUN/ATTEMPT/TABLE/part-00000.parquet

Each attempt at a run has a folder of its own, so a task that Spark runs twice, or one that was killed, does
no harm: the first attempt that completes writes `RUN/manifest.json`, a later one removes itself. While no
attempt has completed, the newest one is the run so far. What a reader reads is what a manifest lists, never
what a folder happens to contain. `attempt.py` writes them, `finding.py` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from covey.matcher.errors import CoveyError

FORMAT = "covey-trace-2"
FILE = "manifest.json"
ATTEMPT = "attempt-"
"""The folders of attempts begin with this, so the folder of a run that has not ended is recognised."""

Choices = Mapping[str, Mapping[str, Any]]
"""By dimension of a sweep, the choice that its file names: its `name`, and the `fields` of the scenario that
it sets."""


class ManifestError(CoveyError, ValueError):
    """A text is not the manifest of a trace of this version."""


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file, relative to the attempt's folder."""

    file: str
    rows: int
    bytes: int


@dataclass(slots=True)
class Manifest:
    """What is in an attempt's folder. `state` is "running", "complete" or "failed"; `summary` is the run's
    own account of itself (`RunSummary.as_json`), None until it has ended."""

    run: str
    attempt: str
    scenario: Mapping[str, Any]
    state: str = "running"
    covey: str = ""
    started: str = ""
    """When the attempt began, as ISO 8601 in UTC."""
    clock_steps: int = 0
    real: bool = False
    """Whether brokers were processes, not simulated."""
    inputs: dict[str, str] | None = None
    """The SHA-256 of the files that the scenario names, by field; None if it is not stated."""
    choices: Choices = field(default_factory=dict)
    phases: dict[str, int] = field(default_factory=dict)
    """The time in nanoseconds at which each phase began."""
    event_types: dict[str, dict[str, str]] = field(default_factory=dict)
    """The kinds of all attributes with which clients have advertised or subscribed to a type, by name of the
    type and of the attribute."""
    tables: dict[str, list[Part]] = field(default_factory=dict)
    summary: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return self.state == "complete"

    def rows(self, table: str) -> int:
        """The number of rows of a table so far."""
        return sum(part.rows for part in self.tables.get(table, ()))

    def as_json(self) -> str:
        """The text of the file."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """`ManifestError` for a text that is no JSON, of another format, or without a field."""
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
