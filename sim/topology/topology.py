"""A topology: brokers, and the links between them with their delays.

Invariant: the links form a tree, since the routing of Jayaram et al. (section 3) requires acyclic overlays.
Brokers and links are ordered, so the same parameters and seed give the same file.
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
"""The default delay of a link, as in Jayaram et al., section 5.3."""


class TopologyError(CoveyError, ValueError):
    """The topology is invalid, or cannot be read or written."""


@dataclass(frozen=True, slots=True)
class TreeLink:
    """A link, whose end `b` dials `a`, and its one-way delay."""

    a: str
    b: str
    delay_ms: float = DELAY_MS


@dataclass(frozen=True)
class Topology:
    """A tree of brokers.

    `positions` are coordinates, `roles` are those of the load ("exchange"); brokers may have neither. Raises
    `TopologyError` if the links are no tree.
    """

    name: str
    brokers: tuple[str, ...]
    links: tuple[TreeLink, ...]
    positions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.brokers:
            raise TopologyError(f"topology {self.name}: it has no brokers; expected at least one")
        known = dict.fromkeys(self.brokers)
        if len(known) != len(self.brokers):
            twice = next(b for b in known if self.brokers.count(b) > 1)
            raise TopologyError(f"topology {self.name}: broker {twice} occurs twice")
        for link in self.links:
            for end in (link.a, link.b):
                if end not in known:
                    raise TopologyError(
                        f"topology {self.name}: a link names {end!r}, which is not one of its brokers"
                    )
            if not 0 <= link.delay_ms < float("inf"):
                raise TopologyError(
                    f"topology {self.name}: the delay of link {link.a} - {link.b} is {link.delay_ms!r} ms: "
                    "expected a number of at least 0"
                )
        graph = self.graph()
        if graph.number_of_edges() != len(self.links):
            raise TopologyError(f"topology {self.name}: a link occurs twice, or connects a broker to itself")
        reachable = nx.node_connected_component(graph, self.brokers[0])
        unreachable = ", ".join(b for b in self.brokers if b not in reachable)
        if unreachable:
            raise TopologyError(f"topology {self.name}: no path from {self.brokers[0]} to {unreachable}")
        if len(self.links) != len(self.brokers) - 1:
            cycle = " - ".join(str(a) for a, _ in nx.find_cycle(graph))
            raise TopologyError(f"topology {self.name}: the links {cycle} form a cycle; expected a tree")

    def graph(self) -> Any:
        """The topology as a networkx graph, whose edges have a `delay_ms`."""
        graph = nx.Graph()
        graph.add_nodes_from(self.brokers)
        graph.add_edges_from((link.a, link.b, {"delay_ms": link.delay_ms}) for link in self.links)
        return graph

    def with_role(self, *roles: str) -> tuple[str, ...]:
        """The brokers that have one of these roles, in order."""
        return tuple(broker for broker in self.brokers if self.roles.get(broker) in roles)

    def summary(self) -> dict[str, Any]:
        """Its size, leaves, largest degree, roles, and the longest paths by links and by delay."""
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
            "longest_path_links": int(_farthest(graph, start, None)[1]),
            "longest_path_ms": round(float(_farthest(graph, slow, "delay_ms")[1]), 6),
            "roles": counts,
        }


def _farthest(graph: Any, start: str, weight: str | None) -> tuple[str, float]:
    """The broker farthest from `start`, and its distance; from there, it is the longest path of the tree."""
    lengths: dict[str, float] = nx.single_source_dijkstra_path_length(
        graph, start, weight=weight or (lambda *_: 1)
    )
    return max(lengths.items(), key=lambda item: item[1])


def of_overlay(overlay: Overlay) -> Topology:
    """The topology of an overlay file."""
    links = tuple(TreeLink(a, b, overlay.delay_ms(a, b)) for a, b in overlay.links)
    return Topology(overlay.name, tuple(overlay.brokers), links)
