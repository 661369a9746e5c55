"""The measuring baselines by name, as options of `Broker`: which poset, and what matches.

They are for the simulator and the benchmarks. An overlay file offers the forest and the engines alone.
"""

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
"""The name, among those of engines, of matching by walking the poset; it walks a diagram."""


class BrokerOptions(TypedDict):
    engine: str | MatchingFactory
    poset: Callable[[], Poset]


def broker_options(engine: str, poset: str = "forest") -> BrokerOptions:
    """The options of `Broker` for an engine and a poset by name; the engine "poset" implies "diagram", or
    "diagram-local" if that is named."""
    if engine == POSET_ENGINE:
        return {"engine": PosetMatching, "poset": LocalDiagram if poset == "diagram-local" else Diagram}
    return {"engine": engine, "poset": POSETS[poset]}
