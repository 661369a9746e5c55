"""Notices to subscribers: named operators in their filters that did not answer at some broker.

That broker counts the undecided events, and sends a `Notice` to clients and neighbours whose subscriptions
call the operator; neighbours pass it on likewise. Invariant: at most one notice per operator and broker
leaves within `FIRST_INTERVAL_NS`. While the cause stays, intervals double. The next notice counts what was
not reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from covey.overlay.core.messages import Interface, Notice

if TYPE_CHECKING:
    from covey.matcher import Filter

FIRST_INTERVAL_NS = 10_000_000_000
LONGEST_INTERVAL_NS = 600_000_000_000
MOST_NAMED = 100
"""Subscriptions that one notice to a client names."""
MOST_COUNTED = 2**64 - 1
"""The greatest count that a notice has on the wire."""
_MOST_SOURCES = 1_000
"""Stored sources. Another replaces the longest silent one if that may send again; otherwise it is ignored."""


class Caller(Protocol):
    @property
    def uid(self) -> int: ...
    @property
    def interface(self) -> Interface: ...
    @property
    def subscription_id(self) -> int: ...
    @property
    def filter(self) -> Filter: ...


class Callers:
    __slots__ = ("_by_operator",)

    def __init__(self) -> None:
        self._by_operator: dict[str, dict[int, Caller]] = {}

    def add(self, interest: Caller) -> None:
        for call in interest.filter.calls:
            self._by_operator.setdefault(call.operator, {})[interest.uid] = interest

    def discard(self, interest: Caller) -> None:
        for call in interest.filter.calls:
            callers = self._by_operator.get(call.operator, {})
            callers.pop(interest.uid, None)
            if not callers:
                self._by_operator.pop(call.operator, None)

    def operators(self) -> tuple[str, ...]:
        """Operators that some filter calls, in order of appearance."""
        return tuple(self._by_operator)

    def count(self, operator: str) -> int:
        return len(self._by_operator.get(operator, ()))

    def interfaces(self, operator: str) -> dict[Interface, list[int]]:
        """The interfaces with interests that call an operator, each with its first `MOST_NAMED` ids."""
        interfaces: dict[Interface, list[int]] = {}
        for interest in self._by_operator.get(operator, {}).values():
            ids = interfaces.setdefault(interest.interface, [])
            if len(ids) < MOST_NAMED:
                ids.append(interest.subscription_id)
        return interfaces


class _Source:
    """What is not yet reported of one operator at one broker, learned from `neighbour` ("": this broker)."""

    __slots__ = ("count", "interval_ns", "neighbour", "next_ns", "reason")

    def __init__(self) -> None:
        self.count = 0
        self.reason = ""
        self.neighbour: Interface = ""
        self.next_ns = 0
        self.interval_ns = FIRST_INTERVAL_NS


class Notices:
    __slots__ = ("_broker", "_callers", "_now_ns", "_sources", "touched")

    def __init__(self, broker: str, callers: Callers) -> None:
        self._broker = broker
        self._callers = callers
        self._sources: dict[tuple[str, str], _Source] = {}
        self.touched: dict[tuple[str, str], None] = {}
        """Sources with news; an ordered set."""
        self._now_ns = 0
        """The time of the last `due`."""

    def undecided(self, operator: str, reason: str, events: int) -> None:
        """An operator has no answer for some events here; `reason` ends a sentence about it."""
        self._add(operator, self._broker, reason, events, "")

    def received(self, notice: Notice, neighbour: Interface) -> None:
        self._add(notice.operator, notice.broker, notice.reason, notice.count, neighbour)

    def _add(self, operator: str, broker: str, reason: str, events: int, neighbour: Interface) -> None:
        key = (operator, broker)
        source = self._sources.pop(key, None)
        if source is None:
            if len(self._sources) >= _MOST_SOURCES and not self._forget_one():
                return
            source = _Source()
        self._sources[key] = source  # moves to the end
        source.count = min(source.count + events, MOST_COUNTED)
        source.reason, source.neighbour = reason, neighbour
        self.touched[key] = None

    def _forget_one(self) -> bool:
        """Remove the longest silent source, unless its next notice may not leave yet; False then."""
        first, source = next(iter(self._sources.items()))
        if self._now_ns < source.next_ns:
            return False
        del self._sources[first]
        self.touched.pop(first, None)
        return True

    def due(self, now_ns: int) -> Iterator[tuple[Interface, Notice]]:
        self._now_ns = now_ns
        touched, self.touched = self.touched, {}
        for key in touched:
            source = self._sources[key]
            if now_ns < source.next_ns:
                continue
            if now_ns - source.next_ns > source.interval_ns:
                source.interval_ns = FIRST_INTERVAL_NS  # silent for a while
            operator, broker = key
            yield from _addressed(
                Notice(operator, broker, source.reason, source.count),
                self._callers.interfaces(operator).items(),
                source.neighbour,
            )
            source.count = 0
            source.next_ns = now_ns + source.interval_ns
            source.interval_ns = min(2 * source.interval_ns, LONGEST_INTERVAL_NS)


def _addressed(
    notice: Notice, callers: Iterable[tuple[Interface, list[int]]], exclude: Interface
) -> Iterator[tuple[Interface, Notice]]:
    for interface, ids in callers:
        if interface == exclude:
            continue
        named = () if interface.startswith("broker/") else tuple(ids)
        yield interface, Notice(notice.operator, notice.broker, notice.reason, notice.count, named)
