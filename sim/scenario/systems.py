"""The systems that Jayaram et al. compare (section 5.1), and Covey's own, as options of a scenario.

They differ in the matcher (the poset itself, or an engine), in the poset, and in how a subscription changes.
All else is the same, so differences between systems are those of the algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from covey.matcher.errors import closest_of
from covey.sim.baselines.options import POSET_ENGINE
from covey.sim.scenario.scenario import Scenario, ScenarioError
from covey.sim.simulator.cancelling_session import CANCEL_LATE


@dataclass(frozen=True, slots=True)
class System:
    """`change` is "parametric", "subscribe-first", "unsubscribe-first" or "cancel-late"."""

    engine: str
    poset: str
    change: str

    def applied_to(self, scenario: Scenario) -> Scenario:
        """The scenario with the options of this system."""
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
"""By name. `siena-parametric` is the paper's UPDSiena, `rete-subscribe-first` its EventJava (resub), and
`rete-parametric` its EventJava."""


def find_system(name: str) -> System:
    """The system of a name. Raises `ScenarioError` if there is none."""
    if name not in SYSTEMS:
        raise ScenarioError(f"system is {name!r}{closest_of(name, SYSTEMS)}")
    return SYSTEMS[name]


def cost_key(scenario: Scenario) -> tuple[str, str]:
    """Under which system and shape of a load a calibration file has the costs of a scenario: such as
    `siena-static`, `siena-parametric`, or `siena-parametric-local` with the poset "diagram-local", and
    `boxes`, `thresholds` or `types`. A system without a name has those of engine and poset."""
    poset = scenario.poset.removesuffix("-local")
    local = "-local" if scenario.poset != poset and scenario.routing == "parametric" else ""
    system = _COSTS.get((scenario.engine, "diagram" if scenario.engine == POSET_ENGINE else poset))
    return f"{system or f'{scenario.engine}-{poset}'}-{scenario.routing}{local}", _SHAPES[scenario.load]


FREE = (
    "Messages cost brokers no time (`cpu: free`), so systems differ in messages, spurious and lost events "
    "alone; `--cpu measured` with more load shows their delays."
)
"""What can be compared between runs in which brokers take no time, and what shows more."""


def system_of(scenario: Mapping[str, Any]) -> str | None:
    """The name of the system whose options the fields of a scenario are; None if it is none of them."""
    parametric = scenario.get("routing") == "parametric"
    change = "parametric" if parametric else scenario.get("resubscribe")
    options = (scenario.get("engine"), scenario.get("poset"), change)
    return next(
        (name for name, each in SYSTEMS.items() if (each.engine, each.poset, each.change) == options), None
    )
