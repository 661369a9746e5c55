"""Topologies from given graphs: a spanning tree of what a file describes.

Files: GraphML; edge lists (`a b` or `a b weight` per line); CSV of located sensors (an id and either latitude
and longitude, or x and y). Edges are weighed by `length`, else `weight`, else 1; located places are joined by
the shortest tree of all, with distances in metres where degrees are given. An edge's `delay_ms` becomes the
link's delay.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from covey.sim.topology.topology import DELAY_MS, Joint, Topology, TopologyError

_EARTH_M = 6_371_000.0
_ID_COLUMNS = ("sensor_id", "id", "name")


def read_graph(path: str | Path) -> Any:
    """The undirected graph that a file describes; located nodes carry `position`.

    `TopologyError` naming the file for one that cannot be read or describes no graph.
    """
    path = Path(path)
    readers = {".graphml": _graphml, ".csv": _located, ".txt": _edge_list, ".edgelist": _edge_list}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise TopologyError(f"{path}: unknown kind of graph file; expected one of {', '.join(readers)}")
    try:
        graph = reader(path)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TopologyError(f"{path}: cannot be read: it is not UTF-8 text") from None
    if not graph.number_of_nodes():
        raise TopologyError(f"{path}: it has no nodes; expected at least one")
    return graph


def spanning_tree(graph: Any, name: str, *, delay_ms: float = DELAY_MS) -> Topology:
    """The spanning tree of least weight, as a topology.

    `TopologyError` if the graph is not connected, names a broker twice, or has a weight that is no number.
    """
    named = nx.relabel_nodes(graph, {node: str(node) for node in graph})
    if named.number_of_nodes() != graph.number_of_nodes():
        raise TopologyError(f"graph {name}: two nodes have the same name as text")
    nodes = list(named.nodes)
    parts: list[set[str]] = list(nx.connected_components(named))
    if len(parts) > 1:
        smallest: set[str] = min(parts, key=lambda part: len(part))
        raise TopologyError(
            f"graph {name}: it falls into {len(parts)} parts; "
            f"nothing joins {', '.join(sorted(smallest)[:5])} with the rest"
        )
    for a, b, data in named.edges(data=True):
        data["_weight"] = _number(data, ("length", "weight"), 1.0, f"graph {name}: edge {a} - {b}")
    tree = nx.minimum_spanning_tree(named, "_weight", "kruskal")
    links = tuple(
        Joint(a, b, _number(named.edges[a, b], ("delay_ms",), delay_ms, f"graph {name}: edge {a} - {b}"))
        for a, b in nx.bfs_edges(tree, nodes[0])
    )
    positions = {node: data["position"] for node, data in named.nodes(data=True) if "position" in data}
    return Topology(name, tuple(nodes), links, positions=positions)


def _number(data: dict[str, Any], names: tuple[str, ...], default: float, where: str) -> float:
    for name in names:
        if name in data:
            try:
                number = float(data[name])
            except (TypeError, ValueError):
                number = float("nan")
            if not 0 <= number < float("inf"):
                raise TopologyError(f"{where}: {name} is {data[name]!r}; expected a number from 0 on")
            return number
    return default


def _graphml(path: Path) -> Any:
    from xml.etree.ElementTree import ParseError

    try:
        graph = nx.Graph(nx.read_graphml(path))
    except (ParseError, nx.NetworkXError, ValueError, KeyError) as error:
        raise TopologyError(f"{path}: no GraphML: {error}") from None
    for node, data in graph.nodes(data=True):
        if "x" in data and "y" in data:
            place = _place(data["x"], data["y"])
            if place is None:
                raise TopologyError(
                    f"{path}: node {node} is at x {data['x']!r}, y {data['y']!r}; expected numbers"
                )
            data["position"] = place
    return graph


def _edge_list(path: Path) -> Any:
    graph = nx.Graph()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (2, 3):
            raise TopologyError(f"{path}: line {number} is {line!r}; expected two names and perhaps a weight")
        graph.add_edge(words[0], words[1], **({"weight": words[2]} if len(words) == 3 else {}))
    return graph


def _located(path: Path) -> Any:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        key = next((column for column in _ID_COLUMNS if column in columns), None)
        degrees = {"latitude", "longitude"} <= set(columns)
        pair = ("longitude", "latitude") if degrees else ("x", "y")
        if key is None or not set(pair) <= set(columns):
            raise TopologyError(
                f"{path}: its columns are {', '.join(columns) or 'none'}; expected one of "
                f"{', '.join(_ID_COLUMNS)}, and latitude and longitude, or x and y"
            )
        names: list[str] = []
        places: list[tuple[float, float]] = []
        for number, row in enumerate(reader, 2):
            place = _place(row[pair[0]], row[pair[1]])
            if place is None or not row[key]:
                raise TopologyError(f"{path}: line {number} has no name or no {pair[0]} and {pair[1]}")
            names.append(row[key])
            places.append(place)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TopologyError(f"{path}: {twice} is there twice")
    graph = nx.Graph()
    for name, place in zip(names, places, strict=True):
        graph.add_node(name, position=place)
    metres = _project(np.array(places, dtype=np.float64).reshape(-1, 2), degrees)
    for a, b, length in _shortest_tree(metres):
        graph.add_edge(names[a], names[b], length=length)
    return graph


def _place(x: Any, y: Any) -> tuple[float, float] | None:
    """Two finite numbers; None for what is none."""
    try:
        place = (float(x), float(y))
    except (TypeError, ValueError):
        return None
    return place if np.isfinite(place).all() else None


def planar(positions: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Longitudes and latitudes in degrees, on a plane that is true around their middle, in metres."""
    metres = _project(np.array(list(positions.values()), dtype=np.float64).reshape(-1, 2), True)
    return {name: (float(x), float(y)) for name, (x, y) in zip(positions, metres, strict=True)}


def _project(places: npt.NDArray[np.float64], degrees: bool) -> npt.NDArray[np.float64]:
    """Degrees onto a plane that is true around the middle of the places, in metres; x and y as they are."""
    if not degrees or not len(places):
        return places
    radians = np.radians(places)
    scale = np.array([np.cos(radians[:, 1].mean()), 1.0])
    return np.asarray(_EARTH_M * radians * scale)


def _shortest_tree(places: npt.NDArray[np.float64]) -> list[tuple[int, int, float]]:
    """Prim's algorithm on the complete graph of n places, O(n^2) time and O(n) memory."""
    count = len(places)
    if not count:
        return []
    nearest = np.zeros(count, np.int64)
    distance = np.full(count, np.inf)
    outside = np.ones(count, np.bool_)
    at = 0
    found = []
    for _ in range(count - 1):
        outside[at] = False
        here = np.hypot(*(places - places[at]).T)
        closer = outside & (here < distance)
        distance[closer], nearest[closer] = here[closer], at
        at = int(np.argmin(np.where(outside, distance, np.inf)))
        found.append((int(nearest[at]), at, float(distance[at])))
    return found
