"""A topology: brokers, and the links between them with their delays. Invariant: the links form a tree, since
the routing of Jayaram et al. (section 3) requires acyclic overlays. Brokers and links are ordered, so the
same arguments give the same file."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, hypot, sqrt
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
    """End `b` dials `a`; the delay is one-way."""

    a: str
    b: str
    delay_ms: float = DELAY_MS


@dataclass(frozen=True)
class Topology:
    """A tree of brokers. `positions` and `roles` (such as "exchange") may lack brokers. Raises
    `TopologyError` if the links are not a tree."""

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
        graph = nx.Graph()
        graph.add_nodes_from(self.brokers)
        graph.add_edges_from((link.a, link.b, {"delay_ms": link.delay_ms}) for link in self.links)
        return graph

    def with_role(self, *roles: str) -> tuple[str, ...]:
        return tuple(broker for broker in self.brokers if self.roles.get(broker) in roles)

    def summary(self) -> dict[str, Any]:
        """Size, leaves, largest degree, roles, and the longest paths by links and by delay."""
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
    """The broker farthest from `start`, and its distance: from that broker it is the tree's longest path."""
    lengths: dict[str, float] = nx.single_source_dijkstra_path_length(
        graph, start, weight=weight or (lambda *_: 1)
    )
    return max(lengths.items(), key=lambda item: item[1])


def of_overlay(overlay: Overlay) -> Topology:
    links = tuple(TreeLink(a, b, overlay.delay_ms(a, b)) for a, b in overlay.links)
    return Topology(overlay.name, tuple(overlay.brokers), links)


EXTENT = 1000.0
"""The city of HTM is EXTENT x EXTENT, as in the load."""


def make_topology(
    kind: str, brokers: int, *, seed: int = 0, delay_ms: float = DELAY_MS, branching: int = 2
) -> Topology:
    """A topology of brokers b1, b2, ... of a kind in `KINDS`; `branching` is for the balanced tree. Raises
    `TopologyError` for an unknown kind, or fewer brokers than the kind needs."""
    maker = KINDS.get(kind)
    if maker is None:
        raise TopologyError(f"topology {kind!r}: expected one of {', '.join(KINDS)}")
    if brokers < 1:
        raise TopologyError(f"topology {kind}: {brokers} brokers; expected at least 1")
    if branching < 1:
        raise TopologyError(f"topology {kind}: branching is {branching}; expected at least 1")
    return maker(brokers, random.Random(seed), delay_ms, branching)


def _numbered(kind: str, count: int, edges: Any, delay_ms: float) -> Topology:
    """Edges are between indices from 0; the end nearer to b1 listens."""
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    links = tuple(TreeLink(f"b{a + 1}", f"b{b + 1}", delay_ms) for a, b in nx.bfs_edges(graph, 0))
    return Topology(kind, tuple(f"b{i + 1}" for i in range(count)), links)


def _line(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    return _numbered("line", count, ((i, i + 1) for i in range(count - 1)), delay_ms)


def _star(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    return _numbered("star", count, ((0, i) for i in range(1, count)), delay_ms)


def _balanced(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    return _numbered("balanced", count, (((i - 1) // branching, i) for i in range(1, count)), delay_ms)


def _random(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """Every labelled tree is equally likely (Prüfer sequences)."""
    if count < 3:
        return _numbered("random", count, ((i, i + 1) for i in range(count - 1)), delay_ms)
    tree = nx.from_prufer_sequence([rng.randrange(count) for _ in range(count - 2)])
    return _numbered("random", count, tree.edges, delay_ms)


def _preferential(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """Each new broker is linked to one with probability proportional to its degree (Barabási, Albert)."""
    if count < 3:
        return _numbered("preferential", count, ((i, i + 1) for i in range(count - 1)), delay_ms)
    tree = nx.barabasi_albert_graph(count, 1, seed=rng.randrange(1 << 31))
    return _numbered("preferential", count, tree.edges, delay_ms)


AT_ROLES = ("exchange", "clearing_house", "brokerage", "firm")
_AT_SHARES = (0.1, 0.15, 0.25)


def _trading(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """The hierarchy of AT (Jayaram et al., section 5.5): at least three links between exchanges (publishers)
    and firms (subscribers)."""
    if count < len(AT_ROLES):
        raise TopologyError(f"topology trading: {count} brokers; expected at least {len(AT_ROLES)}")
    levels: list[list[int]] = []
    placed = 0
    for share in _AT_SHARES:
        size = max(1, min(round(share * count), count - placed - (len(AT_ROLES) - len(levels) - 1)))
        levels.append(list(range(placed, placed + size)))
        placed += size
    levels.append(list(range(placed, count)))
    edges = [(0, i) for i in levels[0][1:]]  # the exchanges share one market data system
    for above, below in pairwise(levels):
        edges += [(above[i % len(above)], broker) for i, broker in enumerate(below)]
    plain = _numbered("trading", count, edges, delay_ms)
    roles = {f"b{b + 1}": role for role, level in zip(AT_ROLES, levels, strict=True) for b in level}
    return Topology(plain.name, plain.brokers, plain.links, roles=roles)


def _highway(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """The overlay of HTM (Jayaram et al., section 5.4): a broker per stretch of road; the roles are the
    highways.

    Highways cross the city from west to east and from south to north. The road graph connects neighbouring
    stretches of a highway, and the stretches nearest to each crossing; the overlay is its minimum spanning
    tree.
    """
    each_way = max(1, round(sqrt(count) / 2.5))
    highways = min(2 * each_way, count)
    roads = nx.Graph()
    positions: dict[int, tuple[float, float]] = {}
    stretches: list[list[int]] = []
    placed = 0
    for highway in range(highways):
        length = ceil((count - placed) / (highways - highway))
        lane = highway // 2
        offset = EXTENT * (lane + rng.uniform(0.25, 0.75)) / each_way
        stretch = list(range(placed, placed + length))
        placed += length
        for index, broker in enumerate(stretch):
            along = EXTENT * (index + 0.5) / length
            positions[broker] = (along, offset) if highway % 2 == 0 else (offset, along)
        stretches.append(stretch)
        roads.add_nodes_from(stretch)
        roads.add_edges_from(pairwise(stretch))
    for west_east in stretches[::2]:
        for south_north in stretches[1::2]:
            crossing = (positions[south_north[0]][0], positions[west_east[0]][1])
            roads.add_edge(
                *(min(s, key=lambda b: _distance(positions[b], crossing)) for s in (west_east, south_north))
            )
    for a, b in roads.edges:
        roads.edges[a, b]["length"] = _distance(positions[a], positions[b])
    plain = _numbered(
        "highway", count, nx.minimum_spanning_edges(roads, "kruskal", "length", data=False), delay_ms
    )
    roles = {
        f"b{b + 1}": f"{'west-east' if i % 2 == 0 else 'south-north'} {i // 2 + 1}"
        for i, stretch in enumerate(stretches)
        for b in stretch
    }
    rounded = {f"b{b + 1}": (round(x, 3), round(y, 3)) for b, (x, y) in positions.items()}
    return Topology(plain.name, plain.brokers, plain.links, positions=rounded, roles=roles)


def _distance(a: tuple[float, float], b: tuple[float, float]) -> float:
    return hypot(a[0] - b[0], a[1] - b[1])


KINDS: dict[str, Callable[[int, random.Random, float, int], Topology]] = {
    "line": _line,
    "star": _star,
    "balanced": _balanced,
    "random": _random,
    "preferential": _preferential,
    "trading": _trading,
    "highway": _highway,
}
"""By kind, a function of the number of brokers, a random generator, the delay and the branching."""

KINDS_BY_PARAMETER: dict[str, tuple[str, ...]] = {
    "branching": ("balanced",),
    "seed": ("random", "preferential", "highway"),
}
"""The kinds that use these parameters of `make_topology`; all kinds use the others."""
