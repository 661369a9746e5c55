"""Simulated overlays of few brokers with the checkers of a run, for step-by-step tests."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from covey.matcher import EventBatch, EventType
from covey.overlay.core.client.actions import DeliverTo
from covey.sim.checkers import Findings, Judge, Traffic, check_logs, check_quiet, check_routes
from covey.sim.simulator import Observer, Simulation
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_S
from covey.sim.simulator.observer import ObservedClient
from covey.sim.topology import Topology, TreeLink


class Delivered(Observer):
    """The rows delivered to users, with client and time; the number of spurious ones."""

    def __init__(self, simulation: Simulation) -> None:
        self._clock = simulation.clock
        self.rows: list[tuple[str, int, dict[str, Any]]] = []
        self.spurious = 0

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        self.rows += [(client.name, self._clock.now_ns, row) for row in action.batch.to_pylist()]
        self.spurious += action.spurious

    def values(self, client: str = "") -> list[Any]:
        """The values of one-attribute events, at one client or at all."""
        return [value for name, _, row in self.rows if client in ("", name) for value in row.values()]


class JudgedOverlay:
    """An overlay with options of `Simulation`; `check` fails with the first finding."""

    def __init__(self, durable: Sequence[str] = (), *, seed: int = 1, **options: Any) -> None:
        self.simulation = simulation = Simulation(seed, durable=durable, **options)
        self.clock = clock = simulation.clock
        self.findings = Findings()
        self.judge = Judge(self.findings, lambda: clock.now_ns, durable=durable)
        self.traffic = Traffic(self.findings, lambda: clock.now_ns)
        self.delivered = Delivered(simulation)
        simulation.observers += [self.judge, self.traffic, self.delivered]

    def build(self, brokers: int, delay_ms: float = 10.0, first: int = 1) -> None:
        """A row b1 - b2 - ..., or from another number on."""
        row = tuple(f"b{first + i}" for i in range(brokers))
        links = tuple(TreeLink(a, b, delay_ms) for a, b in pairwise(row))
        self.simulation.build(Topology("row", row, links))

    def client(self, name: str, broker: str, **options: Any) -> SimulatedClient:
        return self.simulation.join(f"client/{name}", f"broker/{broker}", **options)

    def run(self, seconds: float | None = None) -> None:
        """Run for so long, or to rest."""
        until_ns = None if seconds is None else self.clock.now_ns + round(seconds * NS_PER_S)
        self.simulation.run(until_ns)

    def check(self) -> None:
        """Everything is at rest, and the checkers find nothing."""
        self.judge.quiet()
        self.traffic.quiet()
        check_quiet(self.simulation, self.findings)
        check_routes(self.simulation, self.findings)
        check_logs(self.simulation, self.findings)
        assert not self.findings, self.findings.first


def publish(client: SimulatedClient, event_type: EventType, *values: object) -> None:
    """A batch of events of a type with one attribute."""
    (name,) = event_type.attributes
    client.publish(EventBatch.from_pylist(event_type, [{name: value} for value in values]))
