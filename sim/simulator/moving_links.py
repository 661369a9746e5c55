"""Links that move around dead or unreachable brokers in virtual time, as `overlay/node/dialer.py`: advances
each broker, answers its probes at once, and opens its upward link if both ends have read the same file."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

from covey.overlay.core.repair.uplink import UplinkRule
from covey.sim.simulator.broker import SimulatedBroker
from covey.sim.simulator.clock import Clock
from covey.sim.simulator.wire import Wire, WireOptions


class MovingLinks:
    """Keeps `links` equal to the open ones, (listener, dialer). Brokers are named by their interfaces."""

    def __init__(
        self,
        clock: Clock,
        brokers: Mapping[str, SimulatedBroker],
        links: list[tuple[str, str]],
        rule: UplinkRule,
        rng: random.Random,
        options: WireOptions,
    ) -> None:
        self.rule = rule
        self._clock = clock
        self._brokers = brokers
        self._links = links
        self._random = rng
        self._options = options
        self.wires: dict[str, Wire] = {}
        self._apart: set[frozenset[str]] = set()
        self.delays_ns: dict[frozenset[str], int] = {}
        """By pair of brokers, where it is not the delay of the options."""

    def start(self, broker: str) -> None:
        """Call when a broker has started."""
        self._advance(broker, self._brokers[broker].incarnation)

    def reach(self, a: str, b: str) -> bool:
        return self._brokers[a].alive and self._brokers[b].alive and frozenset((a, b)) not in self._apart

    def keep_apart(self, pairs: Iterable[tuple[str, str]]) -> None:
        """From now on these pairs of brokers do not reach each other, and all others do."""
        self._apart = {frozenset(pair) for pair in pairs}
        for broker, wire in self.wires.items():
            if wire.up and frozenset((broker, wire.dialer.interface)) in self._apart:
                wire.cut()

    def _advance(self, name: str, incarnation: int) -> None:
        broker = self._brokers[name]
        repairing = broker.repairing
        if not broker.alive or broker.incarnation != incarnation or repairing is None:
            return
        broker.repair(lambda other: self.reach(name, other))
        target = None if repairing.target is None else f"broker/{repairing.target}"
        if target is not None and self.reach(name, target) and self._brokers[target].rule is broker.rule:
            wire = self.wires.get(name)
            if wire is None or not wire.up or wire.dialer.interface != target:
                self._dial(name, target)
        self._links[:] = [
            (wire.dialer.interface, dialer) for dialer, wire in sorted(self.wires.items()) if wire.up
        ]
        self._clock.poll_at(
            self._clock.now_ns + repairing.interval_ns, self._advance, name, broker.incarnation
        )

    def _dial(self, name: str, target: str) -> None:
        listener = self._brokers[target].moving_port(name)
        dialer = self._brokers[name].moving_port(target)
        delay_ns = self.delays_ns.get(frozenset((name, target)), self._options.delay_ns)
        options = replace(self._options, delay_ns=delay_ns)
        wire = self.wires[name] = Wire(self._clock, self._random, listener, dialer, options)
        wire.dial()
