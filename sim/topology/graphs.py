"""Topologies from graph files, as minimum spanning trees. Formats: GraphML; edge lists (`a b` or `a b weight`
per line); CSV of located sensors (an id and either latitude and longitude, or x and y). The weight of an edge
is its `length`, else `weight`, else 1; between sensors the distance, in metres if they have latitudes. An
edge's `delay_ms` is the delay of the link."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from covey.sim.topology.topology import DELAY_MS, Topology, TopologyError, TreeLink

_EARTH_M = 6_371_000.0
_ID_COLUMNS = ("sensor_id", "id", "name")


def read_graph(path: str | Path) -> Any:
    """The undirected graph of a file; located nodes have a `position`. Raises `TopologyError`, which names
    the file, if it cannot be read or contains no graph."""
    path = Path(path)
    readers = {".graphml": _graphml, ".csv": _sensors, ".txt": _edge_list, ".edgelist": _edge_list}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise TopologyError(f"{path}: unknown graph format; expected one of {', '.join(readers)}")
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
    """The minimum spanning tree. Raises `TopologyError` if the graph is not connected, has two nodes of one
    name, or an invalid weight."""
    named = nx.relabel_nodes(graph, {node: str(node) for node in graph})
    if named.number_of_nodes() != graph.number_of_nodes():
        raise TopologyError(f"graph {name}: two nodes have the same name")
    nodes = list(named.nodes)
    components: list[set[str]] = list(nx.connected_components(named))
    if len(components) > 1:
        smallest: set[str] = min(components, key=lambda component: len(component))
        raise TopologyError(
            f"graph {name}: it has {len(components)} components; "
            f"no edge connects {', '.join(sorted(smallest)[:5])} to the others"
        )
    for a, b, data in named.edges(data=True):
        data["_weight"] = _number(data, ("length", "weight"), 1.0, f"graph {name}: edge {a} - {b}")
    tree = nx.minimum_spanning_tree(named, "_weight", "kruskal")
    links = tuple(
        TreeLink(a, b, _number(named.edges[a, b], ("delay_ms",), delay_ms, f"graph {name}: edge {a} - {b}"))
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
                raise TopologyError(f"{where}: {name} is {data[name]!r}; expected a number of at least 0")
            return number
    return default


def _graphml(path: Path) -> Any:
    from xml.etree.ElementTree import ParseError

    try:
        graph = nx.Graph(nx.read_graphml(path))
    except (ParseError, nx.NetworkXError, ValueError, KeyError) as error:
        raise TopologyError(f"{path}: not GraphML: {error}") from None
    for node, data in graph.nodes(data=True):
        if "x" in data and "y" in data:
            position = _position(data["x"], data["y"])
            if position is None:
                raise TopologyError(
                    f"{path}: node {node} is at x {data['x']!r}, y {data['y']!r}; expected numbers"
                )
            data["position"] = position
    return graph


def _edge_list(path: Path) -> Any:
    graph = nx.Graph()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (2, 3):
            raise TopologyError(f"{path}: line {number} is {line!r}; expected two names, perhaps a weight")
        graph.add_edge(words[0], words[1], **({"weight": words[2]} if len(words) == 3 else {}))
    return graph


def _sensors(path: Path) -> Any:
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
        positions: list[tuple[float, float]] = []
        for number, row in enumerate(reader, 2):
            position = _position(row[pair[0]], row[pair[1]])
            if position is None or not row[key]:
                raise TopologyError(f"{path}: line {number} has no name or no {pair[0]} and {pair[1]}")
            names.append(row[key])
            positions.append(position)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TopologyError(f"{path}: {twice} occurs twice")
    graph = nx.Graph()
    for name, position in zip(names, positions, strict=True):
        graph.add_node(name, position=position)
    metres = _project(np.array(positions, dtype=np.float64).reshape(-1, 2), degrees)
    for a, b, length in _shortest_tree(metres):
        graph.add_edge(names[a], names[b], length=length)
    return graph


def _position(x: Any, y: Any) -> tuple[float, float] | None:
    try:
        position = (float(x), float(y))
    except (TypeError, ValueError):
        return None
    return position if np.isfinite(position).all() else None


def planar(positions: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Longitudes and latitudes in degrees, projected to metres on a plane around their mean latitude."""
    metres = _project(np.array(list(positions.values()), dtype=np.float64).reshape(-1, 2), True)
    return {name: (float(x), float(y)) for name, (x, y) in zip(positions, metres, strict=True)}


def _project(positions: npt.NDArray[np.float64], degrees: bool) -> npt.NDArray[np.float64]:
    """As `planar`, for an array; coordinates that are not degrees are unchanged."""
    if not degrees or not len(positions):
        return positions
    radians = np.radians(positions)
    scale = np.array([np.cos(radians[:, 1].mean()), 1.0])
    return np.asarray(_EARTH_M * radians * scale)


def _shortest_tree(positions: npt.NDArray[np.float64]) -> list[tuple[int, int, float]]:
    """Prim's algorithm on the complete graph of n positions, in O(n^2) time and O(n) memory."""
    count = len(positions)
    if not count:
        return []
    nearest = np.zeros(count, np.int64)
    distance = np.full(count, np.inf)
    outside = np.ones(count, np.bool_)
    at = 0
    edges = []
    for _ in range(count - 1):
        outside[at] = False
        here = np.hypot(*(positions - positions[at]).T)
        closer = outside & (here < distance)
        distance[closer], nearest[closer] = here[closer], at
        at = int(np.argmin(np.where(outside, distance, np.inf)))
        edges.append((int(nearest[at]), at, float(distance[at])))
    return edges
