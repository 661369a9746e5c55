"""Generated topologies: common trees, and those of Jayaram et al., sections 5.4 and 5.5.

The same arguments give the same topology. Brokers are b1, b2, ...; their roles are exchange, clearing_house,
brokerage and firm in AT, and the highways in HTM.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from math import ceil, hypot, sqrt
from typing import Any

import networkx as nx

from covey.sim.topology.topology import DELAY_MS, Topology, TopologyError, TreeLink

EXTENT = 1000.0
"""The city of HTM is EXTENT x EXTENT, as in the workload."""


def make_topology(
    kind: str, brokers: int, *, seed: int = 0, delay_ms: float = DELAY_MS, branching: int = 2
) -> Topology:
    """A topology of a kind in `KINDS`. `branching` is that of the balanced tree.

    Raises `TopologyError` for an unknown kind, or fewer brokers than the kind needs.
    """
    maker = KINDS.get(kind)
    if maker is None:
        raise TopologyError(f"topology {kind!r}: expected one of {', '.join(KINDS)}")
    if brokers < 1:
        raise TopologyError(f"topology {kind}: {brokers} brokers; expected at least 1")
    if branching < 1:
        raise TopologyError(f"topology {kind}: branching is {branching}; expected at least 1")
    return maker(brokers, random.Random(seed), delay_ms, branching)


def _numbered(kind: str, count: int, edges: Any, delay_ms: float) -> Topology:
    """A topology of b1 to b<count> with edges between indices from 0; the end nearer to b1 listens."""
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
    """The hierarchy of AT: at least three links between exchanges (publishers) and firms (subscribers)."""
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
    """The overlay of HTM: a broker per stretch of road, without hierarchy.

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
"""The generator of each kind: of the number of brokers, a random generator, the delay and the branching."""

KINDS_BY_PARAMETER: dict[str, tuple[str, ...]] = {
    "branching": ("balanced",),
    "seed": ("random", "preferential", "highway"),
}
"""The kinds that use a parameter of `make_topology`; all use the others."""
