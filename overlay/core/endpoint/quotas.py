"""Bounds on the state that one client, and all together, may create in a broker.

A message over a bound is refused with RESOURCE_EXHAUSTED and one sentence that names the bound; what was
accepted before stays. Neighbours are not bounded here: what they send was accepted from a client elsewhere.
Cost: O(1) per message, beside one pass over the filter of a Subscribe or an Advertise.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.matcher.expressions.checking import DEPTH_LIMIT
from covey.matcher.expressions.expression import And, Expression, Or
from covey.matcher.expressions.tokens import TEXT_LIMIT
from covey.matcher.filters.filter import Filter
from covey.overlay.core.messages import Advertise, Interface, Message, Refuse, Subscribe
from covey.overlay.core.routing.tables import Tables


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many sessions a broker has, subscriptions a session, event types a broker and a session (those that
    it was the first to name), and how long and how deeply nested a filter is.
    """

    sessions: int = 20_000
    session_subscriptions: int = 1_000_000
    session_types: int = 1_000
    types: int = 10_000
    filter_bytes: int = TEXT_LIMIT
    filter_depth: int = DEPTH_LIMIT


class Quotas:
    """Compares what clients ask of one broker with its bounds."""

    def __init__(self, tables: Tables, bounds: Bounds) -> None:
        self._tables = tables
        self.bounds = bounds
        self._introduced: dict[Interface, dict[str, None]] = {}

    def forget(self, interface: Interface) -> None:
        """The session of a client has ended."""
        self._introduced.pop(interface, None)

    def session_refusal(self, sessions: int) -> str | None:
        """Why a broker with so many sessions takes no other; None if it does."""
        if sessions < self.bounds.sessions:
            return None
        return f"the broker has {sessions} sessions: expected at most {self.bounds.sessions} (max_sessions)"

    def refusal(self, message: Message, interface: Interface) -> Refuse | None:
        """The refusal of a client's message that is over a bound. To be asked directly before the core gets
        the message.
        """
        if isinstance(message, Subscribe):
            name, subscription_id = message.filter.event_type.name, message.subscription_id
            reason = self._of_filter(message.filter) or self._of_subscription(interface, subscription_id)
        elif isinstance(message, Advertise):
            name, subscription_id = message.event_type.name, 0
            reason = None if message.filter is None else self._of_filter(message.filter)
        else:
            return None
        reason = reason or self._of_type(interface, name)
        if reason is None:
            return None
        return Refuse(message.epoch, "RESOURCE_EXHAUSTED", reason, subscription_id, name)

    def _of_subscription(self, interface: Interface, subscription_id: int) -> str | None:
        peer = self._tables.peers.get(interface)
        most = self.bounds.session_subscriptions
        if peer is None or subscription_id in peer.subscriptions or len(peer.subscriptions) < most:
            return None
        return f"{interface} has {most} subscriptions: expected no more (max_session_subscriptions)"

    def _of_type(self, interface: Interface, name: str) -> str | None:
        types, bounds = self._tables.types, self.bounds
        if name in types:
            return None
        if len(types) >= bounds.types:
            return f"event type {name!r} is one more than {bounds.types}: expected no more (max_types)"
        mine = self._introduced.setdefault(interface, {})
        if len(mine) >= bounds.session_types:
            mine = self._introduced[interface] = {each: None for each in mine if each in types}
            if len(mine) >= bounds.session_types:
                return (
                    f"event type {name!r} is one more than the {bounds.session_types} that {interface} has "
                    "introduced: expected no more (max_session_types)"
                )
        mine[name] = None
        return None

    def _of_filter(self, filter: Filter) -> str | None:
        bounds, name = self.bounds, filter.event_type.name
        if bounds.filter_bytes < TEXT_LIMIT:  # which the parser has seen to
            size = len(str(filter).encode())
            if size > bounds.filter_bytes:
                return (
                    f"a filter on {name!r} has {size} bytes: expected at most {bounds.filter_bytes} "
                    "(max_filter_bytes)"
                )
        if bounds.filter_depth < DEPTH_LIMIT:
            depth = depth_of(filter.expression)
            if depth > bounds.filter_depth:
                return (
                    f"a filter on {name!r} is nested {depth} deep: expected at most {bounds.filter_depth} "
                    "(max_filter_depth)"
                )
        return None


def depth_of(expression: Expression) -> int:
    """The levels of a filter's tree: 1 for a single predicate."""
    depth = 0
    level = [expression]
    while level:
        depth += 1
        level = [part for each in level if isinstance(each, And | Or) for part in each.parts]
    return depth
