"""The measuring baselines, as options of `Broker`. An overlay file offers the forest and the engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

from covey.overlay.core.covering.poset import Forest, Poset
from covey.sim.baselines.diagram import Diagram
from covey.sim.baselines.local_diagram import LocalDiagram
from covey.sim.baselines.naive_poset import NaivePoset
from covey.sim.baselines.poset_matching import PosetMatching

if TYPE_CHECKING:
    from covey.overlay.core.matching.interest_matching import MatchingFactory

POSETS: dict[str, Callable[[], Poset]] = {
    "forest": Forest,
    "naive": NaivePoset,
    "diagram": Diagram,
    "diagram-local": LocalDiagram,
}
POSET_ENGINE = "poset"
"""An engine name: match by walking the poset, which then is a diagram."""


class BrokerOptions(TypedDict):
    engine: str | MatchingFactory
    poset: Callable[[], Poset]


def broker_options(engine: str, poset: str = "forest") -> BrokerOptions:
    """The engine "poset" implies the poset "diagram", unless "diagram-local" is named."""
    if engine == POSET_ENGINE:
        return {"engine": PosetMatching, "poset": LocalDiagram if poset == "diagram-local" else Diagram}
    return {"engine": engine, "poset": POSETS[poset]}
