"""Random histories of overlays whose clients stop reading, or publish what they read, and whose brokers stop.

Readers of the involved event types stop for a while or for good under every overflow policy, publishers
burst, and some clients republish. Two uninvolved pairs publish and read their own types: one across the
overlay, one at one broker. Wires have a delay, and neither jitter nor loss.

An uninvolved event arrives within the delays of its *path*, the wires from its publisher to its reader, and
two round trips per wire: if the window of a wire is full, earlier frames take another window, and each waits
for an acknowledgement. An *outage* is the time while a broker on the path is stopped or away, and then until
the backlog has left: a full queue blocks its sources, also those of uninvolved events. A full queue has the
bytes of its limit, those that it may hold, and those that were under way when it was full; it sends a window
per round trip. The bound of an event that meets an outage counts from the outage's end.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.endpoint.flow import WindowSizes
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, SessionLimits, SlowConsumer
from covey.overlay.core.endpoint.recovery import CLIENTS_NS
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.messages import Deliver, Gap, Publish
from covey.sim.checkers import Findings, check_quiet, check_routes
from covey.sim.experiments.fuzz.options import HistoryOutcome
from covey.sim.simulator import Simulation, WireOptions
from covey.sim.simulator.broker import SimulatedBroker
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.simulator.observer import ObservedClient, Observer
from covey.sim.topology import Topology, TreeLink

if TYPE_CHECKING:
    from covey.overlay.core.client.actions import DeliverTo

Event = tuple[str, int]
Reader = tuple[str, str]
"""A client and an event type. It has one subscription to the type, which all of its events match."""


class Ledger(Observer):
    """Observes clients that have at most one subscription to a type, which all of its events match."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.publications: dict[str, dict[Event, int]] = {}
        """By type, when each event was published."""
        self.deliveries: dict[Reader, dict[Event, int]] = {}
        """When each event arrived first."""
        self.gaps: Counter[Reader] = Counter()
        self.newest: dict[str, dict[object, Event]] = {}
        """By type with a key, the last event of each key, whose events are from one publisher."""
        self.lost_events: dict[str, dict[Event, None]] = {}
        """By type, events that a crashed broker had accepted and no other had acknowledged."""
        self.lost_gaps: Counter[Reader] = Counter()
        """Events in gaps that no client had acknowledged when its broker crashed."""
        self._now_ns = now_ns

    def _is_missing(self, reader: Reader, event: Event) -> bool:
        """Whether it has not arrived, and was not lost in a crash."""
        lost = self.lost_events.get(reader[1], {})
        return event not in self.deliveries.get(reader, {}) and event not in lost

    def missing(self, reader: Reader) -> int:
        """The number of events that have not arrived, without those lost in a crash."""
        return sum(self._is_missing(reader, event) for event in self.publications.get(reader[1], ()))

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        known = self.publications.setdefault(batch.event_type.name, {})
        known.update(dict.fromkeys(_events(batch), self._now_ns()))
        if batch.event_type.key is not None:
            keys = batch.values(batch.event_type.key)
            self.newest.setdefault(batch.event_type.name, {}).update(zip(keys, _events(batch), strict=True))

    def unseen(self, reader: Reader) -> list[object]:
        """Keys whose last event has not arrived, without those lost in a crash."""
        newest = self.newest.get(reader[1], {})
        return [key for key, event in newest.items() if self._is_missing(reader, event)]

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        known = self.deliveries.setdefault((client.name, action.batch.event_type.name), {})
        for event in _events(action.batch):
            known.setdefault(event, self._now_ns())

    def missed(self, client: ObservedClient, gap: Gap) -> None:
        self.gaps[client.name, gap.type_name] += gap.count

    def crashes(self, broker: SimulatedBroker) -> None:
        for name, queue in broker.endpoint.queues.items():
            for message in queue.link.pending_messages():
                if isinstance(message, Gap):
                    self.lost_gaps[name, message.type_name] += message.count
                elif isinstance(message, Publish | Deliver):
                    known = self.lost_events.setdefault(message.batch.event_type.name, {})
                    known.update(dict.fromkeys(_events(message.batch)))


def _events(batch: EventBatch) -> Iterator[Event]:
    return ((batch.publisher, sequence) for sequence in batch.sequences().tolist())


CALM = EventType("Calm", {"number": "int64"})
LOCAL = EventType("Local", {"number": "int64"})
_ATTRIBUTES = {"number": "int64", "hops": "int64", "text": "string"}
BUSY = [EventType(f"Busy{i}", {**_ATTRIBUTES, "key": "int64"}, key="key") for i in range(3)]
_KEYS = 2
"""Per publisher."""
_EVENT_BYTES = 300
"""An upper bound."""
PING, PONG, ECHO = (EventType(name, _ATTRIBUTES) for name in ("Ping", "Pong", "Echo"))
_FILTER = "number >= $low"
_SLICE_NS = 20 * NS_PER_MS
_LIVELOCK_STEPS = 500_000
_LIVELOCK_NS = 90 * NS_PER_S
_FRAME_BYTES = 4 << 10
_HELD_PER_BYTE = 16
"""The most bytes of memory of a single event of these types, per byte of credit."""
_DRAIN_TRIPS = 400
"""Round trips in which a full outbox leaves, one window of the least size at a time."""
_RECOVERY_NS = CLIENTS_NS + NS_PER_S
"""The longest time after its restart in which a broker takes no events: for clients and synchronisation."""


@dataclass(frozen=True, slots=True)
class Outage:
    broker: str
    from_ns: int
    to_ns: int
    crash: bool = False


class StallingHistory:
    """One history; `play` returns its outcome."""

    def __init__(self, seed: int, steps: int) -> None:
        self.seed = seed
        self.findings = Findings()
        self._steps = steps
        draw = self._random = random.Random(f"stalls {seed}")
        self._delay_ms = draw.choice((1, 2, 5))
        self._stall_ns = draw.choice((1, 2)) * NS_PER_S
        self._window_bytes = draw.choice((32 << 10, 64 << 10))
        self._options = EndpointOptions(
            limits=Limits(max_frame_bytes=_FRAME_BYTES),
            sessions=SessionLimits(
                queue_events=draw.choice((20, 100, 1000)),
                queue_bytes=draw.choice((48_000, 160_000, 480_000)),
                stall_limit_s=self._stall_ns / NS_PER_S,
            ),
            links=LinkLimits(
                queue_bytes=draw.choice((80_000, 320_000)), held_bytes=draw.choice((16_000, 160_000))
            ),
            max_queued_control=20,
            max_unsettled=20,
            windows=WindowSizes(first=4 << 10, publishers=16 << 10, least=2 << 10),
        )
        frames = draw.choice((4, 16))
        self._trip_bytes = min(self._window_bytes, frames * _FRAME_BYTES)
        """The bytes that a link with a backlog sends at least in a round trip."""
        self.simulation = Simulation(
            seed,
            engine="naive",
            link={
                "frames_in_flight": frames,
                "window_bytes": self._window_bytes,
                "max_frame_bytes": _FRAME_BYTES,
            },
            wire=WireOptions(delay_ns=self._delay_ms * NS_PER_MS),
            options=self._options,
        )
        self._clock = self.simulation.clock
        self.ledger = Ledger(lambda: self._clock.now_ns)
        self.simulation.observers.append(self.ledger)
        self._outages: list[Outage] = []
        self._stalls: dict[str, list[tuple[int, int]]] = {}
        """By type, the times in which a reader did not read."""
        self._parents: dict[str, str] = {}
        self._readers: list[SimulatedClient] = []
        self._publishers: dict[str, list[SimulatedClient]] = {}
        self._witnesses: dict[str, SimulatedClient] = {}
        """By involved type, a reader that always reads."""
        self._exempt: set[str] = set()
        self._numbers = 0
        self._waiting: dict[tuple[str, str], deque[list[dict[str, object]]]] = {}
        """By client and type, events that wait for room in its outbox."""
        self._crashed = False
        self._weights: dict[Callable[[], None], float] = {
            self._stop_reading: 8,
            self._burst: 20,
            self._publish_some: 20,
            self._inject: 6,
            self._pause: 3,
            self._disconnect: 4,
            self._vanish: 2,
            self._crash: 1,
            self._flood: 3,
        }

    # --- the overlay ----------------------------------------------------------------------------------------

    def _build(self) -> None:
        draw, simulation = self._random, self.simulation
        names = [f"b{i}" for i in range(draw.randint(1, 5))]
        links = []
        for i, name in enumerate(names[1:]):
            parent = names[i if draw.random() < 0.6 else draw.randrange(i + 1)]
            self._parents[f"broker/{name}"] = f"broker/{parent}"
            links.append(TreeLink(parent, name, self._delay_ms))
        simulation.build(Topology("stalls", tuple(names), tuple(links)))
        home = self._some_broker()
        self._pair("calm", CALM, self._some_broker(), self._some_broker())
        self._pair("local", LOCAL, home, home)
        for event_type in BUSY[: draw.randint(1, 3)]:
            self._involve(event_type)
        if draw.random() < 0.6:
            self._feed_each_other()
        if draw.random() < 0.4:
            self._feed("echo", ECHO, ECHO, 1)

    def _involve(self, event_type: EventType) -> None:
        draw, name = self._random, event_type.name
        crowd = draw.choice((1, 2, 8))
        broker = self._some_broker() if crowd == 8 else ""
        for i in range(crowd):
            publisher = self._join(f"{name}-p{i}", broker=broker, outbox_events=draw.choice((20, 1000)))
            publisher.advertise(event_type)
            self._publishers.setdefault(name, []).append(publisher)
        for i in range(draw.randint(1, 3)):
            policy = draw.choice((*[SlowConsumer.BLOCK] * 3, SlowConsumer.CONFLATE, *SlowConsumer))
            reader = self._join(f"{name}-r{i}", policy, "" if i else broker)
            self._subscribe(reader, event_type)
            self._readers.append(reader)
        self._witnesses[name] = self._join(f"{name}-witness")
        self._subscribe(self._witnesses[name], event_type)

    def _feed_each_other(self) -> None:
        """Each publishes what the other reads, `hops` times, one or two events for each."""
        fan_out = self._random.choice((1, 1, 2))
        for name, reads, publishes in (("ping", PING, PONG), ("pong", PONG, PING)):
            self._feed(name, reads, publishes, fan_out)

    def _feed(self, name: str, reads: EventType, publishes: EventType, fan_out: int) -> None:
        client = self._join(name, outbox_events=self._random.choice((1, 10, 50)))
        client.advertise(publishes)
        client.republishes, client.derives = publishes, lambda event: _derived(event, fan_out)
        self._subscribe(client, reads)
        self._publishers[publishes.name] = [client]

    def _join(
        self, name: str, policy: SlowConsumer = SlowConsumer.BLOCK, broker: str = "", **options: int
    ) -> SimulatedClient:
        broker = broker or self._some_broker()
        return self.simulation.join(f"client/{name}", broker, policy, durable=False, policies=None, **options)

    def _pair(self, name: str, event_type: EventType, source: str, target: str) -> None:
        self._join(f"{name}-p", broker=source).advertise(event_type)
        self._join(f"{name}-r", broker=target).subscribe(parse("number >= 0", event_type))

    def _subscribe(self, client: SimulatedClient, event_type: EventType) -> None:
        client.subscribe(parse(_FILTER, event_type), {"low": 0})

    def _some_broker(self) -> str:
        return self._random.choice(list(self.simulation.brokers))

    def path(self, a: str, b: str) -> list[str]:
        above = []
        for broker in (a, b):
            line = [broker]
            while line[-1] in self._parents:
                line.append(self._parents[line[-1]])
            above.append(line)
        near, far = above
        common = next(broker for broker in near if broker in far)
        return near[: near.index(common) + 1] + far[: far.index(common)][::-1]

    # --- the run --------------------------------------------------------------------------------------------

    def play(self) -> HistoryOutcome:
        error = ""
        try:
            self._play()
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        delivered = sum(map(len, self.ledger.deliveries.values()))
        expected = delivered + self.ledger.gaps.total()
        found = tuple(self.findings.first)
        return HistoryOutcome(self.seed, found, self._clock.steps, delivered, expected, error=error)

    def _play(self) -> None:
        self._build()
        self._settle()
        actions, weights = list(self._weights), list(self._weights.values())
        for _ in range(self._steps):
            self._random.choices(actions, weights)[0]()
            self._publish_calmly()
            self._run(self._random.choice((1, 5, 20, 100, 300)) * NS_PER_MS)
            if self.findings:
                return
        self._finish()

    def _run(self, duration_ns: int) -> None:
        until_ns = self._clock.now_ns + 1 + self._random.randrange(duration_ns)
        while self._clock.now_ns < until_ns and not self.findings:
            self._clock.run(min(until_ns, self._clock.now_ns + _SLICE_NS))
            self._redial()
            self._check_bounds()

    def _settle(self) -> None:
        last, last_ns = self._clock.steps + _LIVELOCK_STEPS, self._clock.now_ns + _LIVELOCK_NS
        while not self._clock.only_polls:
            self._clock.run(steps=1)
            if self._clock.steps > last or self._clock.now_ns > last_ns:
                self._find("livelock", "not at rest after all clients have read again")
                return

    def _finish(self) -> None:
        for client in self._readers:
            client.resume_reading()
        for _ in range(5):  # A session that ends is opened again.
            self._settle()
            self._publish_calmly()
            self._redial()
        self._settle()
        if self.findings:
            return
        check_quiet(self.simulation, self.findings)
        check_routes(self.simulation, self.findings)
        self._check_drained()
        self._check_conservation()
        self._check_newest()
        self._check_uninvolved("calm", CALM)
        self._check_uninvolved("local", LOCAL)
        self._check_witnesses()

    def _redial(self) -> None:
        for client in self.simulation.clients.values():
            if client.policy is SlowConsumer.DISCONNECT and self.simulation.redial(client.name):
                self._exempt.add(client.name)

    # --- actions --------------------------------------------------------------------------------------------

    def _rows(self, count: int, hops: int = 0) -> list[dict[str, object]]:
        text = "x" * self._random.choice((0, 10, 200))
        self._numbers += count
        first = self._numbers - count
        return [{"number": first + i, "hops": hops, "text": text} for i in range(count)]

    def _publish(self, client: SimulatedClient, event_type: EventType, rows: list[dict[str, object]]) -> None:
        waiting = self._waiting.setdefault((client.name, event_type.name), deque())
        if event_type.key is not None:
            first = _KEYS * list(self.simulation.clients).index(client.name)
            rows = [{**row, "key": first + self._random.randrange(_KEYS)} for row in rows]
        waiting.append(rows)
        if len(waiting) == 1:
            self._publish_waiting(client, event_type, waiting)

    def _publish_waiting(
        self, client: SimulatedClient, event_type: EventType, waiting: deque[list[dict[str, object]]]
    ) -> None:
        while waiting and not client.endpoint.outbox.full(event_type.name):
            client.publish(EventBatch.from_pylist(event_type, waiting.popleft()))
        if waiting:
            self._clock.after(20 * NS_PER_MS, self._publish_waiting, client, event_type, waiting)

    def _publish_calmly(self) -> None:
        for name, event_type in (("calm", CALM), ("local", LOCAL)):
            self._numbers += 1
            client = self.simulation.clients[f"client/{name}-p"]
            client.publish(EventBatch.from_pylist(event_type, [{"number": self._numbers}]))

    def _some_involved(self) -> EventType:
        return self._random.choice([each for each in BUSY if each.name in self._publishers])

    def _burst(self) -> None:
        event_type, draw = self._some_involved(), self._random
        count, size = draw.choice((5, 20)), draw.choice((1, 5, 20))
        for client in self._publishers[event_type.name]:
            for _ in range(count):
                self._publish(client, event_type, self._rows(size))

    def _publish_some(self) -> None:
        event_type = self._some_involved()
        self._publish(self._random.choice(self._publishers[event_type.name]), event_type, self._rows(1))

    def _inject(self) -> None:
        loops = [each for each in (PING, PONG, ECHO) if each.name in self._publishers]
        for event_type in loops:
            client = self._publishers[event_type.name][0]
            for _ in range(self._random.choice((1, 10, 50))):
                self._publish(client, event_type, self._rows(1, self._random.choice((2, 6))))

    def _stop_reading(self) -> None:
        client, draw = self._random.choice(self._readers), self._random
        if not client.reading:
            return
        client.stop_reading()
        span_ns = draw.choice((100 * NS_PER_MS, self._stall_ns // 2, 3 * self._stall_ns, 0))
        if span_ns:
            span_ns = draw.randrange(span_ns) + 1
            self._clock.after(span_ns, client.resume_reading)
        self._stalls_of(client, span_ns or 1 << 62)

    def _pause(self) -> None:
        self._stop(self._some_broker(), self._random.randrange(50, 1_500) * NS_PER_MS)

    def _stop(self, broker: str, pause_ns: int) -> None:
        """Not while it is stopped or a broker recovers: connections away for so long drop events."""
        now_ns = self._clock.now_ns
        if not any(o.to_ns > now_ns and (o.crash or o.broker == broker) for o in self._outages):
            self.simulation.brokers[broker].pause(pause_ns)
            self._outages.append(Outage(broker, now_ns, now_ns + pause_ns))

    def _disconnect(self) -> None:
        client = self._random.choice(self._readers)
        down_ns = self._random.choice((50, 500, 4_000)) * NS_PER_MS
        self.simulation.disconnect(client.name, down_ns)
        self._stalls_of(client, down_ns)

    def _stalls_of(self, client: SimulatedClient, down_ns: int) -> None:
        now_ns = self._clock.now_ns
        for subscription in client.subscriptions.values():
            stalls = self._stalls.setdefault(subscription.event_type.name, [])
            stalls.append((now_ns, now_ns + down_ns))

    def _vanish(self) -> None:
        """A reader vanishes, and a new client of its name replaces it."""
        index = self._random.randrange(len(self._readers))
        client = self._readers[index]
        if client.port.wire is None:
            return  # its broker is away, and it has never been connected
        types = [filter.event_type for filter in client.subscriptions.values()]
        self._stalls_of(client, NS_PER_S)
        self._exempt.add(client.name)
        self.simulation.vanish(client.name)
        again = self._readers[index] = self.simulation.join(client.name, client.broker, client.policy)
        for event_type in types:
            self._subscribe(again, event_type)

    def _crash(self) -> None:
        broker = self._some_broker()
        if self._crashed or len(self.simulation.brokers) < 3:
            return
        self._crashed = True
        down_ns = self._random.choice((50, 500, 1_500)) * NS_PER_MS
        now_ns = self._clock.now_ns
        self._outages.append(Outage(broker, now_ns, now_ns + down_ns + _RECOVERY_NS, crash=True))
        self.ledger.crashes(self.simulation.brokers[broker])
        self.simulation.crash(broker, down_ns)

    def _flood(self) -> None:
        """Updates, more than a stopped neighbour of the client's broker can take."""
        client = self._random.choice(self._readers)
        around = [b for a, b in self._parents.items() if a == client.broker]
        around += [a for a, b in self._parents.items() if b == client.broker]
        if around and self._random.random() < 0.7:
            self._stop(self._random.choice(around), self._random.randrange(200, 1_500) * NS_PER_MS)
        for subscription_id in client.subscriptions:
            for low in range(self._random.choice((50, 500))):
                client.update(subscription_id, {"low": -1 - low % 7})

    # --- checks ---------------------------------------------------------------------------------------------

    def _find(self, what: str, sentence: str) -> None:
        self.findings.add(what, self._clock.now_ns, sentence)

    def _due_ns(self, published_ns: int, path: list[str], bound_ns: int, drain_ns: int = 0) -> int:
        """When an event is due, if outages last for `drain_ns` more."""
        begun_ns = published_ns
        for outage in sorted(self._outages, key=lambda each: each.to_ns):
            to_ns = outage.to_ns + drain_ns
            if outage.broker in path and outage.from_ns <= begun_ns + bound_ns and to_ns > begun_ns:
                begun_ns = to_ns
        return begun_ns + bound_ns

    def _bound_ns(self, path: list[str]) -> int:
        return 5 * (len(path) + 1) * self._delay_ms * NS_PER_MS

    def _drain_ns(self, path: list[str]) -> int:
        """The time in which the full queues of the links of a path leave, one after the other."""
        limits = self._options.links
        trips = sum(
            -(-(limits.queue_bytes + limits.held_bytes + self._arriving(broker)) // self._trip_bytes)
            for broker in path
        )
        return trips * 2 * self._delay_ms * NS_PER_MS

    def _arriving(self, broker: str) -> int:
        """The bytes that may be under way to a broker when one of its queues is full: the windows of its
        sources, each exceeded by a frame at most."""
        options, queues = self._options, self.simulation.brokers[broker].endpoint.queues.values()
        neighbours = sum(queue.is_broker for queue in queues)
        publishers = sum(
            client.broker == broker and bool(client.session.advertised)
            for client in self.simulation.clients.values()
        )
        windows = options.windows.publishers + publishers * options.windows.first
        return windows + neighbours * self._window_bytes + (neighbours + publishers) * _FRAME_BYTES

    def _check_uninvolved(self, name: str, event_type: EventType) -> None:
        clients = self.simulation.clients
        publisher, reader = clients[f"client/{name}-p"], clients[f"client/{name}-r"]
        path = self.path(publisher.broker, reader.broker)
        bound_ns, drain_ns = self._bound_ns(path), self._drain_ns(path)
        arrived = self.ledger.deliveries.get((reader.name, event_type.name), {})
        lost = self.ledger.lost_events.get(event_type.name, {})
        for event, published_ns in self.ledger.publications.get(event_type.name, {}).items():
            due_ns = self._due_ns(published_ns, path, bound_ns, drain_ns)
            if event not in arrived:
                if event not in lost:
                    self._find("calm loss", f"event {event} of {event_type.name} never arrived")
            elif arrived[event] > due_ns:
                self._find(
                    "calm delay",
                    f"event {event} of {event_type.name} was published at {published_ns / 1e9:.6f} s, due at "
                    f"{due_ns / 1e9:.6f} s over {len(path)} brokers, and arrived at "
                    f"{arrived[event] / 1e9:.6f} s",
                )

    def _check_witnesses(self) -> None:
        """Each stall of another reader may delay the events of its type for the stall limit."""
        for type_name, witness in self._witnesses.items():
            arrived = self.ledger.deliveries.get((witness.name, type_name), {})
            everywhere = list(self.simulation.brokers)
            slack_ns = 4 * self._bound_ns(everywhere) + _DRAIN_TRIPS * 2 * self._delay_ms * NS_PER_MS
            for event, published_ns in self.ledger.publications.get(type_name, {}).items():
                if event not in arrived:
                    continue  # which conservation judges
                stalls = sum(
                    from_ns <= arrived[event] and to_ns + slack_ns >= published_ns
                    for from_ns, to_ns in self._stalls.get(type_name, ())
                )
                limit_ns = slack_ns + stalls * (self._stall_ns + slack_ns)
                due_ns = self._due_ns(published_ns, everywhere, limit_ns)
                if arrived[event] > due_ns:
                    self._find(
                        "reader delay",
                        f"event {event} of {type_name}, published at {published_ns / 1e9:.6f} s, arrived at "
                        f"{witness.name} at {arrived[event] / 1e9:.6f} s, due by {due_ns / 1e9:.6f} s",
                    )
                    break

    def _check_conservation(self) -> None:
        for client in self.simulation.clients.values():
            if client.name in self._exempt:
                continue
            for filter in client.subscriptions.values():
                reader = client.name, filter.event_type.name
                missing = self.ledger.missing(reader)
                told, untold = self.ledger.gaps[reader], self.ledger.lost_gaps[reader]
                if missing > told + untold or (missing < told and not self._crashed):
                    self._find(
                        "conservation",
                        f"{missing} events of {reader[1]} did not arrive at {reader[0]}, told of {told}",
                    )

    def _check_newest(self) -> None:
        """A conflating reader gets the last event of each key, if its queue has room for twice as many."""
        limits = self._options.sessions
        for client in self._readers:
            if client.policy is not SlowConsumer.CONFLATE or client.name in self._exempt:
                continue
            for filter in client.subscriptions.values():
                type_name = filter.event_type.name
                most = 2 * _KEYS * len(self._publishers[type_name])
                held = most * _EVENT_BYTES * _HELD_PER_BYTE
                if 4 * most > 3 * limits.queue_events or 4 * held > 3 * limits.queue_bytes:
                    continue
                for key in self.ledger.unseen((client.name, type_name)):
                    sentence = f"the last event of {type_name} with key {key} never came to {client.name}"
                    self._find("newest", sentence)

    def _check_drained(self) -> None:
        for (name, type_name), waiting in self._waiting.items():
            if waiting:
                self._find("frozen", f"{name} waits for room for {type_name} in its outbox")
        for client in self.simulation.clients.values():
            if client._unread or not client.endpoint.idle:
                self._find("frozen", f"{client.name} has events that it cannot read or send")
        for name, broker in self.simulation.brokers.items():
            for queue in broker.endpoint.queues.values():
                if queue.link.backlog_events or queue.link.queued_control:
                    self._find(
                        "frozen", f"{name} has {queue.link.backlog_events} events for {queue.interface}"
                    )
            if broker.endpoint.holds.as_dict():
                self._find("frozen", f"{name} holds {broker.endpoint.holds.as_dict()}")

    def _check_bounds(self) -> None:
        """A queue has at most its limit and the bytes under way to the broker when it is full, times the
        ratio of an event's size in memory to that on a link."""
        for name, broker in self.simulation.brokers.items():
            arriving = self._arriving(name)
            for queue in broker.endpoint.queues.values():
                pending = queue.link.backlog_bytes - queue.link.events.held_bytes()
                if pending - queue.limits.bytes > _HELD_PER_BYTE * arriving:
                    self._find(
                        "bytes",
                        f"{pending} bytes wait at {name} for {queue.interface}: expected "
                        f"{queue.limits.bytes} at most, and {arriving} that may be on their way",
                    )


def _derived(event: dict[str, object], fan_out: int) -> list[dict[str, object]]:
    hops = event["hops"]
    assert isinstance(hops, int)
    return [event | {"hops": hops - 1}] * fan_out if hops else []
