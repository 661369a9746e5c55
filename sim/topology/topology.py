"""A topology: brokers, the links between them with their delays, and where brokers stand if that is known.

Invariant: the links form a tree over the brokers, since the routing of Jayaram et al. (section 3) holds for
acyclic overlays; `Topology` refuses anything else. Brokers and links keep the order in which they were made,
so that the same parameters and seed give the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import networkx as nx

from covey.matcher.errors import CoveyError

if TYPE_CHECKING:
    from covey.overlay.node.overlay import Overlay

DELAY_MS = 10.0
"""The delay of a link where nothing else is said, as in Jayaram et al., section 5.3."""


class TopologyError(CoveyError, ValueError):
    """No topology can be made of this."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A link between two brokers, of which the second dials the first, and its delay one way."""

    a: str
    b: str
    delay_ms: float = DELAY_MS


@dataclass(frozen=True)
class Topology:
    """A tree of brokers.

    `positions` are coordinates for drawing, `roles` say what a broker is ("exchange"); both may leave brokers
    out. Raises `TopologyError` naming what keeps the links from being a tree.
    """

    name: str
    brokers: tuple[str, ...]
    links: tuple[Joint, ...]
    positions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.brokers:
            raise TopologyError(f"topology {self.name}: it has no brokers; expected at least one")
        known = dict.fromkeys(self.brokers)
        if len(known) != len(self.brokers):
            twice = next(b for b in known if self.brokers.count(b) > 1)
            raise TopologyError(f"topology {self.name}: broker {twice} is there twice")
        for link in self.links:
            for end in (link.a, link.b):
                if end not in known:
                    raise TopologyError(
                        f"topology {self.name}: a link names {end!r}, which is no broker of it"
                    )
            if not 0 <= link.delay_ms < float("inf"):
                raise TopologyError(
                    f"topology {self.name}: the delay of link {link.a} - {link.b} is {link.delay_ms!r} ms: "
                    "expected a number from 0 on"
                )
        graph = self.graph()
        if graph.number_of_edges() != len(self.links):
            raise TopologyError(f"topology {self.name}: a link is there twice or joins a broker with itself")
        apart = set(known) - nx.node_connected_component(graph, self.brokers[0])
        if apart:
            lost = ", ".join(b for b in self.brokers if b in apart)
            raise TopologyError(f"topology {self.name}: no way leads from {self.brokers[0]} to {lost}")
        if len(self.links) != len(self.brokers) - 1:
            cycle = " - ".join(str(a) for a, _ in nx.find_cycle(graph))
            raise TopologyError(f"topology {self.name}: the links {cycle} close a cycle; expected a tree")

    def graph(self) -> Any:
        """The topology as a networkx graph; the links carry `delay_ms`."""
        graph = nx.Graph()
        graph.add_nodes_from(self.brokers)
        graph.add_edges_from((link.a, link.b, {"delay_ms": link.delay_ms}) for link in self.links)
        return graph

    def with_role(self, *roles: str) -> tuple[str, ...]:
        """The brokers that have one of these roles, in order."""
        return tuple(broker for broker in self.brokers if self.roles.get(broker) in roles)

    def summary(self) -> dict[str, Any]:
        """What a person wants to know of it: size, depth, degrees, the longest way in links and in time."""
        graph = self.graph()
        degrees = dict(graph.degree())
        start = _farthest(graph, self.brokers[0], None)[0]
        slow = _farthest(graph, self.brokers[0], "delay_ms")[0]
        counts: dict[str, int] = {}
        for role in self.roles.values():
            counts[role] = counts.get(role, 0) + 1
        return {
            "name": self.name,
            "brokers": len(self.brokers),
            "links": len(self.links),
            "leaves": sum(degree <= 1 for degree in degrees.values()),
            "largest_degree": max(degrees.values()),
            "longest_way_links": int(_farthest(graph, start, None)[1]),
            "longest_way_ms": round(float(_farthest(graph, slow, "delay_ms")[1]), 6),
            "roles": counts,
        }


def _farthest(graph: Any, start: str, weight: str | None) -> tuple[str, float]:
    """The broker farthest from `start`, and how far; in a tree, twice this gives the longest way of all."""
    lengths: dict[str, float] = nx.single_source_dijkstra_path_length(
        graph, start, weight=weight or (lambda *_: 1)
    )
    return max(lengths.items(), key=lambda item: item[1])


def of_overlay(overlay: Overlay) -> Topology:
    """The topology of an overlay file; links without a delay have none."""
    links = tuple(Joint(a, b, overlay.delay_ms(a, b)) for a, b in overlay.links)
    return Topology(overlay.name, tuple(overlay.brokers), links)
