"""When a view has all that is inside: the ends of the answers to updates for views, for one event type.

An Update for views, and the Subscribe of a view, are answered by events, from here and from the neighbours
that publish (`keyed.py`). Behind the last of them goes an Answered, in the lane of the events of the type, so
that whoever has it has these events. An Acknowledge cannot say that: control overtakes events that wait for
credit, and is cumulative over all types, so that one slow consumer would delay all changes of all clients.

A *request* is known by two epochs of its source: where it was handled, and the newest one that it stands for,
`for_views` of an Update, which is later where a busy link has merged requests. Invariant: a source is sent
Answered(n) only when it has sent all up to epoch n, and all requests that were handled up to n are complete;
so n covers all requests that it has made up to then, those that were merged into earlier ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from covey.overlay.core.messages import Interface
from covey.overlay.core.routing.acks import Acks


class Answers(Acks):
    """Of one event type: the requests that neighbours were sent and have answered, and those of sources. The
    complete requests of a source are in the order in which they were handled.
    """

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[Interface, list[tuple[int, int]]] = {}
        """By source, of requests that are to be answered: the epoch up to which all is to be here and
        complete, and the newest epoch that they stand for. Those that stand for epochs which had not come
        when they were handled, one after the other, have one entry: the peer names these epochs.
        """
        self._complete: dict[Interface, int] = {}
        """Sources of which a request has become complete."""
        self._waiting: dict[Interface, None] = {}
        """Sources all of whose requests are complete, and that have not sent the epochs of some."""

    def open_request(
        self, source: Interface, epoch: int, newest: int, waits: Mapping[Interface, int]
    ) -> None:
        """A request of this source was answered from here; the neighbours in `waits` are asked for more."""
        due, until = self._due.setdefault(source, []), max(epoch, newest)
        if due and min(due[-1][0], until) > epoch:
            due[-1] = max(due[-1][0], until), max(due[-1][1], newest)
        else:
            due.append((until, newest))
        self.open(source, epoch, waits)

    def refused(self, neighbour: Interface, epoch: int) -> None:
        """A neighbour has refused requests of a slot, which was sent nothing newer than this epoch."""
        self.acknowledged(neighbour, min(epoch, self.newest_sent(neighbour)))

    def take(
        self, received: Callable[[Interface], int], sender: Interface
    ) -> Iterator[tuple[Interface, int]]:
        """What to answer to whom now; `received` returns the newest epoch of a source, which has changed
        since the last call for the `sender` at most. The cost does not grow with the requests of others.
        """
        self._complete.update(self.drain())
        if sender in self._waiting:
            self._complete[sender] = 0
        for source in list(self._complete):
            first, limit = self.first_incomplete(source), received(source)
            if first is not None:
                limit = min(first - 1, limit)
            due = self._due.pop(source, [])
            rest = [each for each in due if each[0] > limit]
            if len(rest) < len(due):
                yield source, max(newest for until, newest in due if until <= limit)
            if rest:
                self._due[source] = rest
            self._waiting.pop(source, None)
            if rest and first is None:
                self._waiting[source] = None
            del self._complete[source]

    @property
    def waits_for_epochs(self) -> bool:
        """Whether a complete request stands for epochs that its source has not sent yet."""
        return bool(self._waiting)

    # --- interfaces that come and go ------------------------------------------------------------------------

    def remove_source(self, source: Interface) -> None:
        """A source has lost its state or left."""
        self._due.pop(source, None)
        self._complete.pop(source, None)
        self._waiting.pop(source, None)
        super().remove_source(source)

    def pending(self) -> dict[Interface, list[int]]:
        """What was not answered yet, by source."""
        return {source: [newest for _, newest in due] for source, due in self._due.items()}
