"""The systems that Jayaram et al. compare (section 5.1), and Covey's own, as options of a scenario.

They differ in three things: what matches events (the poset itself, or an engine beside it), how the poset is
kept, and how a subscription changes. Links, sessions, wire format and process are the same for all, so that a
difference between two of them is a difference of the algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.sim.scenario.scenario import Scenario, ScenarioError


@dataclass(frozen=True, slots=True)
class System:
    """`change` is "parametric", "subscribe-first" or "unsubscribe-first"."""

    name: str
    engine: str
    poset: str
    change: str
    description: str

    def applied_to(self, scenario: Scenario) -> Scenario:
        """The scenario, run by this system."""
        return scenario.having(
            engine=self.engine,
            poset=self.poset,
            routing="parametric" if self.change == "parametric" else "static",
            resubscribe=scenario.resubscribe if self.change == "parametric" else self.change,
        )


_PARTS = {
    "siena": ("poset", "diagram", "Siena: events are matched by walking the poset"),
    "rete": ("rete", "diagram", "the paper's second system: the same poset, matching by a Rete engine"),
    "covey": ("cluster", "forest", "Covey: the forest of witnesses, matching by the cluster engine"),
}
_CHANGES = {
    "subscribe-first": "a change is a new subscription, then the end of the old one",
    "unsubscribe-first": "a change is the end of the old subscription, then a new one",
    "parametric": "a change is an update",
}

SYSTEMS: dict[str, System] = {
    f"{part}-{change}": System(f"{part}-{change}", engine, poset, change, f"{text}; {_CHANGES[change]}")
    for part, (engine, poset, text) in _PARTS.items()
    for change in _CHANGES
}
"""By name. `siena-parametric` is the paper's UPDSiena, `rete-subscribe-first` its EventJava (resub), and
`rete-parametric` its EventJava."""


def find_system(name: str) -> System:
    """The system of that name; `ScenarioError` if there is none."""
    if name not in SYSTEMS:
        raise ScenarioError(f"system is {name!r}: expected one of {', '.join(SYSTEMS)}")
    return SYSTEMS[name]
