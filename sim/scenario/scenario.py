"""A scenario: an overlay, a load and faults, as a flat YAML file or options; and the systems that Jayaram et
al. compare (section 5.1), and Covey's own, as options of a scenario. The defaults are the AT benchmark of
Jayaram et al., section 5.5. Systems differ only in the matcher (the poset itself or an engine), the poset,
and how a subscription changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from covey.matcher.engine import engine_names
from covey.matcher.errors import CoveyError, closest_of
from covey.overlay.documents import read_document
from covey.sim.baselines.options import POSET_ENGINE, POSETS
from covey.sim.simulator.cancelling_session import CANCEL_LATE
from covey.sim.simulator.cores import SERVICES

LOADS = ("trading", "highway", "market", "quotes", "detectors")
_KINDS = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}


class ScenarioError(CoveyError, ValueError):
    """A scenario is invalid; the message names the field, the value and the expectation."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Rates are per second of virtual time; `event_rate` is per publisher, `update_rate` per subscriber.
    `updates` are "random", a Poisson process, or "even", one at a random moment of each interval. `pace` is
    "timed", or "orderly": each step takes effect everywhere before the next. The measurement begins after
    `warm_up_s` and lasts `duration_s`. With a `window` a publisher has at most that many events under way,
    and `event_rate` is its highest rate (`runs/simulated.py`); 0 is the open loop.

    `topology` is a kind of `covey topology make`, "" for the load's own. `crashes` and `partitions` happen at
    random times. `engine` is a matching engine, or "poset" to match by walking the poset, then Siena's
    "diagram". `cpu` is "free", "measured" or a calibration file; its times are multiplied by `cpu_scale`,
    instead of rates that are too high to simulate. `service` is the order in which a broker takes pending
    messages (`simulator/cores.py`); with `merge` later updates replace those that wait for a link. The CSV
    files `speeds` and `sensors` of the load "detectors" determine its brokers.
    """

    name: str = "scenario"
    seed: int = 0
    load: str = "trading"
    topology: str = ""
    brokers: int = 20
    publishers: int = 5
    subscribers: int = 150
    types: int = 200
    duration_s: float = 10.0
    warm_up_s: float = 0.0
    event_rate: float = 10.0
    batch: int = 1
    window: int = 0
    update_rate: float = 1.0
    updates: str = "random"
    pace: str = "timed"
    delay_ms: float = 10.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    crashes: int = 0
    partitions: int = 0
    routing: str = "parametric"
    resubscribe: str = "subscribe-first"
    engine: str = "naive"
    poset: str = "forest"
    cpu: str = "free"
    cpu_scale: float = 1.0
    service: str = "broker"
    merge: bool = True
    speeds: str = ""
    sensors: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, default = getattr(self, field.name), field.default
            kinds: Any = (int, float) if isinstance(default, float) else type(default)
            if not isinstance(value, kinds) or isinstance(value, bool) is not isinstance(default, bool):
                expected = _KINDS[type(default)]
                raise ScenarioError(f"{field.name} is {value!r}: expected {expected}")
            least = 1 if field.name in ("brokers", "publishers", "batch", "types") else 0
            if not isinstance(value, str) and not least <= value < float("inf"):
                bound = "a finite number" if value == float("inf") else f"at least {least}"
                raise ScenarioError(f"{field.name} is {value!r}: expected {bound}")
        for name, known in (
            ("load", LOADS),
            ("routing", ("parametric", "static")),
            ("resubscribe", ("subscribe-first", "unsubscribe-first", CANCEL_LATE)),
            ("pace", ("timed", "orderly")),
            ("updates", ("random", "even")),
            ("service", SERVICES),
            ("poset", tuple(POSETS)),
            ("engine", (*engine_names(), POSET_ENGINE)),
        ):
            if getattr(self, name) not in known:
                raise ScenarioError(f"{name} is {getattr(self, name)!r}: expected one of {', '.join(known)}")
        if self.load == "detectors" and not (self.speeds and self.sensors):
            raise ScenarioError("load is 'detectors': expected CSV files as speeds and sensors")
        if self.loss >= 1:
            raise ScenarioError(f"loss is {self.loss!r}: expected a probability below 1")
        if self.service != "broker" and self.cpu == "measured":
            raise ScenarioError(
                f"service is {self.service!r} and cpu is 'measured': expected free or a calibration file, "
                "since the cost of a message must be known before it is handled"
            )
        if self.window:
            self._check_window()

    def _check_window(self) -> None:
        if self.window < self.batch:
            raise ScenarioError(
                f"window is {self.window!r}: expected at least batch, {self.batch}, or 0 for the open loop"
            )
        if self.crashes:
            raise ScenarioError(
                f"window is {self.window!r} and crashes is {self.crashes!r}: expected no crashes, which lose "
                "events that would stay in the window"
            )
        if self.pace == "orderly":
            raise ScenarioError(f"window is {self.window!r}: expected 0 with the pace orderly")

    @property
    def lossy(self) -> bool:
        return self.routing == "static" and self.resubscribe == "unsubscribe-first"

    def having(self, **changes: Any) -> Scenario:
        return replace(self, **changes)


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
    """`real` are the values of real brokers, None for any. A `file` is a path, "" or one of `words`."""

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
    """The fields among `names` that have no effect in this scenario, and why."""
    reasons = {name: _RULES[name].without(scenario) for name in names if name in _RULES}
    return {name: reason for name, reason in reasons.items() if reason}


def effective(scenario: Scenario) -> Scenario:
    """The scenario with the default of every field that has no effect: equal ones have equal runs."""
    idle = without_effect(scenario, _RULES)
    defaults: dict[str, Any] = {field.name: field.default for field in fields(scenario) if field.name in idle}
    return scenario.having(**defaults)


def beyond_real(scenario: Scenario) -> str:
    """The first field that real brokers do not support, as "loss is 0.1: expected 0.0"; "" without any."""
    for field in fields(scenario):
        value, real = getattr(scenario, field.name), _rule(field.name, field.default).real
        if real is not None and value not in real:
            return f"{field.name} is {value!r}: expected {' or '.join(map(repr, real))}"
    return ""


def inputs_of(scenario: Scenario) -> dict[str, str]:
    """By field, the SHA-256 of the file that it names; "" if the file cannot be read."""
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
    """The values with absolute paths; relative ones are relative to `folder`."""

    def resolved(name: str, value: Any) -> Any:
        rule = _RULES.get(name)
        if rule is None or not rule.file or not isinstance(value, str) or value in ("", *rule.words):
            return value
        return os.path.abspath(Path(folder) / value)

    return {name: resolved(name, value) for name, value in values.items()}


def check_fields(names: Iterable[object]) -> None:
    """Raise `ScenarioError` for the first name that is not a field of a scenario."""
    known = [field.name for field in fields(Scenario)]
    for name in names:
        if name not in known:
            raise ScenarioError(f"{name} is unknown{closest_of(str(name), known)}")


def load_scenario(path: str | Path, base: Scenario | None = None) -> Scenario:
    """Read a scenario file over the fields of `base`, or the defaults. Its paths are relative to it. Raises
    `ScenarioError`, which names the file."""
    document = read_document(path, ScenarioError)
    if not isinstance(document, dict):
        raise ScenarioError(f"{path}: expected a mapping from field to value")
    try:
        check_fields(document)
        return (base or Scenario()).having(**with_paths(document, Path(path).parent))
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True)
class System:
    """`change` is "parametric", "subscribe-first", "unsubscribe-first" or "cancel-late"."""

    engine: str
    poset: str
    change: str

    def applied_to(self, scenario: Scenario) -> Scenario:
        return scenario.having(
            engine=self.engine,
            poset=self.poset,
            routing="parametric" if self.change == "parametric" else "static",
            resubscribe=scenario.resubscribe if self.change == "parametric" else self.change,
        )


_MATCHERS = {"siena": ("poset", "diagram"), "rete": ("rete", "diagram"), "covey": ("cluster", "forest")}

_COSTS = {matcher_poset: matcher for matcher, matcher_poset in _MATCHERS.items()}
_SHAPES = {
    "highway": "boxes",
    "detectors": "boxes",
    "market": "thresholds",
    "trading": "types",
    "quotes": "types",
}

SYSTEMS = {
    f"{matcher}-{change}": System(engine, poset, change)
    for matcher, (engine, poset) in _MATCHERS.items()
    for change in ("subscribe-first", "unsubscribe-first", CANCEL_LATE, "parametric")
}
"""By name. In the paper `siena-parametric` is UPDSiena, `rete-subscribe-first` EventJava (resub), and
`rete-parametric` EventJava."""


def find_system(name: str) -> System:
    """Raises `ScenarioError` if there is none."""
    if name not in SYSTEMS:
        raise ScenarioError(f"system is {name!r}{closest_of(name, SYSTEMS)}")
    return SYSTEMS[name]


def cost_key(scenario: Scenario) -> tuple[str, str]:
    """The keys of a scenario's costs in a calibration file: a system such as `siena-static`,
    `siena-parametric` or, with the poset "diagram-local", `siena-parametric-local`, and the load's shape
    `boxes`, `thresholds` or `types`. A system without a name has engine and poset in its key."""
    poset = scenario.poset.removesuffix("-local")
    local = "-local" if scenario.poset != poset and scenario.routing == "parametric" else ""
    system = _COSTS.get((scenario.engine, "diagram" if scenario.engine == POSET_ENGINE else poset))
    return f"{system or f'{scenario.engine}-{poset}'}-{scenario.routing}{local}", _SHAPES[scenario.load]


FREE = (
    "Messages cost brokers no time (`cpu: free`), so systems differ in messages, spurious and lost events "
    "alone; `--cpu measured` with more load shows their delays."
)


def system_of(scenario: Mapping[str, Any]) -> str | None:
    parametric = scenario.get("routing") == "parametric"
    change = "parametric" if parametric else scenario.get("resubscribe")
    options = (scenario.get("engine"), scenario.get("poset"), change)
    return next(
        (name for name, each in SYSTEMS.items() if (each.engine, each.poset, each.change) == options), None
    )
