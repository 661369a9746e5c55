"""Random histories of whole overlays in virtual time, each drawn from one seed and judged by the checkers. A
history draws the tree of brokers, wires with delay, jitter and loss, limits of links, and the size of the
parts in which brokers handle frames and end sessions. Now and then everything comes to rest: then no expected
event may be missing, all control must have settled, and every link must carry the interest that the clients
imply."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.expressions.expression import Constraint, Variable
from covey.overlay.core.endpoint.ending import PART
from covey.overlay.core.endpoint.flow import TURN_MESSAGES
from covey.overlay.core.endpoint.limits import LinkLimits, SessionLimits
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.moving.motion import Motion, directions, leaves
from covey.sim.checkers import Findings, Judge, Traffic, Views, check_logs, check_quiet, check_routes
from covey.sim.experiments.fuzz.filters import (
    CONTENTS,
    KEYED,
    TYPES,
    WIDER,
    evaluator_of,
    filters_of,
    filters_with_calls,
)
from covey.sim.experiments.fuzz.options import FuzzOptions, HistoryOutcome
from covey.sim.simulator import Simulation, WireOptions
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS
from covey.sim.simulator.costs import OPERATIONS, Calibrated, Costs, Free, constant
from covey.sim.simulator.defects import DEFECTS
from covey.sim.topology import Topology, TreeLink

_RATES = (-40.0, -1.0, -0.1, -0.02, 0.02, 0.1, 1.0, 40.0)
_LIVELOCK_STEPS = 200_000
DURABLE = tuple(event_type.name for event_type in TYPES)


@dataclass(frozen=True, slots=True)
class Paces:
    frame_bytes: tuple[int, ...] = (1, 300, 4 << 20)
    frames_in_flight: tuple[int, ...] = (1, 2, 16)
    jitters_ms: tuple[int, ...] = (0, 5, 40)
    losses: tuple[float, ...] = (0.0, 0.0, 0.1)
    syncs_ms: tuple[int, ...] = (0, 20, 300, 1_000)


class FuzzHistory:
    """One history; `play` returns its outcome."""

    _paces = Paces()

    def __init__(
        self,
        seed: int,
        options: FuzzOptions,
        *,
        repair_after_ns: int = 0,
        reaches: Callable[[str, str], bool] | None = None,
        sessions: SessionLimits | None = None,
    ) -> None:
        self.seed = seed
        self.options = options
        self.findings = Findings()
        draw = self._random = random.Random(seed)
        parts = random.Random(f"parts {seed}")
        self._delay_ms = draw.choice((0, 1, 10))
        self._defect = DEFECTS[options.defect]() if options.defect else None
        self.simulation = Simulation(
            seed,
            routing=options.routing,
            resubscribe=options.resubscribe,
            engine=options.engine,
            poset=options.poset,
            merging=options.merging,
            merging_budget=options.merging_budget,
            costs=self._costs(),
            service=options.service,
            defect=self._defect,
            link={
                "max_frame_bytes": draw.choice(self._paces.frame_bytes),
                "frames_in_flight": draw.choice(self._paces.frames_in_flight),
                "window_bytes": draw.choice((600, 4 << 20)),
            },
            wire=WireOptions(
                delay_ns=self._delay_ms * NS_PER_MS,
                jitter_ns=draw.choice(self._paces.jitters_ms) * NS_PER_MS,
                loss=draw.choice(self._paces.losses),
            ),
            options=EndpointOptions(
                sessions=sessions or SessionLimits(lease_s=2.0),
                # of their own draws, so that histories are otherwise those without parts
                turn_messages=parts.choice((1, 3, TURN_MESSAGES)),
                ending_part=parts.choice((1, 2, PART)),
                # where faults last, queues as small drop events
                links=LinkLimits(queue_bytes=draw.choice((12_000, 4 << 20)))
                if options.views and not options.faults
                else LinkLimits(),
            ),
            damping=options.damping,
            replay_events=10_000 if options.gapless else 0,
            durable=DURABLE if options.durable else (),
            sync_ns=draw.choice(self._paces.syncs_ms) * NS_PER_MS if options.durable else NS_PER_MS,
            evaluator=partial(evaluator_of, random.Random(f"operators {seed}"))
            if options.calls
            else Evaluator,
            repair_after_ns=repair_after_ns,
        )
        conditions = filters_with_calls() if options.calls else {}
        clock = self.simulation.clock
        self.judge = Judge(
            self.findings,
            lambda: clock.now_ns,
            lossy=options.lossy,
            conditions=conditions,
            durable=DURABLE if options.durable else (),
            reaches=reaches,
            slow=sessions is not None,
            prompt="clocks" not in options.fault_kinds,
        )
        self.traffic = Traffic(self.findings, lambda: clock.now_ns)
        durable = DURABLE if options.durable else ()
        self.views = Views(self.findings, lambda: clock.now_ns, durable)
        self.simulation.observers += [self.judge, self.traffic]
        if options.views:
            self.simulation.observers.append(self.views)
        self._filters = filters_of(options)
        types = KEYED if options.views else TYPES
        self._types = types if draw.random() < 0.5 and not options.dense else types[:1]
        self._pauses_ms = (1, 5, 20, 100) + ((20_000, 60_000) if options.motion else ())
        if options.durable:
            self._pauses_ms += (1_500,)  # progress is saved each second
        self._bounds = {filter: _bounds(filter) for filters in self._filters.values() for filter in filters}
        """By filter, the variables that may have a rate."""
        self._brokers = 1, 6
        self._joined = 0
        self._contents: dict[tuple[str, str], Filter | None] = {}
        self._weights: dict[Callable[[], None], float] = {
            self._join: 4,
            self._leave: 2,
            self._vanish: 1,
            self._move: 8 if options.moves else 3,
            self._disconnect: 2,
            self._advertise: 8,
            self._unadvertise: 1,
            self._subscribe: 14,
            self._update: 40,
            self._unsubscribe: 5,
            self._publish: 50,
            self._partition: 2,
            self._crash: (6 if options.durable else 1) if options.crashes else 0,
            self._rest: 4,
            self._widen: 8 if options.widen else 0,
            self._renew: 6 if options.validity else 0,
            self._view: 8 if options.views else 0,
            self._update_view: 30 if options.views else 0,
            self._close_view: 1 if options.views else 0,
        }

    def _costs(self) -> Costs:
        base_ms = self._random.choice((0, 0, 1, 5))
        cost = constant(base_ms * NS_PER_MS)
        return Calibrated(dict.fromkeys(OPERATIONS, cost)) if base_ms else Free()

    def play(self) -> HistoryOutcome:
        error = ""
        try:
            self._play()
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        return HistoryOutcome(
            self.seed,
            tuple(self.findings.first),
            self.simulation.clock.steps,
            self.judge.delivered_events,
            self.judge.expected_events,
            self._defect.fired if self._defect else 0,
            error,
        )

    def _play(self) -> None:
        simulation, draw = self.simulation, self._random
        names = [f"b{i}" for i in range(draw.randint(*self._brokers))]
        links = tuple(
            TreeLink(names[draw.randrange(i)], name, self._delay_ms) for i, name in enumerate(names) if i
        )
        self._build(Topology("history", tuple(names), links))
        if self.options.motion:
            simulation.clock.run(NS_PER_MS)  # at 0, a Motion would have no start
        for _ in range(3):
            self._join()
        actions, weights = list(self._weights), list(self._weights.values())
        for _ in range(self.options.steps):
            draw.choices(actions, weights)[0]()
            if draw.random() < 0.7:
                pause_ns = draw.choice(self._pauses_ms) * NS_PER_MS
                self._run(simulation.clock.now_ns + draw.randrange(pause_ns))
            if self.findings:
                return
        self._rest()

    def _build(self, topology: Topology) -> None:
        self.simulation.build(topology)

    def _run(self, until_ns: int | None = None) -> None:
        """Advance to a time, or until only polls are pending; stop at a finding or a livelock."""
        clock = self.simulation.clock
        last = clock.steps + _LIVELOCK_STEPS
        chunk = 1 if until_ns is None else 500
        while not self.findings and not (clock.only_polls if until_ns is None else clock.idle):
            before = clock.steps
            clock.run(until_ns, chunk)
            if clock.steps - before < chunk:
                return
            if clock.steps > last:
                self.findings.add("livelock", clock.now_ns, f"not at rest after {_LIVELOCK_STEPS} steps")

    # --- actions --------------------------------------------------------------------------------------------

    def _some_client(self) -> SimulatedClient | None:
        clients = self.simulation.clients
        return self._random.choice(list(clients.values())) if clients else None

    def _some_broker(self) -> str:
        return self._random.choice(list(self.simulation.brokers))

    def _join(self) -> None:
        self._joined += 1
        durable = self.options.durable and self._random.random() < 0.7
        self.simulation.join(f"client/c{self._joined}", self._some_broker(), durable=durable)

    def _leave(self) -> None:
        client = self._some_client()
        if client is not None and not client.moving:
            if client.durable:
                for subscription_id in list(client.subscriptions):
                    client.unsubscribe(subscription_id)
                for type_name in list(client.session.advertised):
                    client.unadvertise(type_name)
            self.simulation.leave(client.name)

    def _vanish(self) -> None:
        client = self._some_client()
        if client is not None and client.durable:
            return  # its session would stay for good
        if client is not None and not client.moving and client.port.wire is not None:
            self.simulation.vanish(client.name)

    def _move(self) -> None:
        client = self._some_client()
        if client is not None and (self.options.moves or not client.durable):
            self.simulation.move(client.name, self._some_broker())

    def _disconnect(self) -> None:
        client = self._some_client()
        if client is not None:
            # Longer than the lease: a publisher's advertisement has to spread again, before its events.
            longer = client.durable or (self.options.durable and not client.subscriptions)
            most_ms = 3_000 if longer else 400
            self.simulation.disconnect(client.name, self._random.randrange(1, most_ms) * NS_PER_MS)

    def _advertise(self) -> None:
        client = self._some_client()
        if client is not None:
            event_type = self._random.choice(self._types)
            contents = (
                [None, *(parse(text, event_type) for text in CONTENTS)] if self.options.content else [None]
            )
            if event_type.name not in client.session.advertised:
                # An Advertise overtakes pending events, which another content filter would refuse.
                content = self._random.choice(contents)
                key = client.name, event_type.name
                client.advertise(event_type, self._contents.setdefault(key, content))

    def _unadvertise(self) -> None:
        client = self._some_client()
        if client is not None and client.session.advertised:
            client.unadvertise(self._random.choice(list(client.session.advertised)))

    def _widen(self) -> None:
        client = self._some_client()
        if client is not None:
            client.widen(self._random.choice(WIDER))

    def _values(self, filter: Filter) -> dict[str, object]:
        draw = self._random
        drawn: dict[str, object] = {
            "a": draw.randint(0, 7),
            "b": draw.choice((0, 2.5, 4, 7)),
            "n": draw.choice("pq"),
        }
        if self.options.motion:
            for name in self._bounds[filter]:
                if draw.random() < 0.5:
                    drawn[name] = Motion(float(draw.randint(0, 7)), draw.choice(_RATES))
        return {name: drawn[name] for name in filter.variables}

    def _subscribe(self) -> None:
        client = self._some_client()
        if client is not None:
            filter = self._random.choice(self._filters[self._random.choice(self._types).name])
            client.subscribe(filter, self._values(filter), valid_for_ns=self._validity_ns())

    def _validity_ns(self) -> int:
        if not self.options.validity or self._random.random() < 0.5:
            return 0
        return self._random.choice((1, 30, 300, 2_000, 5_000)) * NS_PER_MS

    def _renew(self) -> None:
        chosen, valid_for_ns = self._some_subscription(), self._validity_ns()
        if chosen is not None and valid_for_ns:
            chosen[0].renew(chosen[1], valid_for_ns)

    def _some_subscription(self) -> tuple[SimulatedClient, int] | None:
        known = [(client, i) for client in self.simulation.clients.values() for i in client.subscriptions]
        return self._random.choice(known) if known else None

    def _update(self) -> None:
        chosen = self._some_subscription()
        if chosen is not None:
            client, subscription_id = chosen
            values = self._values(client.subscriptions[subscription_id])
            values = {name: value for name, value in values.items() if self._random.random() < 0.8}
            gapless = self.options.gapless and self._random.random() < 0.5
            client.update(subscription_id, values, gapless=gapless)

    def _view(self) -> None:
        client = self._some_client()
        if client is not None and not client.durable:
            filter = self._random.choice(self._filters[self._random.choice(self._types).name])
            client.view(filter, self._values(filter))

    def _some_view(self) -> tuple[SimulatedClient, int] | None:
        known = [(client, i) for client in self.simulation.clients.values() for i in client.views]
        return self._random.choice(known) if known else None

    def _update_view(self) -> None:
        chosen = self._some_view()
        if chosen is not None:
            client, view_id = chosen
            values = self._values(client.session.subscriptions[view_id])
            client.update_view(view_id, {n: v for n, v in values.items() if self._random.random() < 0.8})

    def _close_view(self) -> None:
        chosen = self._some_view()
        if chosen is not None:
            chosen[0].close_view(chosen[1])

    def _unsubscribe(self) -> None:
        chosen = self._some_subscription()
        if chosen is not None:
            chosen[0].unsubscribe(chosen[1])

    def _publish(self) -> None:
        publishers = [client for client in self.simulation.clients.values() if client.session.advertised]
        if publishers:
            client = self._random.choice(publishers)
            advertised = self._random.choice(list(client.session.advertised.values()))
            event_type, content = advertised.event_type, advertised.filter
            if self.options.widen and event_type.name == "T":
                event_type = self._random.choice((event_type, TYPES[0]))  # before it takes effect, and after
            rows = [self._event(event_type) for _ in range(self._random.randint(1, 4))]
            if event_type.key is not None:
                for row in rows:
                    row[event_type.key] = self._key(client, event_type)
            rows = [row for row in rows if content is None or content.matches(row)]
            client.publish(EventBatch.from_pylist(event_type, rows))

    def _event(self, event_type: EventType) -> dict[str, object]:
        draw = self._random
        if event_type.name == "U":
            return {"x": draw.randint(0, 8), "flag": draw.choice((True, False, None))}
        y, s = draw.choice((None, 1.5, 4.0, 7.5, 9.0)), draw.choice(("p", "q", "pq", None))
        event: dict[str, object] = {"x": draw.randint(0, 8), "y": y, "s": s}
        if self.options.widen:
            drawn = {
                "v": draw.choice((None, 0, 3, 7)),
                "w": draw.choice((None, 0.5, 2.0, 6.0)),
                "f": draw.choice((True, False, None)),
                "r": draw.choice(("p", "qp", None)),
            }
            event |= {name: value for name, value in drawn.items() if name in event_type.attributes}
        return event

    def _key(self, client: SimulatedClient, event_type: EventType) -> object:
        """One of a few keys that no other client publishes, or None."""
        number = self._random.choice((0, 0, 1, 2, 3, None))
        if number is None:
            return None
        publisher = client.session.publisher  # another one after a move: keys do not move
        if event_type.name == "T":
            return f"{publisher}.{number}"
        own, _, life = publisher.removeprefix("c").partition("/")
        return 1_000 * int(own) + 10 * int(life or 1) + number

    def _partition(self) -> None:
        if self.simulation.links:
            a, b = self._random.choice(self.simulation.links)
            most_ms = 3_000 if self.options.durable else 800
            self.simulation.partition(a, b, self._random.randrange(1, most_ms) * NS_PER_MS)

    def _crash(self) -> None:
        self.simulation.crash(self._some_broker(), self._random.randrange(1, 500) * NS_PER_MS)

    def _rest(self) -> None:
        self._run()
        if not self.findings:
            self._check()

    def _check(self) -> None:
        self.judge.quiet()
        self.traffic.quiet()
        self.views.quiet(self.simulation.clients.values())
        check_quiet(self.simulation, self.findings)
        check_routes(self.simulation, self.findings)
        check_logs(self.simulation, self.findings)


def _bounds(filter: Filter) -> list[str]:
    operands = [leaf.operand for leaf in leaves(filter.expression) if isinstance(leaf, Constraint)]
    constrained = {operand.name for operand in operands if isinstance(operand, Variable)}
    return [name for name, way in directions(filter).items() if way and name not in constrained]
