"""The links of a broker where they move around brokers that are dead (`core/repair`).

Invariants. There is at most one upward link: the old queue is removed before the new one is created. A link
without a connection for `repair_after_ns` is released by both ends: its pending messages are dropped and
counted, its interest ends, and no acknowledgement waits for it. A link that is left for a better one ends in
order: nothing more is routed to it, what is queued is acknowledged or `LEAVE_NS` pass, then a goodbye
releases it at the other end.

The driver calls `advance` every `interval_ns`, probes the brokers of `to_probe`, and dials `target`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.messages import Interface
from covey.overlay.core.repair.uplink import Uplink, UplinkRule

LEAVE_NS = 2_000_000_000
MOVED = "OK"
"""The status of the goodbye of a broker that has another upward link from now on."""
_BROKER = "broker/"
_LONGEST_INTERVAL_NS = 500_000_000
_LEAVING_INTERVAL_NS = 20_000_000


class Repairing:
    """The links of the broker `name`. `released` is called with each interface whose link has ended."""

    def __init__(
        self,
        endpoint: BrokerEndpoint[Any],
        name: str,
        rule: UplinkRule,
        repair_after_ns: int,
        released: Callable[[Interface], None] = lambda interface: None,
    ) -> None:
        self.rule = rule
        self.uplink = Uplink(rule.candidates(name), repair_after_ns)
        self._endpoint = endpoint
        self._name = name
        self._released = released
        self._leaving: dict[Interface, tuple[int, str]] = {}
        """Links that are left in order: until when, and the status of the goodbye."""

    @property
    def interval_ns(self) -> int:
        if self._leaving:
            return _LEAVING_INTERVAL_NS
        return min(_LONGEST_INTERVAL_NS, self.uplink.repair_after_ns // 4)

    @property
    def target(self) -> str | None:
        """The broker to which this one has its upward link, or is to open it."""
        return self.uplink.chosen if not self._leaving and self._queue() is not None else None

    def neighbours(self) -> dict[str, bool]:
        """The brokers that this one has links to; True for those that it dials."""
        names = [interface.removeprefix(_BROKER) for interface in self._endpoint.neighbours]
        target = self.target
        return {name: name == target for name in names}

    def describe(self) -> tuple[str | None, str]:
        chosen, best = self.uplink.chosen, self.uplink.best
        if best is None:
            return None, "the first broker of the overlay file has none"
        if chosen == best:
            return chosen, "its parent in the overlay file"
        if chosen is None:
            return None, f"none of {', '.join(self.rule.candidates(self._name))} answers"
        again = "answers again" if self.uplink.answers(best) else "does not answer"
        return chosen, f"in place of {best}, which {again}"

    def set_rule(self, rule: UplinkRule, now_ns: int) -> None:
        """Links that the new rule does not allow end in order."""
        self.rule = rule
        before = self.uplink.chosen
        self.uplink.set_candidates(rule.candidates(self._name))
        for interface in list(self._endpoint.neighbours):
            name = interface.removeprefix(_BROKER)
            if name == before:
                if name != self.uplink.chosen:
                    self._leave(interface, now_ns, MOVED)
            elif not rule.may_link(name, self._name):
                self._leave(interface, now_ns, "UNAVAILABLE")

    def admit(self, interface: Interface, now_ns: int) -> bool:
        """Whether a broker that connects may have its upward link to this one."""
        if not self.rule.may_link(interface.removeprefix(_BROKER), self._name):
            return False
        self._endpoint.add_neighbour(interface, now_ns)
        return True

    def left(self, interface: Interface, now_ns: int) -> None:
        """A broker has reported that it has another upward link."""
        if interface in self._endpoint.neighbours and interface != self._chosen:
            self._leaving.pop(interface, None)
            self._end(interface, now_ns)

    # --- probes ---------------------------------------------------------------------------------------------

    def to_probe(self) -> list[str]:
        if self._leaving:
            return []
        queue = self._queue()
        return self.uplink.to_probe(queue is not None and queue.connected)

    def probed(self, name: str, answered: bool, now_ns: int) -> None:
        self.uplink.probed(name, answered, now_ns)

    # --- time -----------------------------------------------------------------------------------------------

    def advance(self, now_ns: int) -> None:
        """Release links that were disconnected for too long, and choose the upward link."""
        endpoint = self._endpoint
        after_ns = self.uplink.repair_after_ns
        for interface, queue in list(endpoint.neighbours.items()):
            if interface in self._leaving:
                self._go_on_leaving(queue, now_ns)
            elif not queue.connected and now_ns - queue.since_ns >= after_ns:
                chosen = interface == self._chosen
                self._end(interface, now_ns)
                if chosen:
                    self.uplink.give_up()
        if self._leaving:
            return
        queue_up = self._queue()
        if self.uplink.chosen is None or queue_up is None:
            chosen_name = self.uplink.chosen or self.uplink.choose()
            if chosen_name is not None:
                endpoint.add_neighbour(_BROKER + chosen_name, now_ns)
        elif queue_up.connected:
            self.uplink.linked()
            better = self.uplink.better(now_ns)
            if better is not None:
                self._leave(queue_up.interface, now_ns, MOVED)
                self.uplink.choose(better)

    @property
    def _chosen(self) -> Interface:
        return f"{_BROKER}{self.uplink.chosen}"

    def _queue(self) -> InterfaceQueue | None:
        return self._endpoint.neighbours.get(self._chosen)

    def _leave(self, interface: Interface, now_ns: int, status: str) -> None:
        if interface not in self._leaving:
            queue = self._endpoint.neighbours[interface]
            self._leaving[interface] = now_ns + LEAVE_NS, status
            queue.link.withhold_credit(True)
            self._endpoint.release_neighbour(interface, now_ns)
            self._released(interface)
            self._go_on_leaving(queue, now_ns)

    def _go_on_leaving(self, queue: InterfaceQueue, now_ns: int) -> None:
        until_ns, status = self._leaving[queue.interface]
        if queue.connected and not queue.link.idle and now_ns < until_ns:
            queue.link.ask()
            queue.wake()
            return
        del self._leaving[queue.interface]
        name = queue.interface.removeprefix(_BROKER)
        if status == MOVED:
            reason = f"broker {self._name} has another upward link from now on"
        else:
            reason = f"broker {name} may not have its upward link to {self._name} any more"
        self._endpoint.remove_neighbour(queue.interface, reason, now_ns, status=status)

    def _end(self, interface: Interface, now_ns: int) -> None:
        self._endpoint.release_neighbour(interface, now_ns)
        self._endpoint.remove_neighbour(interface, "the link has moved", now_ns)
        self._released(interface)
