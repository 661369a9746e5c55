"""The events under way: published, and not yet handled by every broker and client that they reach.

An event consists of copies: one from its publisher to a broker, and one for each interface to which a broker
sends it. A copy ends when the broker or client that gets it has handled it: a broker when the time that it
takes has passed, a client at once. An event whose copies have all ended is not under way any more, as if the
last one were acknowledged to the publisher without delay.

Copies for a session of a client end with it. A crash loses copies unseen, so a run with crashes is not
followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from covey.overlay.core.messages import Action, Deliver, Disconnect, Interface, Message, Publish, Send
from covey.sim.simulator.observer import ObservedClient, Observer

if TYPE_CHECKING:
    from covey.matcher import EventBatch

_Event = tuple[str, int]


class UnderWay(Observer):
    """Counts the events under way of each publisher; calls `ended` with the publisher of each that ends."""

    def __init__(self, ended: Callable[[str], None] = lambda publisher: None) -> None:
        self.by_publisher: dict[str, int] = {}
        """The number of events under way; a publisher's identity is that of its session."""
        self._ended = ended
        self._copies: dict[_Event, int] = {}
        self._delivering: dict[tuple[Interface, Interface], set[_Event]] = {}
        """By broker and client: the events on their way from one to the other."""

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        for event in _events(batch):
            self._copies[event] = 1
        self.by_publisher[batch.publisher] = self.by_publisher.get(batch.publisher, 0) + len(batch)

    def handled(
        self, broker: str, source: str, messages: Sequence[Message], actions: Sequence[Action]
    ) -> None:
        for action in actions:
            if not isinstance(action, Send) or not isinstance(action.message, Publish | Deliver):
                continue
            events = _events(action.message.batch)
            for event in events:
                self._copies[event] = self._copies.get(event, 0) + 1
            if isinstance(action.message, Deliver):
                self._delivering.setdefault((broker, action.interface), set()).update(events)
        for message in messages:
            if isinstance(message, Publish):
                self._end(_events(message.batch))
            elif isinstance(message, Disconnect):
                self._end(sorted(self._delivering.pop((broker, source), ())))

    def received(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, Deliver):
            delivering = self._delivering.get((source, target), set())
            arrived = [event for event in _events(message.batch) if event in delivering]
            delivering.difference_update(arrived)
            self._end(arrived)

    def _end(self, events: Iterable[_Event]) -> None:
        for event in events:
            self._copies[event] -= 1
            if not self._copies[event]:
                del self._copies[event]
                self.by_publisher[event[0]] -= 1
                self._ended(event[0])


def _events(batch: EventBatch) -> list[_Event]:
    publisher = batch.publisher
    return [(publisher, sequence) for sequence in batch.sequences().tolist()]
