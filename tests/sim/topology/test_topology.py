"""Topologies: trees of every kind, from graphs, and files for the overlay's own reader."""

import json
from math import cos, hypot, radians
from pathlib import Path

import networkx as nx
import pytest
import yaml
from commands import run

from covey.overlay.documents import ConfigError
from covey.overlay.node.config import load_overlay
from covey.sim.topology import (
    KINDS,
    KINDS_BY_PARAMETER,
    Topology,
    TopologyError,
    TreeLink,
    compose_file,
    make_topology,
    of_overlay,
    overlay_file,
    read_graph,
    spanning_tree,
)
from covey.sim.topology.export import draw


def reload(topology: Topology, tmp_path: Path) -> Topology:
    file = tmp_path / "overlay.yaml"
    file.write_text(overlay_file(topology))
    return of_overlay(load_overlay(file, {}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("brokers", [4, 5, 20, 97])
def test_every_kind_is_a_tree_of_the_requested_size_determined_by_the_seed(
    kind: str, brokers: int, tmp_path: Path
) -> None:
    topology = make_topology(kind, brokers, seed=3, delay_ms=2.5)
    assert len(topology.brokers) == brokers
    assert nx.is_tree(topology.graph())
    assert topology == make_topology(kind, brokers, seed=3, delay_ms=2.5)
    loaded = reload(topology, tmp_path)
    assert (loaded.name, loaded.brokers, loaded.links) == (topology.name, topology.brokers, topology.links)


def test_one_and_two_brokers() -> None:
    for kind in set(KINDS) - {"trading"}:
        assert make_topology(kind, 1).links == ()
        assert make_topology(kind, 2).links == (TreeLink("b1", "b2"),)


def test_the_kinds_have_their_shapes() -> None:
    assert make_topology("line", 5).summary()["longest_path_links"] == 4
    assert make_topology("star", 5).summary()["largest_degree"] == 4
    assert make_topology("balanced", 7, branching=2).summary()["leaves"] == 4
    assert make_topology("balanced", 13, branching=3).summary()["longest_path_links"] == 4
    assert make_topology("random", 50, seed=1) != make_topology("random", 50, seed=2)
    hub = make_topology("preferential", 300, seed=1).summary()["largest_degree"]
    assert hub > make_topology("random", 300, seed=1).summary()["largest_degree"]
    assert make_topology("line", 3, delay_ms=4).summary()["longest_path_ms"] == 8


def test_trading_has_three_links_between_publishers_and_subscribers() -> None:
    """Jayaram et al., section 5.5, with 20 brokers as there, and with the fewest."""
    for brokers in (4, 20, 200):
        topology = make_topology("trading", brokers)
        distances = dict(nx.all_pairs_shortest_path_length(topology.graph()))
        firms = topology.with_role("firm")
        assert firms
        assert min(distances[e][f] for e in topology.with_role("exchange") for f in firms) >= 3
        assert {topology.roles[b] for b in topology.brokers} == {
            "exchange",
            "clearing_house",
            "brokerage",
            "firm",
        }


def test_highways_have_no_hierarchy_and_lie_in_the_city() -> None:
    topology = make_topology("highway", 20, seed=5)
    assert len(set(topology.roles.values())) >= 4
    assert all(0 <= x <= 1000 and 0 <= y <= 1000 for x, y in topology.positions.values())
    assert topology.summary()["largest_degree"] <= 4
    assert topology.summary()["longest_path_links"] > 6


def test_an_invalid_topology_is_rejected_with_a_reason() -> None:
    with pytest.raises(TopologyError, match="no path from a to c"):
        Topology("t", ("a", "b", "c"), (TreeLink("a", "b"),))
    with pytest.raises(TopologyError, match="form a cycle"):
        Topology("t", ("a", "b", "c"), (TreeLink("a", "b"), TreeLink("b", "c"), TreeLink("c", "a")))
    with pytest.raises(TopologyError, match="names 'x'"):
        Topology("t", ("a",), (TreeLink("a", "x"),))
    with pytest.raises(TopologyError, match="twice"):
        Topology("t", ("a", "a"), ())
    with pytest.raises(TopologyError, match="delay of link a - b is -1"):
        Topology("t", ("a", "b"), (TreeLink("a", "b", -1.0),))
    with pytest.raises(TopologyError, match="expected one of line, star"):
        make_topology("ring", 3)
    with pytest.raises(TopologyError, match="at least 4"):
        make_topology("trading", 3)


def test_an_edge_list_becomes_its_minimum_spanning_tree(tmp_path: Path) -> None:
    file = tmp_path / "net.txt"
    file.write_text("a b 1\nb c 5  # slow\nc a 1\n\nc d 2\n")
    topology = spanning_tree(read_graph(file), "net", delay_ms=7)
    assert {frozenset((link.a, link.b)) for link in topology.links} == {
        frozenset("ab"),
        frozenset("ca"),
        frozenset("cd"),
    }
    assert {link.delay_ms for link in topology.links} == {7}


def test_the_spanning_tree_of_graphml_keeps_delays_and_positions(tmp_path: Path) -> None:
    graph = nx.cycle_graph(4)
    nx.set_edge_attributes(graph, {(0, 1): 9.0, (1, 2): 1.0, (2, 3): 1.0, (3, 0): 1.0}, "length")
    nx.set_edge_attributes(graph, dict.fromkeys(graph.edges, 3.5), "delay_ms")
    nx.set_node_attributes(graph, {n: float(n) for n in graph}, "x")
    nx.set_node_attributes(graph, dict.fromkeys(graph, 1.0), "y")
    file = tmp_path / "net.graphml"
    nx.write_graphml(graph, file)
    topology = spanning_tree(read_graph(file), "net")
    assert frozenset("01") not in {frozenset((link.a, link.b)) for link in topology.links}
    assert {link.delay_ms for link in topology.links} == {3.5}
    assert topology.positions["3"] == (3.0, 1.0)


def test_sensors_are_connected_by_the_minimum_spanning_tree(tmp_path: Path) -> None:
    """Judged by networkx's algorithm on the complete graph."""
    file = tmp_path / "sensors.csv"
    positions = {f"s{i}": (34.0 + (i * 37 % 11) / 100, -118.0 - (i * 53 % 13) / 100) for i in range(12)}
    rows = [f"{name},{latitude},{longitude}" for name, (latitude, longitude) in positions.items()]
    file.write_text("\n".join(["sensor_id,latitude,longitude", *rows]))
    graph = read_graph(file)
    complete = nx.Graph()
    mean_latitude = radians(sum(latitude for latitude, _ in positions.values()) / len(positions))
    for a, (la, lo) in positions.items():
        for b, (lb, lp) in positions.items():
            if a < b:
                length = 6_371_000 * hypot(radians(la - lb), radians(lo - lp) * cos(mean_latitude))
                complete.add_edge(a, b, weight=length)
    best = nx.minimum_spanning_tree(complete).size("weight")
    assert graph.size("length") == pytest.approx(best, rel=1e-9)
    assert len(spanning_tree(graph, "city").brokers) == 12


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="x" for="node" attr.name="x" attr.type="string"/>
<key id="y" for="node" attr.name="y" attr.type="string"/>
<graph edgedefault="undirected"><node id="n"><data key="x">{x}</data><data key="y">2</data></node></graph>
</graphml>
"""


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.txt", "a b c d\n", "line 1 is 'a b c d'"),
        ("a.txt", "a b far\n", "weight is 'far'"),
        ("a.txt", "a b\nc d\n", "has 2 components"),
        ("a.txt", "", "has no nodes"),
        ("a.csv", "place,x\np,1\n", "its columns are place, x"),
        ("a.csv", "id,x,y\np,1,\n", "line 2 has no name or no x and y"),
        ("a.csv", "id,x,y\np,1,1\np,2,2\n", "p occurs twice"),
        ("a.graphml", "<graph", "not GraphML"),
        ("a.graphml", GRAPHML.format(x="west"), "a.graphml: node n is at x 'west', y '2'; expected numbers"),
        ("a.graphml", GRAPHML.format(x="inf"), "a.graphml: node n is at x 'inf', y '2'; expected numbers"),
        ("a.dot", "graph {}", "unknown graph format"),
    ],
)
def test_an_invalid_graph_file_is_rejected_by_name(
    name: str, text: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TopologyError, match=complaint):
        spanning_tree(read_graph(tmp_path / name), "a")


def test_brokers_with_and_without_places_are_drawn(tmp_path: Path) -> None:
    for kind in ("star", "highway"):
        draw(make_topology(kind, 9), tmp_path / f"{kind}.png")
        assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_the_compose_file_has_a_container_for_every_broker(tmp_path: Path) -> None:
    topology = make_topology("star", 4)
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(overlay_file(topology, containers=True))
    services = yaml.safe_load(compose_file(topology, "overlay.yaml"))["services"]
    own = yaml.safe_load((Path(__file__).parents[3] / "docker-compose.yml").read_text())["services"]["b1"]
    for number, (name, broker) in enumerate(load_overlay(overlay, {}).brokers.items()):
        assert broker.address == f"{name}:7001"
        assert services[name]["environment"] == {"COVEY_BROKER": name}
        assert services[name]["ports"] == [f"127.0.0.1:{7001 + number}:7001"]
        assert services[name]["volumes"] == ["./overlay.yaml:/etc/covey/overlay.yaml:ro"]
        # Numba writes its cache, so a container's file system is not read-only.
        assert services[name].keys() == own.keys() - {"build"}


def test_links_of_an_overlay_file_have_delays(tmp_path: Path) -> None:
    def load(link: str) -> float:
        file = tmp_path / "overlay.yaml"
        file.write_text(
            'overlay: two\nbrokers:\n  a: {address: "h:1"}\n  "n": {address: "h:2"}\nlinks:\n  - ' + link
        )
        return load_overlay(file, {}).delay_ms("n", "a")

    assert load('[a, "n"]') == 0
    assert load('{ends: [a, "n"]}') == 0
    assert load('{ends: [a, "n"], delay_ms: 12.5}') == 12.5
    for wrong, complaint in (
        ("{delay_ms: 3}", "ends is missing"),
        ('{ends: [a, "n"], delay_ms: soon}', "delay_ms is 'soon'"),
        ('{ends: [a, "n"], delay_ms: -1}', "delay_ms is -1"),
        ('{ends: [a, "n"], delay: 1}', "links.0..delay is unknown"),
        ("{ends: [a, [b]]}", "names .'b'.: expected one of a, n"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            load(wrong)


def test_the_command_makes_checks_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overlay, picture, compose = tmp_path / "o.yaml", tmp_path / "o.png", tmp_path / "compose.yaml"
    assert run("topology", "make", "trading", "--brokers", 20, "-o", overlay, "--draw", picture) == 0
    assert "20 brokers, 19 links" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000
    assert run("topology", "check", overlay, "--json") == 0
    assert json.loads(capsys.readouterr().out)["brokers"] == 20
    assert run("topology", "draw", overlay, "-o", tmp_path / "again.svg") == 0
    again = ("topology", "make", "line", "--brokers", 2, "-o", overlay, "--compose", compose)
    before = overlay.read_text()
    capsys.readouterr()
    assert run(*again) == 2
    assert f"{overlay} already exists; --force overwrites it" in capsys.readouterr().err
    assert (overlay.read_text(), compose.exists()) == (before, False)
    assert run(*again, "--force") == 0
    assert "./o.yaml:/etc/covey" in compose.read_text()
    capsys.readouterr()
    assert run("topology", "make", "line", "--brokers", 2) == 0
    assert capsys.readouterr().out == overlay_file(make_topology("line", 2))


@pytest.mark.parametrize("kind", KINDS)
def test_only_some_kinds_depend_on_a_parameter(kind: str) -> None:
    seeded = make_topology(kind, 30, seed=1) != make_topology(kind, 30, seed=2)
    assert seeded == (kind in KINDS_BY_PARAMETER["seed"])
    branching = make_topology(kind, 30, branching=2) != make_topology(kind, 30, branching=3)
    assert branching == (kind in KINDS_BY_PARAMETER["branching"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("line", "--branching", 7), "--branching: line takes no branching; only balanced does"),
        (("star", "--seed", 9), "--seed: star takes no seed; only random, preferential, highway do"),
        (("spanning", "--brokers", 9, "--graph", "x.txt"), "--brokers: spanning takes no brokers; only line"),
    ],
)
def test_an_option_that_the_kind_does_not_take_is_rejected(
    words: tuple[object, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("topology", "make", *words) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1


def test_mistakes_are_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("make", "ring"),
        ("make", "spanning"),
        ("make", "line", "--graph", "x.txt"),
        ("make", "spanning", "--graph", tmp_path / "absent.txt"),
        ("make", "line", "--brokers", 600, "--port", 65_000),
        ("make", "line", "-o", tmp_path / "no" / "where.yaml"),
        ("make", "line", "--draw", tmp_path / "picture.doc"),
        ("check", tmp_path / "absent.yaml"),
    ):
        assert run("topology", *arguments) != 0
        assert len(capsys.readouterr().err.strip().splitlines()) == 1, arguments
