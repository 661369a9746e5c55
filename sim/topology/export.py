"""A topology as an overlay file, a compose file, or a picture."""

from __future__ import annotations

from math import cos, pi, sin
from pathlib import Path, PurePosixPath
from typing import Any

import networkx as nx
import yaml

from covey.sim.topology.topology import Topology, TopologyError

FIRST_PORT = 7001
_CONTAINER_PORT = 7001


def overlay_file(topology: Topology, *, port: int = FIRST_PORT, containers: bool = False) -> str:
    """The overlay file: brokers at 127.0.0.1 from `port` on, or each in a container of its name. Raises
    `TopologyError` if the ports do not suffice."""
    last = port + len(topology.brokers) - 1
    if not containers and not 0 < port <= last < 65_536:
        raise TopologyError(
            f"{len(topology.brokers)} brokers from port {port} on need ports up to {last}: "
            "expected at most 65535"
        )
    lines = [f"overlay: {_quoted(topology.name)}", "routing: parametric"]
    if containers:
        lines.append("insecure: true  # plain text between containers; docs/security.md has TLS")
    lines.append("brokers:")
    for number, broker in enumerate(topology.brokers):
        address = (
            f'{{address: "{broker}:{_CONTAINER_PORT}", listen: "0.0.0.0:{_CONTAINER_PORT}"}}'
            if containers
            else f'{{address: "127.0.0.1:{port + number}"}}'
        )
        role = topology.roles.get(broker)
        lines.append(f"  {_quoted(broker)}: {address}" + (f"  # {role}" if role else ""))
    lines.append("links:" if topology.links else "links: []")
    for link in topology.links:
        ends = f"[{_quoted(link.a)}, {_quoted(link.b)}]"
        lines.append(f"  - {{ends: {ends}, delay_ms: {link.delay_ms:g}}}")
    return "\n".join(lines) + "\n"


def compose_file(topology: Topology, overlay: str, *, port: int = FIRST_PORT) -> str:
    """A compose file with a container and a host port for each broker of the overlay file `overlay`."""
    for broker in topology.brokers:
        if not broker.isascii() or not broker.replace("-", "").replace("_", "").isalnum():
            raise TopologyError(f"broker {broker!r}: expected letters, digits, - and _ for a container")
    source = overlay if PurePosixPath(overlay).is_absolute() else f"./{overlay}"
    common = {
        "image": "covey",
        "pull_policy": "never",
        "init": True,
        "restart": "unless-stopped",
        "healthcheck": {
            "test": ["CMD", "covey", "health"],
            "interval": "10s",
            "timeout": "10s",
            "start_period": "60s",
            "retries": 3,
        },
        "stop_grace_period": "15s",
        "mem_limit": "1g",
        "pids_limit": 200,
        "ulimits": {"nofile": 16_384},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "volumes": [f"{source}:/etc/covey/overlay.yaml:ro"],
    }
    services = {
        broker: {
            **common,
            "environment": {"COVEY_BROKER": broker},
            "ports": [f"127.0.0.1:{port + number}:{_CONTAINER_PORT}"],
        }
        for number, broker in enumerate(topology.brokers)
    }
    comment = f"# {len(topology.brokers)} brokers of the image `covey` (docker build -t covey .).\n"
    return comment + yaml.dump({"services": services}, Dumper=_Plain, sort_keys=False)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _quoted(name: str) -> str:
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum() and name[0].isalpha()
    if plain and isinstance(yaml.safe_load(name), str):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


_NAMES_UP_TO = 60


def draw(topology: Topology, path: str | Path) -> None:
    """Write a PNG, or the format of another suffix (.svg, .pdf): brokers at their positions, or as a radial
    tree, coloured by role."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    graph = topology.graph()
    located = len(topology.positions) == len(topology.brokers)
    positions = dict(topology.positions) if located else _radial(graph)
    figure = Figure(figsize=(9, 7), dpi=150, layout="constrained")
    axes = figure.subplots()
    roles = list(dict.fromkeys(topology.roles.values()))
    colours = {role: f"C{i % 10}" for i, role in enumerate(roles)}
    slowest = max((link.delay_ms for link in topology.links), default=0.0)
    for link in topology.links:
        (x, y), (u, v) = positions[link.a], positions[link.b]
        width = 0.6 + (1.6 * link.delay_ms / slowest if slowest else 0.0)
        axes.plot([x, u], [y, v], color="#9aa5b1", linewidth=width, zorder=1)
    size = max(6.0, 260.0 / (1 + len(topology.brokers) / 12))
    xs, ys = zip(*(positions[broker] for broker in topology.brokers), strict=True)
    colour = [colours.get(topology.roles.get(broker, ""), "#1f4e79") for broker in topology.brokers]
    axes.scatter(xs, ys, s=size, c=colour, zorder=2, edgecolors="white", linewidths=0.6)
    if len(topology.brokers) <= _NAMES_UP_TO:
        for broker in topology.brokers:
            axes.annotate(broker, positions[broker], xytext=(4, 4), textcoords="offset points", fontsize=7)
    if roles and len(roles) <= 10:
        handles = [
            Line2D([], [], marker="o", linestyle="", color=colours[r], label=r.replace("_", " "))
            for r in roles
        ]
        axes.legend(handles=handles, frameon=False, fontsize=8)
    axes.set_aspect("equal" if not located else "auto")
    if not located:
        axes.set_axis_off()
    axes.set_title(
        f"{topology.name}: {len(topology.brokers)} brokers, {len(topology.links)} links", fontsize=10
    )
    figure.savefig(path)


def _radial(graph: Any) -> dict[str, tuple[float, float]]:
    """The middle of the longest path in the centre, and a ring per distance from it."""
    start = next(iter(graph))
    end = list(nx.single_source_shortest_path_length(graph, start))[-1]
    longest = max(nx.single_source_shortest_path(graph, end).values(), key=len)
    root = longest[len(longest) // 2]
    children = dict(nx.bfs_successors(graph, root))
    order = [root, *(child for _, child in nx.bfs_edges(graph, root))]
    leaves: dict[str, int] = {}
    for broker in reversed(order):
        leaves[broker] = sum(leaves[child] for child in children.get(broker, ())) or 1
    wedges = {root: (0.0, 2 * pi, 0)}
    positions = {root: (0.0, 0.0)}
    for broker in order:
        start_angle, width, ring = wedges[broker]
        for child in children.get(broker, ()):
            share = width * leaves[child] / leaves[broker]
            wedges[child] = (start_angle, share, ring + 1)
            angle = start_angle + share / 2
            positions[child] = ((ring + 1) * cos(angle), (ring + 1) * sin(angle))
            start_angle += share
    return positions
