"""Scenario files: YAML, flat, of the fields that differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from covey.matcher.errors import closest_of
from covey.overlay.documents import read_document
from covey.sim.scenario.fields import with_paths
from covey.sim.scenario.scenario import Scenario, ScenarioError


def check_fields(names: Iterable[object]) -> None:
    """`ScenarioError` for the first name that is no field of a scenario."""
    known = [field.name for field in fields(Scenario)]
    for name in names:
        if name not in known:
            raise ScenarioError(f"{name} is unknown{closest_of(str(name), known)}")


def load_scenario(path: str | Path, base: Scenario | None = None) -> Scenario:
    """Read a scenario file (YAML) over the fields of `base`, or the defaults. Paths in it are relative to it.

    Raises `ScenarioError`, which names the file.
    """
    document = read_document(path, ScenarioError)
    if not isinstance(document, dict):
        raise ScenarioError(f"{path}: expected a mapping from field to value")
    try:
        check_fields(document)
        return (base or Scenario()).having(**with_paths(document, Path(path).parent))
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
