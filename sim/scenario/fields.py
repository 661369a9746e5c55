"""What holds of single fields of a scenario: one row each, which every check of them reads.

A field has no effect with some values of others, names a file, or is one that real brokers cannot have. A
field without a row always has an effect, and has its default over real brokers.

Scenario files: YAML, flat, of the fields that differ.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from covey.matcher.engine import engine_names
from covey.matcher.errors import closest_of
from covey.overlay.documents import read_document
from covey.sim.scenario.scenario import Scenario, ScenarioError

Without = Callable[[Scenario], str]
"""Why a field has no effect in a scenario, as "load is highway: expected load trading"; "" if it has one."""


def _only_with(field: str, *values: str) -> Without:
    def without(scenario: Scenario) -> str:
        value = getattr(scenario, field)
        return "" if value in values else f"{field} is {value}: expected {field} {' or '.join(values)}"

    return without


def _brokers(scenario: Scenario) -> str:
    if scenario.load != "detectors" or scenario.topology:
        return ""
    return "load detectors has the brokers of its sensors, unless a topology is given"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """`real` are the values that real brokers can have, None for any. A `file` is a path, unless it is empty
    or one of `words`."""

    without: Without = lambda scenario: ""
    real: tuple[Any, ...] | None = None
    file: bool = False
    words: tuple[str, ...] = ()


_CPU_TIME = "cpu is free: expected measured, or a calibration file"
_RULES = {
    **dict.fromkeys(
        (
            "seed",
            "load",
            "topology",
            "publishers",
            "subscribers",
            "duration_s",
            "event_rate",
            "batch",
            "update_rate",
            "pace",
            "delay_ms",
            "routing",
        ),
        FieldRule(),
    ),
    "name": FieldRule(lambda scenario: "a name changes nothing"),
    "brokers": FieldRule(_brokers),
    "types": FieldRule(_only_with("load", "trading", "market")),
    "speeds": FieldRule(_only_with("load", "detectors"), file=True),
    "sensors": FieldRule(_only_with("load", "detectors"), file=True),
    "resubscribe": FieldRule(_only_with("routing", "static"), real=("subscribe-first", "unsubscribe-first")),
    "engine": FieldRule(real=tuple(engine_names())),
    "cpu": FieldRule(real=("free",), file=True, words=("free", "measured")),
    "cpu_scale": FieldRule(lambda scenario: _CPU_TIME if scenario.cpu == "free" else "", real=(1.0,)),
}


def _rule(field: str, default: Any) -> FieldRule:
    return _RULES.get(field) or FieldRule(real=(default,))


def without_effect(scenario: Scenario, names: Iterable[str]) -> dict[str, str]:
    """Those of the fields that have no effect in this scenario, and why."""
    reasons = {name: _RULES[name].without(scenario) for name in names if name in _RULES}
    return {name: reason for name, reason in reasons.items() if reason}


def effective(scenario: Scenario) -> Scenario:
    """The scenario with the default of every field that has no effect: equal ones have equal runs."""
    idle = without_effect(scenario, _RULES)
    defaults: dict[str, Any] = {field.name: field.default for field in fields(scenario) if field.name in idle}
    return scenario.having(**defaults)


def beyond_real(scenario: Scenario) -> str:
    """The first field that real brokers cannot have, as "loss is 0.1: expected 0.0"; "" if there is none."""
    for field in fields(scenario):
        value, real = getattr(scenario, field.name), _rule(field.name, field.default).real
        if real is not None and value not in real:
            return f"{field.name} is {value!r}: expected {' or '.join(map(repr, real))}"
    return ""


def inputs_of(scenario: Scenario) -> dict[str, str]:
    """The SHA-256 of the files that fields name, by field; "" for one that cannot be read."""
    hashes = {}
    for name, rule in _RULES.items():
        value = getattr(scenario, name)
        if rule.file and value not in ("", *rule.words):
            try:
                hashes[name] = hashlib.sha256(Path(value).read_bytes()).hexdigest()
            except OSError:
                hashes[name] = ""
    return hashes


def with_paths(values: Mapping[str, Any], folder: str | Path) -> dict[str, Any]:
    """The values of fields with the paths among them absolute: relative ones are relative to `folder`."""

    def resolved(name: str, value: Any) -> Any:
        rule = _RULES.get(name)
        if rule is None or not rule.file or not isinstance(value, str) or value in ("", *rule.words):
            return value
        return os.path.abspath(Path(folder) / value)

    return {name: resolved(name, value) for name, value in values.items()}


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
