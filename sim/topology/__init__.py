"""Topologies of overlays: generated, read from graphs, checked, drawn, exported to overlay files."""

from covey.sim.topology.export import compose_file, overlay_file
from covey.sim.topology.graphs import read_graph, spanning_tree
from covey.sim.topology.topology import (
    KINDS,
    KINDS_BY_PARAMETER,
    Topology,
    TopologyError,
    TreeLink,
    make_topology,
    of_overlay,
)

__all__ = [
    "KINDS",
    "KINDS_BY_PARAMETER",
    "Topology",
    "TopologyError",
    "TreeLink",
    "compose_file",
    "make_topology",
    "of_overlay",
    "overlay_file",
    "read_graph",
    "spanning_tree",
]
