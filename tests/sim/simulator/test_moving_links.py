"""Links that move around dead brokers, in virtual time, step by step."""

from itertools import combinations

import pytest
from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.intake import Repeats
from covey.sim.simulator import WireOptions
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.topology import Topology, TreeLink

TICK = EventType("Tick", {"x": "int64"})


class Overlay(JudgedOverlay):
    """A row b1 - b2 - ..., or another tree, whose links move after a second."""

    def __init__(self, brokers: int, topology: Topology | None = None) -> None:
        super().__init__(engine="naive", wire=WireOptions(delay_ns=NS_PER_MS), repair_after_ns=NS_PER_S)
        if topology is None:
            self.build(brokers, 1.0)
        else:
            self.simulation.build(topology)
        self.run(2.0)

    @property
    def links(self) -> set[str]:
        return {
            f"{lower.removeprefix('broker/')} to {upper.removeprefix('broker/')}"
            for upper, lower in self.simulation.links
        }

    def member(self, name: str, broker: str) -> SimulatedClient:
        """A client that publishes and subscribes."""
        client = self.client(name, broker)
        client.advertise(TICK)
        client.subscribe(parse("x >= 0", TICK))
        return client


def test_neighbours_of_a_dead_broker_are_linked_and_it_rejoins() -> None:
    overlay = Overlay(4)
    assert overlay.links == {"b2 to b1", "b3 to b2", "b4 to b3"}
    clients = [overlay.member(name, name) for name in ("b1", "b3", "b4")]
    overlay.run(1.0)
    overlay.simulation.crash("broker/b2", 0)
    overlay.run(3.0)
    assert overlay.links == {"b3 to b1", "b4 to b3"}
    overlay.check()
    for client in clients:
        publish(client, TICK, 1)
    overlay.run(1.0)
    assert overlay.judge.expected_events == 9
    overlay.check()
    overlay.simulation.restart("broker/b2")
    overlay.run(6.0)
    assert overlay.links == {"b2 to b1", "b3 to b2", "b4 to b3"}
    overlay.check()
    for client in clients:
        publish(client, TICK, 1)
    overlay.run(1.0)
    assert overlay.judge.expected_events == 18
    overlay.check()


def test_the_others_stay_one_tree_without_the_root_and_a_broker_below_it() -> None:
    """The children of both link up without knowing each other's branch."""
    overlay = Overlay(0, _two_branches())
    overlay.simulation.crash("broker/b1", 0)
    overlay.simulation.crash("broker/b2", 0)
    overlay.run(4.0)
    assert overlay.links == {"b4 to b3", "b5 to b3"}
    overlay.check()


def _two_branches() -> Topology:
    links = (("b1", "b2"), ("b1", "b3"), ("b2", "b4"), ("b3", "b5"))
    return Topology("branches", ("b1", "b2", "b3", "b4", "b5"), tuple(TreeLink(a, b, 1.0) for a, b in links))


def test_a_short_break_moves_no_link_and_loses_nothing() -> None:
    overlay = Overlay(3)
    clients = [overlay.member(name, name) for name in ("b1", "b3")]
    overlay.run(1.0)
    moving = overlay.simulation.moving
    moving.keep_apart([("broker/b1", "broker/b2")])
    for client in clients:
        publish(client, TICK, 1)
    overlay.run(0.5)
    moving.keep_apart([])
    overlay.run(2.0)
    assert overlay.judge.expected_events == overlay.judge.fulfilled_events == 4
    overlay.check()


@pytest.mark.parametrize("drops", [True, False], ids=["repeats-dropped", "repeats-passed"])
def test_an_event_that_comes_again_over_a_slower_way_goes_no_further(
    drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b3 goes back to b2, where events of the last 300 ms arrive that b3 and b4 have had, or sent."""
    if not drops:
        monkeypatch.setattr(Repeats, "fresh", lambda self, message: message)
    overlay = Overlay(4)
    moving = overlay.simulation.moving
    moving.delays_ns[frozenset(("broker/b1", "broker/b2"))] = 300 * NS_PER_MS
    clients = [overlay.member(name, name) for name in ("b1", "b2", "b4")]
    overlay.run(1.0)
    overlay.simulation.crash("broker/b2", 0)
    overlay.run(3.0)
    assert overlay.links == {"b3 to b1", "b4 to b3"}
    overlay.simulation.restart("broker/b2")
    for _ in range(350):
        publish(clients[0], TICK, 1)
        publish(clients[2], TICK, 1)
        overlay.run(0.02)
    assert overlay.links == {"b2 to b1", "b3 to b2", "b4 to b3"}
    if drops:
        overlay.check()
        repeats = overlay.simulation.brokers["broker/b3"].endpoint.repeats
        assert repeats.dropped
    else:
        assert set(overlay.findings.counts) & {"echo", "repetition"}


def test_parts_of_a_split_are_trees_and_become_one_again() -> None:
    overlay = Overlay(5)
    clients = [overlay.member(name, name) for name in ("b1", "b2", "b4", "b5")]
    moving = overlay.simulation.moving
    one, other = ("broker/b1", "broker/b3", "broker/b5"), ("broker/b2", "broker/b4")
    moving.keep_apart([(a, b) for a, b in combinations((*one, *other), 2) if (a in one) != (b in one)])
    overlay.run(4.0)
    assert overlay.links == {"b3 to b1", "b5 to b3", "b4 to b2"}
    for client in clients:
        publish(client, TICK, 1)
    overlay.run(1.0)
    moving.keep_apart([])
    overlay.run(6.0)
    assert overlay.links == {"b2 to b1", "b3 to b2", "b4 to b3", "b5 to b4"}
    overlay.check()
    for client in clients:
        publish(client, TICK, 1)
    overlay.run(1.0)
    assert overlay.judge.expected_events == 16
    overlay.check()


def test_a_client_that_was_to_move_to_a_broker_which_stays_dead_disappears() -> None:
    """Its broker died before it could leave, and the other was given up meanwhile (seed 868061)."""
    overlay = Overlay(3)
    client = overlay.member("mover", "b2")
    overlay.run(1.0)
    overlay.simulation.crash("broker/b2", 0)
    overlay.simulation.move("client/mover", "broker/b3")
    overlay.simulation.crash("broker/b3", 0)
    overlay.simulation.abandon("broker/b3")
    overlay.simulation.restart("broker/b2")
    overlay.run(10.0)
    assert not client.present
    overlay.check()


def test_brokers_join_and_leave() -> None:
    overlay = Overlay(4)
    simulation = overlay.simulation
    here, there = overlay.member("here", "b1"), overlay.member("there", "b4")
    simulation.join_broker("broker/b5", "broker/b2")
    new = overlay.member("new", "b5")
    overlay.run(2.0)
    assert overlay.links == {"b2 to b1", "b3 to b2", "b4 to b3"}  # the others have not read the file
    for name in simulation.brokers:
        simulation.reload(name)
    overlay.run(3.0)
    assert overlay.links == {"b2 to b1", "b3 to b2", "b4 to b3", "b5 to b2"}
    overlay.check()
    for client in (here, there, new):
        publish(client, TICK, 1)
    overlay.run(1.0)
    assert overlay.judge.expected_events == 9
    overlay.check()

    def reload() -> None:
        for name in simulation.brokers:
            simulation.reload(name)

    simulation.leave_broker("broker/b2", reload)
    overlay.run(4.0)
    assert overlay.links == {"b3 to b1", "b4 to b3", "b5 to b1"}
    overlay.check()
    simulation.restart("broker/b2")
    assert not simulation.brokers["broker/b2"].alive
    for client in (here, there, new):
        publish(client, TICK, 2)
    overlay.run(1.0)
    assert overlay.judge.expected_events == 18
    overlay.check()
