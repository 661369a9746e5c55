"""`control`: the control messages of moving subscriptions, in virtual time. Four loads:

- *trading* (AT) and *highway* (HTM), as in `covey sim`; vehicles stay with their broker.
- *oscillating*: thresholds on prices that oscillate around individual levels.
- *cruising*: vehicles that change their speed once a minute. Each subscribes to the traffic up to 60 around
  it, and updates its position every second, or, with *motion*, its speed when that changes.

Modes: *static* re-subscribes, *parametric* updates, *damping* announces bounds a few typical steps wider.
The result counts SUB, UPD and USUB over links between brokers, per change of a subscriber and direction
of a link. Changes are the load's, announced or not, which makes modes comparable. Events over links are
the cost of wider bounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import typer

from benchmarks.harness import Words, command, show_fields
from covey.cli.support.options import Seed
from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.messages import Message, Publish, Subscribe, Unsubscribe, Update
from covey.overlay.core.moving.motion import Motion
from covey.sim.progress import Progress, silent
from covey.sim.scenario.loads import HighwayLoad, Load, SubscriberState, TradingLoad
from covey.sim.simulator import Observer, Simulation
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_S
from covey.sim.simulator.observer import ObservedClient
from covey.sim.topology import Topology, make_topology

MODES = ("static", "parametric", "damping", "motion")
LOADS = ("trading", "highway", "oscillating", "cruising")
_TURN_S = 60


@dataclass(frozen=True, slots=True)
class ControlPlan:
    """Count the control messages that moving subscriptions cost, in virtual time.

    Example: python -m benchmarks control --loads oscillating --modes parametric,damping
    """

    loads: Annotated[tuple[str, ...], Words("Loads", LOADS)] = LOADS
    modes: Annotated[tuple[str, ...], Words("How subscriptions change", MODES)] = MODES
    brokers: Annotated[int, typer.Option(min=2, help="Brokers of the overlay.")] = 7
    subscribers: Annotated[int, typer.Option(min=1, help="Subscribers; each changes once a second.")] = 40
    seconds: Annotated[int, typer.Option(min=1, help="Virtual seconds.")] = 120
    damping: Annotated[float, typer.Option(min=0.0, help="Typical steps of slack, for mode damping.")] = 8.0
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class ControlResult:
    """One load in one mode; `parametric_ratio` is the link messages of mode parametric to these."""

    load: str
    mode: str
    links: Annotated[int, ""]
    changes: int
    link_messages: Annotated[int, "link messages"]
    per_change_and_link: Annotated[float, "per change and link"]
    client_messages: Annotated[int, "client messages"]
    events_over_links: Annotated[int, "events over links"]
    delivered: int
    spurious: int
    parametric_ratio: Annotated[float | None, "parametric / this"] = None


class _Counter(Observer):
    """Counts messages and deliveries from `begin` on."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.link_messages = self.client_messages = self.events = self.delivered_events = self.spurious = 0

    def received(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, Publish) and source.startswith("broker/"):
            self.events += len(message.batch)
        elif isinstance(message, Subscribe | Update | Unsubscribe):
            if source.startswith("broker/"):
                self.link_messages += 1
            else:
                self.client_messages += 1

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        self.delivered_events += len(action.batch)
        self.spurious += action.spurious


class _Swinging(TradingLoad):
    """Thresholds that oscillate around individual levels."""

    def __init__(self, topology: Topology, publishers: int, rng: random.Random) -> None:
        super().__init__(topology, publishers, rng, types=20)
        self._levels: dict[int, float] = {}

    def subscriber(self, number: int) -> SubscriberState:
        subscriber = super().subscriber(number)
        event_type = subscriber.filter.event_type
        self._levels[number] = subscriber.values["limit"]
        return SubscriberState(
            parse(f"price {'<=' if number % 2 else '>='} $limit", event_type),
            subscriber.values,
            subscriber.broker,
        )

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        level = self._levels[number]
        side = -1 if subscriber.values["limit"] > level else 1
        return {"limit": round(level + side * self._random.uniform(2.0, 6.0))}, subscriber.broker


class _Cruising(Load):
    """Vehicles on one long road, each with a speed that changes once a minute."""

    ROAD = EventType("Road", {"x": "float64", "density": "float64"})
    AROUND = parse("x >= $x - 60 and x <= $x + 60", ROAD)

    def __init__(self, topology: Topology, publishers: int, rng: random.Random) -> None:
        self._random = rng
        self._topology = topology
        self.speeds: dict[int, float] = {}
        self._age: dict[int, int] = {}

    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return self._topology.brokers[number % len(self._topology.brokers)], [self.ROAD]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        draw = draw or self._random
        rows = [{"x": draw.uniform(0.0, 20_000.0), "density": 1.0} for _ in range(count)]
        return EventBatch.from_pylist(self.ROAD, rows)

    def subscriber(self, number: int) -> SubscriberState:
        draw = self._random
        self.speeds[number] = draw.uniform(15.0, 35.0)
        self._age[number] = draw.randrange(_TURN_S)
        return SubscriberState(
            self.AROUND, {"x": draw.uniform(0.0, 20_000.0)}, draw.choice(self._topology.brokers)
        )

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        return {"x": subscriber.values["x"] + self.speeds[number]}, subscriber.broker

    def turns(self, number: int) -> bool:
        """Whether the vehicle changes its speed; call once a second."""
        self._age[number] += 1
        if self._age[number] % _TURN_S:
            return False
        self.speeds[number] = self._random.uniform(15.0, 35.0)
        return True


def measure_control(plan: ControlPlan, progress: Progress = silent) -> list[ControlResult]:
    cases = [each for each in product(plan.loads, plan.modes) if each[1] != "motion" or each[0] == "cruising"]
    results: list[ControlResult] = []
    for load, mode in cases:
        progress(f"{load}, {mode}", len(results) / len(cases))
        results.append(_Case(plan, load, mode).run())
    parametric = {each.load: each.link_messages for each in results if each.mode == "parametric"}
    return [
        replace(each, parametric_ratio=parametric[each.load] / each.link_messages)
        if each.link_messages and each.load in parametric
        else each
        for each in results
    ]


class _Case:
    def __init__(self, plan: ControlPlan, load: str, mode: str) -> None:
        self._plan, self._name, self._mode = plan, load, mode
        kind = {"trading": "trading", "oscillating": "trading", "highway": "highway"}.get(load, "line")
        self._topology = make_topology(kind, plan.brokers, seed=plan.seed)
        publishers = min(5, plan.brokers)
        makers: dict[str, Callable[..., Load]] = {
            "trading": partial(TradingLoad, types=20),
            "highway": HighwayLoad,
            "oscillating": _Swinging,
            "cruising": _Cruising,
        }
        self._load = makers[load](self._topology, publishers, random.Random(f"load {plan.seed}"))
        self._counter = _Counter()
        self._simulation = Simulation(
            plan.seed,
            routing="static" if mode == "static" else "parametric",
            engine="naive",
            damping=plan.damping if mode == "damping" else 0.0,
            observers=[self._counter],
        )
        self._publishers = publishers

    def run(self) -> ControlResult:
        simulation, load = self._simulation, self._load
        clock = simulation.clock
        simulation.build(self._topology)
        feeds = []
        for number in range(self._publishers):
            broker, types = load.publisher(number)
            feed = simulation.join(f"client/p{number}", f"broker/{broker}")
            for event_type in types:
                feed.advertise(event_type)
            feeds.append(feed)
        simulation.run(clock.now_ns + NS_PER_S)
        members = []
        for number in range(self._plan.subscribers):
            subscriber = load.subscriber(number)
            client = simulation.join(f"client/s{number}", f"broker/{subscriber.broker}")
            members.append(
                (
                    number,
                    client,
                    client.subscribe(subscriber.filter, self._values(number, subscriber)),
                    subscriber,
                )
            )
        simulation.run(clock.now_ns + NS_PER_S)
        self._counter.begin()
        begin_ns = clock.now_ns
        for second in range(self._plan.seconds):
            for number, feed in enumerate(feeds):
                feed.publish(load.events(number, 10))
            for number, client, subscription_id, subscriber in members:
                simulation.run(begin_ns + second * NS_PER_S + number * NS_PER_S // len(members))
                self._change(number, client, subscription_id, subscriber)
            simulation.run(begin_ns + (second + 1) * NS_PER_S)
        simulation.run(clock.now_ns + NS_PER_S)
        counter = self._counter
        links, changes = 2 * len(simulation.links), self._plan.seconds * len(members)
        return ControlResult(
            self._name,
            self._mode,
            links,
            changes,
            counter.link_messages,
            round(counter.link_messages / max(1, changes * links), 5),
            counter.client_messages,
            counter.events,
            counter.delivered_events,
            counter.spurious,
        )

    def _values(self, number: int, subscriber: SubscriberState) -> dict[str, Any]:
        if self._mode != "motion":
            return subscriber.values
        assert isinstance(self._load, _Cruising)
        return {"x": Motion(subscriber.values["x"], self._load.speeds[number])}

    def _change(
        self, number: int, client: SimulatedClient, subscription_id: int, subscriber: SubscriberState
    ) -> None:
        values, _ = self._load.next_values(number, subscriber)
        subscriber.values |= values
        turned = isinstance(self._load, _Cruising) and self._load.turns(number)
        if self._mode != "motion":
            client.update(subscription_id, values)
        elif turned:
            client.update(subscription_id, self._values(number, subscriber))


def show(plan: ControlPlan, results: list[ControlResult]) -> None:
    show_fields("Control messages of moving subscriptions", results)


control = command(ControlPlan, measure_control, show, prepare=lambda: None)
