"""Bounds on the state that one client, and all together, may create in a broker, and on how fast one may
send.

A message over a bound is refused with RESOURCE_EXHAUSTED and one sentence that names the bound. Neighbours
are not bounded: what they send was accepted elsewhere. Cost: O(1) per message, and one pass over the filter
of a Subscribe or an Advertise.

A rate is a bucket per session and kind that fills at the rate and holds one second of it. Invariant: over any
t seconds the accepted amount is at most rate * (t + 1), and one message more. A message passes while the
bucket is not empty and may overdraw it, so a batch is never split."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.matcher.compile.form_model import conjunction_count
from covey.matcher.expressions.checking import DEPTH_LIMIT
from covey.matcher.expressions.expression import And, Expression, Or
from covey.matcher.filters.filter import Filter
from covey.overlay.core.messages import Advertise, Interface, Message, Refuse, Subscribe, Update
from covey.overlay.core.routing.tables import Tables

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch


_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """`session_types` are those that the session named first. The length of a filter is checked before
    parsing: to parse and index it takes about a millisecond per KiB. None is no bound."""

    sessions: int = 20_000
    session_subscriptions: int = 1_000_000
    session_types: int = 1_000
    types: int = 10_000
    filter_bytes: int = 4_096
    filter_depth: int = DEPTH_LIMIT
    filter_conjunctions: int | None = None
    session_updates_per_s: int | None = None
    session_events_per_s: int | None = None
    session_event_bytes_per_s: int | None = None
    client_sessions: int = 5_000
    type_views: int = 1_024


class Quotas:
    def __init__(self, tables: Tables, bounds: Bounds) -> None:
        self._tables = tables
        self.bounds = bounds
        self._introduced: dict[Interface, dict[str, None]] = {}
        self._buckets: dict[Interface, dict[str, tuple[float, int]]] = {}
        """By session and kind, the level of a bucket and when it had that."""
        self._principals: dict[Interface, str] = {}
        self._sessions: Counter[str] = Counter()

    def forget(self, interface: Interface) -> None:
        self._introduced.pop(interface, None)
        self._buckets.pop(interface, None)
        self._count_no_more(interface)

    def _count_no_more(self, interface: Interface) -> None:
        principal = self._principals.pop(interface, None)
        if principal is not None:
            self._sessions[principal] -= 1
            if not self._sessions[principal]:
                del self._sessions[principal]

    def session_refusal(self, sessions: int, principal: str) -> str | None:
        """Why a broker with so many sessions takes no other of a principal; None if it does."""
        bounds = self.bounds
        if sessions >= bounds.sessions:
            return f"the broker has {sessions} sessions: expected at most {bounds.sessions} (max_sessions)"
        count = self._sessions[principal] if principal else 0
        if count >= bounds.client_sessions:
            return (
                f"{principal} has {count} sessions: expected at most {bounds.client_sessions} of one client "
                "(max_client_sessions)"
            )
        return None

    def session_opened(self, interface: Interface, principal: str) -> None:
        """Count a session, also one on its way from another broker, until `forget`; "" is not bounded."""
        self._count_no_more(interface)
        if principal:
            self._principals[interface] = principal
            self._sessions[principal] += 1

    def principal(self, interface: Interface) -> str:
        return self._principals.get(interface, "")

    def refusal(self, message: Message, interface: Interface, now_ns: int = 0) -> Refuse | None:
        """The refusal of a client's message over a bound; call directly before the core gets it."""
        if message.__class__ is Update:
            rate = self.bounds.session_updates_per_s
            if rate is None or self._passes(interface, "updates", 1, rate, now_ns):
                return None
            why = f"an update: expected at most {rate}/s of {interface} (max_session_updates_per_s)"
            return Refuse(message.epoch, "RESOURCE_EXHAUSTED", why, message.subscription_id)
        if message.__class__ is Subscribe:
            name, subscription_id = message.filter.event_type.name, message.subscription_id
            reason = self._of_filter(message.filter) or self._of_subscription(interface, subscription_id)
            if message.for_views:
                reason = reason or self._of_view(interface, subscription_id, name)
        elif message.__class__ is Advertise:
            name, subscription_id = message.event_type.name, 0
            reason = None if message.filter is None else self._of_filter(message.filter)
        else:
            return None
        reason = reason or self._of_type(interface, name)
        if reason is None:
            return None
        return Refuse(message.epoch, "RESOURCE_EXHAUSTED", reason, subscription_id, name)

    def events_refusal(
        self, batch: EventBatch, size: int, interface: Interface, now_ns: int
    ) -> Refuse | None:
        """The refusal of a client's events, of `size` bytes, that come too fast."""
        bounds, count = self.bounds, batch.count
        for option, amount, rate in (
            ("events", count, bounds.session_events_per_s),
            ("event_bytes", size, bounds.session_event_bytes_per_s),
        ):
            if rate is not None and not self._passes(interface, option, amount, rate, now_ns):
                what = option.replace("_", " ")
                reason = (
                    f"{count} events of {batch.event_type.name!r}: expected at most {rate} {what}/s of "
                    f"{interface} (max_session_{option}_per_s)"
                )
                first = int(batch.sequences()[0]) if count else batch.first_sequence
                return Refuse(0, "RESOURCE_EXHAUSTED", reason, 0, batch.event_type.name, first, count)
        return None

    def _passes(self, interface: Interface, kind: str, amount: int, rate: float, now_ns: int) -> bool:
        """Whether the amount keeps the rate, per second; then it counts. A clock that goes back fills
        nothing."""
        buckets = self._buckets.setdefault(interface, {})
        level, since_ns = buckets.get(kind, (rate, now_ns))
        level = min(rate, level + max(0, now_ns - since_ns) / _NS_PER_S * rate)
        passed = level > 0
        buckets[kind] = (level - amount if passed else level, now_ns)
        return passed

    def _of_subscription(self, interface: Interface, subscription_id: int) -> str | None:
        peer = self._tables.peers.get(interface)
        most = self.bounds.session_subscriptions
        if peer is None or subscription_id in peer.subscriptions or len(peer.subscriptions) < most:
            return None
        return f"{interface} has {most} subscriptions: expected no more (max_session_subscriptions)"

    def _of_view(self, interface: Interface, subscription_id: int, name: str) -> str | None:
        state, peer = self._tables.types.get(name), self._tables.peers.get(interface)
        if state is None or state.keys is None or len(state.keys.views) < self.bounds.type_views:
            return None
        old = None if peer is None else peer.subscriptions.get(subscription_id)
        if old is not None and old.uid in state.keys.views.bits:
            return None
        return (
            f"event type {name!r} has {len(state.keys.views)} views at the broker: expected at most "
            f"{self.bounds.type_views} (max_type_views)"
        )

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
        if bounds.filter_depth < DEPTH_LIMIT:
            depth = depth_of(filter.expression)
            if depth > bounds.filter_depth:
                return (
                    f"a filter on {name!r} is nested {depth} deep: expected at most {bounds.filter_depth} "
                    "(max_filter_depth)"
                )
        if bounds.filter_conjunctions is not None:
            count = conjunction_count(filter.expression)
            if count > bounds.filter_conjunctions:
                return (
                    f"a filter on {name!r} has a normal form of {count if count < 1 << 60 else 'over 2^60'} "
                    f"conjunctions: expected at most {bounds.filter_conjunctions} (max_filter_conjunctions)"
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
