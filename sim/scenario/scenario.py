"""A scenario: an overlay, a load and faults, as a flat file or options.

The defaults are the AT benchmark of Jayaram et al., section 5.5: 20 brokers in a hierarchy, 5 publishers,
150 subscribers, 200 event types, and 10 ms per link.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from covey.matcher.engine import engine_names
from covey.matcher.errors import CoveyError
from covey.sim.baselines.options import POSET_ENGINE, POSETS
from covey.sim.simulator.cancelling_session import CANCEL_LATE
from covey.sim.simulator.service import SERVICES

LOADS = ("trading", "highway", "market", "quotes", "detectors")
_KINDS = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}


class ScenarioError(CoveyError, ValueError):
    """A scenario is invalid; the message names the field, the value and the expectation."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Rates are per second of virtual time; `event_rate` is a publisher's, `update_rate` a subscriber's.

    `updates` come at "random", a Poisson process, or "even", one at a random moment of each interval.
    `pace` is "timed", or "orderly": each step takes effect everywhere before the next. The first `warm_up_s`
    are not part of the measurement, which lasts `duration_s`. With a `window` a publisher has at most so many
    events under way and `event_rate` is its highest rate (`closed_loop.py`); 0 is the open loop, in which
    nothing slows a publisher down.

    `topology` is a kind of `covey topology make`, "" for that of the load. `crashes` and `partitions`
    happen at random times. `engine` is a matching engine, or "poset" to match by walking the poset, which
    is then Siena's "diagram" (`systems.py`). `cpu` is "free", "measured" or a calibration file; times are
    multiplied by `cpu_scale`, which replaces rates that are too high to simulate. `service` is the order in
    which a broker takes the messages that wait for it (`simulator/service.py`); `merge` says whether
    updates that wait for a link replace each other. `speeds` and `sensors` are the CSV files of the load
    "detectors", and determine its brokers.
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
        """Whether a change may lose events."""
        return self.routing == "static" and self.resubscribe == "unsubscribe-first"

    def having(self, **changes: Any) -> Scenario:
        """This scenario with some fields changed."""
        return replace(self, **changes)
