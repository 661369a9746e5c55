"""Overlay topologies: made, read from graphs, checked, drawn, and exported to overlay files."""

from covey.sim.topology.export import compose_file, overlay_file
from covey.sim.topology.graphs import read_graph, spanning_tree
from covey.sim.topology.kinds import KINDS, TAKERS, make_topology
from covey.sim.topology.topology import Joint, Topology, TopologyError, of_overlay

__all__ = [
    "KINDS",
    "TAKERS",
    "Joint",
    "Topology",
    "TopologyError",
    "compose_file",
    "make_topology",
    "of_overlay",
    "overlay_file",
    "read_graph",
    "spanning_tree",
]
