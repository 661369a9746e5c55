"""Random histories in which every fault may meet every other (`covey sim fuzz --faults all`). Each history
draws the kind of its overlay where options do not set it. Faults come in any order, at a rate drawn per
history, and lasting ones overlap. Now and then all of them end. Ten virtual seconds later the routing state
must be that of an overlay built anew, and at rest every expected durable event must have arrived once, in its
publisher's order and as published; only events of damaged records are excused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

from covey.overlay.core.budget import IDLE_FRAME, PERMITS, PERMITS_PER_S
from covey.overlay.core.endpoint.limits import SessionLimits, SlowConsumer
from covey.overlay.core.link.link import Frame
from covey.sim.checkers import Damage, check_quiet, check_rebuilt
from covey.sim.experiments.fuzz.filters import CONTENTS, TYPES
from covey.sim.experiments.fuzz.history import FuzzHistory, Paces
from covey.sim.experiments.fuzz.options import FuzzOptions, HistoryOutcome
from covey.sim.simulator import Simulation
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.simulator.defects import RECEIVED_KINDS, SENT_KINDS, CrashPoint, Moment
from covey.sim.simulator.storage import StoredEvents
from covey.sim.simulator.wire import Wire
from covey.sim.topology import Topology

Pair = tuple[str, str]


class Network:
    """Network partitions between pairs of brokers. A pair that is cut n times takes n calls of `mend`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._cuts: Counter[Pair] = Counter()

    def pairs(self) -> list[Pair]:
        """The pairs that may be cut: those of links or, if links move, all pairs of brokers."""
        simulation = self._simulation
        if simulation.moving is None:
            return list(simulation.links)
        return list(combinations(simulation.brokers, 2))

    def cut(self, pair: Pair) -> None:
        self._cuts[pair] += 1
        if self._cuts[pair] == 1:
            self._apply(pair, cut=True)

    def mend(self, pair: Pair) -> None:
        """Undo one cut; no effect on a pair that is not cut."""
        if self._cuts[pair] == 1:
            del self._cuts[pair]
            self._apply(pair, cut=False)
        elif self._cuts[pair]:
            self._cuts[pair] -= 1

    def heal(self) -> None:
        for pair in list(self._cuts):
            self._cuts[pair] = 1
            self.mend(pair)

    def _apply(self, pair: Pair, *, cut: bool) -> None:
        moving = self._simulation.moving
        if moving is not None:
            moving.keep_apart(self._cuts)
        elif cut:
            self._simulation.block(*pair)
        else:
            self._simulation.unblock(*pair)


HEALED_NS = 10 * NS_PER_S
_REPAIR_AFTER_NS = NS_PER_S
_FLOODED_NS = 10 * NS_PER_S
_HOUR_NS = 3600 * NS_PER_S
_EPOCH_NS = 1_000 * _HOUR_NS
"""The clocks at the beginning, so that none is set back before 0."""
_REDIAL_NS = 500 * NS_PER_MS
_CLOGGED_NS = 2_500 * NS_PER_MS
_POLICIES = (SlowConsumer.BLOCK, SlowConsumer.BLOCK, SlowConsumer.DROP_OLDEST, SlowConsumer.DROP_NEWEST)


def drawn_options(seed: int, options: FuzzOptions) -> FuzzOptions:
    """The options of one history; the options that are set stay."""
    draw = random.Random(f"overlay {seed}")
    drawn = {"durable": draw.random() < 0.75, "repair": draw.random() < 0.3, "gapless": draw.random() < 0.25}
    on = {name: drawn[name] or getattr(options, name) for name in drawn}
    if on["durable"] and on["repair"]:  # an overlay file cannot have both
        given = [name for name in ("durable", "repair") if getattr(options, name)]
        kept = given[0] if given else draw.choice(("durable", "repair"))
        on |= {"durable": kept == "durable", "repair": kept == "repair"}
    on["validity"] = options.validity or random.Random(f"validity {seed}").random() < 0.3
    on["widen"] = options.widen or random.Random(f"wider {seed}").random() < 0.15
    kinds = options.fault_kinds
    if on["gapless"] and "clocks" in kinds:  # which compares the clocks of a client and of a broker
        if kinds == ("clocks",):
            on["gapless"] = False
        else:
            kinds = tuple(kind for kind in kinds if kind != "clocks")
    on["moves"] = options.moves or draw.random() < 0.5
    on["content"] = options.content or draw.random() < 0.15
    on["operators"] = options.operators or draw.random() < 0.2
    on["calls"] = options.calls or draw.random() < 0.05
    merging = draw.choice(("perfect", "budget")) if draw.random() < 0.2 else "off"
    damping = draw.choice((1.0, 2.0)) if draw.random() < 0.15 else 0.0
    merging = merging if options.merging == "off" else options.merging
    damping = options.damping or damping
    routing = options.routing
    if merging == "off" and not damping and draw.random() < 0.2:
        routing = "static"
    if routing == "static":
        merging, damping = options.merging, options.damping
    if options.views:  # what views are not promised with
        routing = options.routing
        on |= dict.fromkeys(("calls", "widen", "repair"), False)
        on["durable"] = options.durable
    fixed = replace(options, routing=routing, merging=merging, damping=damping, faults=",".join(kinds))
    return replace(fixed, **on)  # type: ignore[arg-type]


class FaultyHistory(FuzzHistory):
    """One history; `play` returns its outcome. Its wires and disks are fast enough for pending events to
    leave within ten seconds after the last fault."""

    _paces = Paces((300, 4 << 20), (2, 16), (0, 5), (0.0, 0.0, 0.02), (0, 1, 20))

    def __init__(self, seed: int, options: FuzzOptions) -> None:
        own = drawn_options(seed, options)
        draw = random.Random(f"faults {seed}")
        kinds = own.fault_kinds
        slow = "slow" in kinds
        sessions = SessionLimits(
            lease_s=4.5,  # longer than connections are away
            queue_events=draw.choice((20, 1_000)) if slow else 1_000_000,
            stall_limit_s=draw.choice((1.0, 10.0)),
        )
        repair_after_ns = _REPAIR_AFTER_NS if own.repair else 0
        super().__init__(seed, own, repair_after_ns=repair_after_ns, sessions=sessions)
        self.counts = dict.fromkeys(options.fault_kinds, 0)
        self.met: list[CrashPoint] = []
        self._kinds = kinds
        self._rights = random.Random(f"{seed} rights")
        without = own.calls or own.widen or own.views
        self._restricted = 0.5 if self._rights.random() < 0.25 and not without else 0.0
        """The share of clients that are not durable with a policy by content. A policy needs attributes of
        the first schema, and is judged without operators."""
        self._healing = False
        simulation = self.simulation
        self.damage = Damage(
            self.findings,
            lambda: simulation.clock.now_ns,
            self.judge,
            self._behind,
            lambda: {
                name: broker.storage.reported
                for name, broker in simulation.brokers.items()
                if broker.storage is not None
            },
        )
        simulation.observers.append(self.damage)
        simulation.on_damage = self._damaged
        simulation.on_stop = self._stopped
        self.network = Network(simulation)
        for action in (self._partition, self._crash, self._move):
            del self._weights[action]
        self._weights |= {self._update: 20, self._publish: 60}
        self._pauses_ms = (1, 5, 20, 100, 1_500)
        self._brokers = 2, 6
        faults: dict[str, Callable[[], None]] = {
            "crashes": self._crash,
            "partitions": self._cut,
            "swizzles": self._swizzle,
            "clogs": self._clog,
            "connections": self._connect,
            "slow": self._stop_reading,
            "clocks": self._set_clock,
            "damage": self._flip,
            "full": self._fill,
            "moves": self._move,
            "floods": self._flood,
            "power": self._crash,
        }
        rate = draw.choice((1, 4, 8))
        for name, fault in faults.items():
            if name in kinds and (own.durable or name not in ("damage", "full")):
                self._weights[fault] = rate

    def play(self) -> HistoryOutcome:
        outcome = super().play()
        return replace(outcome, faults=tuple(self.counts.items()), damaged=self.damage.events)

    def _build(self, topology: Topology) -> None:
        super()._build(topology)
        for broker in self.simulation.brokers.values():
            broker.step_clock(_EPOCH_NS)
        for _ in range(3):
            self._join()
            self._advertise()
            self._subscribe()

    def _join(self) -> None:
        self._joined += 1
        durable = self.options.durable and self._random.random() < 0.7
        slow = "slow" in self._kinds
        policy = self._random.choice(_POLICIES) if slow and not durable else SlowConsumer.BLOCK
        if self.options.views:
            policy = SlowConsumer.BLOCK  # a view that lost events is wrong until its next update
        policies = None
        if not durable and self._rights.random() < self._restricted:
            policies = {each.name: self._rights.choice(CONTENTS) for each in TYPES}
        client = self.simulation.join(
            f"client/c{self._joined}", self._some_broker(), policy, durable=durable, policies=policies
        )
        client.clock_offset_ns = _EPOCH_NS

    def _damaged(self, broker: str, type_name: str, events: StoredEvents) -> None:
        self.damage.damaged(broker, type_name, events)
        self.views.damaged(events)

    def _behind(self, broker: str, interface: str) -> set[str]:
        reached, todo = {interface}, [interface]
        while todo:
            here = todo.pop()
            others = {b if a == here else a for a, b in self.simulation.links if here in (a, b)}
            todo += others - reached - {broker}
            reached |= others - {broker}
        return reached

    # --- crashes --------------------------------------------------------------------------------------------

    def _down_ns(self) -> int:
        return self._random.randrange(1, self._random.choice((100, 1_000, 4_000))) * NS_PER_MS

    def _crash(self) -> None:
        """A broker is killed or loses power, now or at a kind of message."""
        draw, broker = self._random, self._some_broker()
        kinds = [kind for kind in ("crashes", "power") if kind in self._kinds]
        kind = draw.choice(kinds)
        if draw.random() < 0.6:
            moment = draw.choice(list(Moment))
            message = draw.choice(RECEIVED_KINDS if moment is Moment.RECEIVED else SENT_KINDS)
            number = draw.choice((1, 1, 2, 5))
            self.simulation.crash_points.add(CrashPoint(moment, message, number, kind == "power"))
        elif self.simulation.brokers[broker].alive:
            self.counts[kind] += 1
            self.simulation.crash(broker, 0, power=kind == "power")
            self.simulation.clock.after(self._down_ns(), self._restart, broker)

    def _stopped(self, broker: str, error: BaseException | None) -> None:
        storage = self.simulation.brokers[broker].storage
        point = self.simulation.crash_points.met.pop(broker, None)
        if point is not None:
            self.met.append(point)
            self.counts["power" if point.power else "crashes"] += 1
            if point.power and storage is not None:
                storage.lose_power()
        self.simulation.clock.after(self._down_ns(), self._restart, broker)

    def _restart(self, broker: str) -> None:
        """After an operator has made room on its disk."""
        storage = self.simulation.brokers[broker].storage
        if storage is not None and not self.simulation.brokers[broker].alive:
            storage.mend()
        self.simulation.restart(broker)

    # --- the network ----------------------------------------------------------------------------------------

    def _cut(self) -> None:
        pairs = self.network.pairs()
        if pairs:
            self.counts["partitions"] += 1
            self._cut_for(self._random.choice(pairs), 0, self._down_ns())

    def _cut_for(self, pair: Pair, from_ns: int, down_ns: int) -> None:
        clock = self.simulation.clock
        clock.after(from_ns, self._cut_now, pair)
        clock.after(from_ns + down_ns, self.network.mend, pair)

    def _cut_now(self, pair: Pair) -> None:
        if not self._healing:
            self.network.cut(pair)

    def _swizzle(self) -> None:
        draw = self._random
        pairs = [pair for pair in self.network.pairs() if draw.random() < 0.7]
        clients = [name for name in self.simulation.clients if draw.random() < 0.3]
        self.counts["swizzles"] += bool(pairs or clients)
        last_ns = 1_000 * NS_PER_MS
        for pair in pairs:
            from_ns = draw.randrange(last_ns)
            self._cut_for(pair, from_ns, last_ns - from_ns + draw.randrange(2 * last_ns))
        for name in clients:
            self._lose_connection(name, draw.randrange(last_ns), draw.randrange(1, last_ns))

    def _lose_connection(self, name: str, from_ns: int, down_ns: int) -> None:
        def lose() -> None:
            if name in self.simulation.clients and not self._healing:
                self.simulation.disconnect(name, down_ns)

        self.simulation.clock.after(from_ns, lose)

    def _clog(self) -> None:
        draw, now_ns = self._random, self.simulation.clock.now_ns
        for wire in self.simulation.connections():
            if draw.random() < 0.3:
                self.counts["clogs"] += 1
                wire.clogged_until_ns = now_ns + draw.randrange(_CLOGGED_NS)

    def _connect(self) -> None:
        draw, connections = self._random, self.simulation.connections()
        if connections:
            wire = draw.choice(connections)
            self.counts["connections"] += 1
            if draw.random() < 0.3:
                wire.clogged_until_ns = self.simulation.clock.now_ns + draw.randrange(_CLOGGED_NS)
            self.simulation.repeat_connection(wire)

    # --- clients and clocks ---------------------------------------------------------------------------------

    def _stop_reading(self) -> None:
        client = self._some_client()
        if client is not None and client.reading:
            self.counts["slow"] += 1
            client.stop_reading()
            self.simulation.clock.after(self._down_ns(), client.resume_reading)

    def _set_clock(self) -> None:
        draw = self._random
        step_ns = draw.choice((-_HOUR_NS, _HOUR_NS))
        self.counts["clocks"] += 1
        client = self._some_client()
        if draw.random() < 0.3 and client is not None:
            client.clock_offset_ns += step_ns
        else:
            self.simulation.brokers[self._some_broker()].step_clock(step_ns)

    def _move(self) -> None:
        client = self._some_client()
        if client is not None and (self.options.moves or not client.durable):
            self.counts["moves"] += 1
            self.simulation.move(client.name, self._some_broker())

    def _flood(self) -> None:
        """Frames that change nothing, by one client or several: their connections end, and no others."""
        for _ in range(self._random.choice((1, 3))):
            client = self._some_client()
            wire = None if client is None else client.port.wire
            if client is None or wire is None or not client.port.open:
                continue
            self.counts["floods"] += 1
            frames = self._random.choice((30, 300, 1_000))
            for _ in range(frames):
                wire.transmit(client.port, Frame(0, 0, 0))
            ends = frames * IDLE_FRAME > PERMITS + PERMITS_PER_S  # they arrive within a second
            until_ns = client.port.last_arrival_ns + _FLOODED_NS
            self._after_flood(client.name, wire, wire.generation, until_ns, ends)

    def _after_flood(self, name: str, wire: Wire, generation: int, until_ns: int, ends: bool) -> None:
        """Dial again once the connection has ended; report it if it had to end and has not."""
        clock = self.simulation.clock
        if wire.generation != generation:
            if not wire.up:
                self.simulation.disconnect(name, 0)
        elif clock.now_ns < until_ns:
            clock.after(_FLOODED_NS // 100, self._after_flood, name, wire, generation, until_ns, ends)
        elif ends:
            self.findings.add("flood", clock.now_ns, f"the connection of {name} goes on")

    # --- disks ----------------------------------------------------------------------------------------------

    def _flip(self) -> None:
        storages = [broker.storage for broker in self.simulation.brokers.values()]
        written = [each for each in storages if each is not None and each.written]
        if written:
            storage = self._random.choice(written)
            for _ in range(self._random.choice((1, 10))):
                self.counts["damage"] += storage.flip(self._random)

    def _fill(self) -> None:
        """A disk is full, or its next sync fails: the broker ends when it writes."""
        storage = self.simulation.brokers[self._some_broker()].storage
        assert storage is not None
        self.counts["full"] += 1
        if self._random.random() < 0.7:
            storage.fill(self._random.choice((0, 10, 500)))
        else:
            storage.fail_sync()

    # --- rest -----------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """All faults end. Ten seconds later the routing state must be that of an overlay built anew."""
        self._healing = True
        self._heal()
        clock = self.simulation.clock
        until_ns = clock.now_ns + HEALED_NS
        while clock.now_ns < until_ns and not self.findings:
            next_ns = min(until_ns, clock.now_ns + _REDIAL_NS)
            self._run(next_ns)
            clock.now_ns = max(clock.now_ns, next_ns)  # where nothing is scheduled
            for client in list(self.simulation.clients.values()):
                if not client.moving:
                    self.simulation.redial(client.name)
        if self.findings:
            return
        check_quiet(self.simulation, self.findings)
        check_rebuilt(self.simulation, self.findings)
        super()._rest()
        self._healing = False

    def _check(self) -> None:
        super()._check()
        self.damage.quiet()

    def _heal(self) -> None:
        simulation = self.simulation
        simulation.crash_points.clear()
        self.network.heal()
        for name, broker in simulation.brokers.items():
            if broker.storage is not None:
                broker.storage.mend()
            simulation.restart(name)
        for wire in simulation.connections():
            wire.clogged_until_ns = 0
        for client in simulation.clients.values():
            client.resume_reading()
