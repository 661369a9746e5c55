"""The kinds of topology that can be made: the usual trees, and those of Jayaram et al., 5.4 and 5.5.

All take the number of brokers and a seed, and give the same topology for the same arguments. Brokers are b1,
b2, ...; the roles of AT are exchange, clearing_house, brokerage and firm, those of HTM are the highways.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from math import ceil, hypot, sqrt
from typing import Any

import networkx as nx

from covey.sim.topology.topology import DELAY_MS, Joint, Topology, TopologyError

EXTENT = 1000.0
"""The city of HTM is EXTENT x EXTENT, as in the workload."""


def make_topology(
    kind: str, brokers: int, *, seed: int = 0, delay_ms: float = DELAY_MS, branching: int = 2
) -> Topology:
    """A topology of a kind in `KINDS` with so many brokers. `branching` is the balanced tree's.

    `TopologyError` for another kind, or fewer brokers than the kind needs.
    """
    maker = KINDS.get(kind)
    if maker is None:
        raise TopologyError(f"topology {kind!r}: expected one of {', '.join(KINDS)}")
    if brokers < 1:
        raise TopologyError(f"topology {kind}: {brokers} brokers; expected at least 1")
    if branching < 1:
        raise TopologyError(f"topology {kind}: branching is {branching}; expected at least 1")
    return maker(brokers, random.Random(seed), delay_ms, branching)


def _numbered(kind: str, count: int, pairs: Any, delay_ms: float) -> Topology:
    """A topology over b1 .. b<count> of pairs of numbers from 0 on; the one nearer to b1 is dialled."""
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(pairs)
    links = tuple(Joint(f"b{a + 1}", f"b{b + 1}", delay_ms) for a, b in nx.bfs_edges(graph, 0))
    return Topology(kind, tuple(f"b{i + 1}" for i in range(count)), links)


def _line(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    return _numbered("line", count, ((i, i + 1) for i in range(count - 1)), delay_ms)


def _star(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    return _numbered("star", count, ((0, i) for i in range(1, count)), delay_ms)


def _balanced(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    return _numbered("balanced", count, (((i - 1) // branching, i) for i in range(1, count)), delay_ms)


def _random(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """Every labelled tree is equally likely (Pruefer sequences)."""
    if count < 3:
        return _numbered("random", count, ((i, i + 1) for i in range(count - 1)), delay_ms)
    tree = nx.from_prufer_sequence([rng.randrange(count) for _ in range(count - 2)])
    return _numbered("random", count, tree.edges, delay_ms)


def _preferential(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """Each broker joins one that is there, in proportion to how many links that has (Barabasi, Albert)."""
    if count < 3:
        return _numbered("preferential", count, ((i, i + 1) for i in range(count - 1)), delay_ms)
    tree = nx.barabasi_albert_graph(count, 1, seed=rng.randrange(1 << 31))
    return _numbered("preferential", count, tree.edges, delay_ms)


AT_ROLES = ("exchange", "clearing_house", "brokerage", "firm")
_AT_SHARES = (0.1, 0.15, 0.25)


def _trading(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """The hierarchy of AT: exchanges (publishers) and firms (subscribers) are three links apart at least."""
    if count < len(AT_ROLES):
        raise TopologyError(f"topology trading: {count} brokers; expected at least {len(AT_ROLES)}")
    levels: list[list[int]] = []
    made = 0
    for share in _AT_SHARES:
        size = max(1, min(round(share * count), count - made - (len(AT_ROLES) - len(levels) - 1)))
        levels.append(list(range(made, made + size)))
        made += size
    levels.append(list(range(made, count)))
    pairs = [(0, i) for i in levels[0][1:]]  # the exchanges share one market data system
    for above, below in pairwise(levels):
        pairs += [(above[i % len(above)], broker) for i, broker in enumerate(below)]
    plain = _numbered("trading", count, pairs, delay_ms)
    roles = {f"b{b + 1}": role for role, level in zip(AT_ROLES, levels, strict=True) for b in level}
    return Topology(plain.name, plain.brokers, plain.links, roles=roles)


def _highway(count: int, rng: random.Random, delay_ms: float, branching: int) -> Topology:
    """The overlay of HTM: a broker per stretch of road, no hierarchy.

    Highways cross the city from west to east and from south to north. The road graph joins neighbouring
    stretches of a highway, and the stretches nearest to where two highways cross; the overlay is its spanning
    tree of least length.
    """
    each_way = max(1, round(sqrt(count) / 2.5))
    highways = min(2 * each_way, count)
    roads = nx.Graph()
    positions: dict[int, tuple[float, float]] = {}
    stretches: list[list[int]] = []
    made = 0
    for highway in range(highways):
        length = ceil((count - made) / (highways - highway))
        lane = highway // 2
        offset = EXTENT * (lane + rng.uniform(0.25, 0.75)) / each_way
        stretch = list(range(made, made + length))
        made += length
        for place, broker in enumerate(stretch):
            along = EXTENT * (place + 0.5) / length
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
    placed = {f"b{b + 1}": (round(x, 3), round(y, 3)) for b, (x, y) in positions.items()}
    return Topology(plain.name, plain.brokers, plain.links, positions=placed, roles=roles)


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
"""How each kind is made: from the number of brokers, a random generator, the delay and the branching."""

TAKERS: dict[str, tuple[str, ...]] = {
    "branching": ("balanced",),
    "seed": ("random", "preferential", "highway"),
}
"""The kinds for which it matters, by parameter of `make_topology`; the others matter for all."""
