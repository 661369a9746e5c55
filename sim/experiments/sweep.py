"""Sweep files: a scenario, the fields that vary, and the grid of all combinations. Paths are relative to the
sweep file, in a scenario file to that. Invariant: every run of a sweep has a unique name, derived from the
fields that vary, so the same file always gives the same names; and no two runs do the same."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from covey.matcher.errors import InputError
from covey.overlay.documents import Section, read_document, validated
from covey.sim.experiments.runs.run_all import PlannedRun
from covey.sim.scenario.scenario import (
    Scenario,
    ScenarioError,
    check_fields,
    effective,
    load_scenario,
    with_paths,
    without_effect,
)

RUNS = 100_000
_FIELDS = tuple(field.name for field in fields(Scenario))


class _SweepFile(Section):
    scenario: Any = Field(default_factory=dict)
    vary: dict[str, Any] = Field(default_factory=dict)
    seeds: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class _Choice:
    """A value of a dimension: its part of the run's name, its fields, and its name in the file, if any."""

    word: str
    changes: dict[str, Any]
    name: str = ""


def load_sweep(path: str | Path) -> list[PlannedRun]:
    """The runs of a sweep file (YAML), in the order of the grid. Raises `InputError` or `ScenarioError`."""
    file = validated(_SweepFile, read_document(path, InputError), path, InputError)
    try:
        planned = list(_grid(file, Path(path).parent))
        _check_differ(planned)
        return planned
    except (InputError, ScenarioError) as error:
        raise type(error)(f"{path}: {error}") from None


def _grid(file: _SweepFile, folder: Path) -> Iterator[PlannedRun]:
    base, seeds = _base(file.scenario, folder), file.seeds
    dimensions = list(file.vary)
    choices = [_choices(field, values, folder) for field, values in file.vary.items()]
    if "seed" not in file.vary:
        dimensions.append("seed")
        choices.append([_Choice(f"seed-{base.seed + n}", {"seed": base.seed + n}) for n in range(seeds)])
    elif seeds > 1:
        raise InputError(f"seeds is {seeds!r}, and seed varies: expected one of them")
    count = prod(map(len, choices))
    if count > RUNS:
        raise InputError(f"vary makes {count:,} runs: expected at most {RUNS:,}")
    for combination in product(*choices):
        changes: dict[str, Any] = {}
        for choice in combination:
            changes |= choice.changes
        named = {
            dimension: {"name": choice.name, "fields": choice.changes}
            for dimension, choice in zip(dimensions, combination, strict=True)
            if choice.name
        }
        name = "_".join(choice.word for choice in combination)
        yield PlannedRun(name, base.having(**changes), choices=named)


def _base(scenario: Any, folder: Path) -> Scenario:
    if isinstance(scenario, str):
        return load_scenario(folder / scenario)
    if not isinstance(scenario, dict):
        raise InputError(f"scenario is {scenario!r}: expected a mapping from field to value, or a file")
    _check_fields(scenario, "scenario")
    return Scenario(**with_paths(scenario, folder))


def _choices(field: str, values: Any, folder: Path) -> list[_Choice]:
    if isinstance(values, dict) and values:
        for name, change in values.items():
            if not isinstance(change, dict):
                raise InputError(f"vary.{field}.{name} is {change!r}: expected a mapping from field to value")
            _check_fields(change, f"vary.{field}.{name}")
            if "seed" in change:
                where = f"vary.{field}.{name}"
                raise InputError(f"{where} has a seed: expected it in seeds, or a list as vary.seed")
        texts, names = [str(name) for name in values], [str(name) for name in values]
        changes = [with_paths(change, folder) for change in values.values()]
    elif isinstance(values, list) and values:
        _check_fields([field], "vary")
        texts = [value if isinstance(value, str) and value else f"{field}-{value}" for value in values]
        names = [""] * len(values)
        changes = [with_paths({field: value}, folder) for value in values]
    else:
        raise InputError(f"vary.{field} is {values!r}: expected a list of values, or choices by name")
    if len(set(texts)) < len(texts):
        raise InputError(f"vary.{field} is {values!r}: expected each value once")
    return [_Choice(*choice) for choice in zip(_words(texts), changes, names, strict=True)]


def _check_fields(names: Iterable[object], where: str) -> None:
    try:
        check_fields(names)
    except ScenarioError as error:
        raise InputError(f"{where}: {error}") from None


def _check_differ(planned: Sequence[PlannedRun]) -> None:
    """`InputError` for two runs that do the same, since the varied fields have no effect in them."""
    first: dict[Scenario, PlannedRun] = {}
    for run in planned:
        scenario, twin = run.scenario, first.setdefault(effective(run.scenario), run)
        if twin is not run:
            differing = [each for each in _FIELDS if getattr(scenario, each) != getattr(twin.scenario, each)]
            reasons = without_effect(scenario, differing)
            why = "".join(f": {field} has no effect: {reason}" for field, reason in reasons.items())
            raise InputError(f"the runs {twin.name} and {run.name} are the same{why}")


def _words(texts: Sequence[str]) -> list[str]:
    """Different parts of folders' names. Texts that differ only in characters without a place in such names,
    or in case, which some file systems ignore, get a part of their hash."""
    words = [re.sub(r"[^A-Za-z0-9.+-]+", "-", text) for text in texts]
    times = Counter(word.lower() for word in words)
    return [
        word if times[word.lower()] == 1 else f"{word}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        for word, text in zip(words, texts, strict=True)
    ]
