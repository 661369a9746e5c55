"""The requests for earlier events that were made through each slot of a neighbour (`requests.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from covey.overlay.core.covering.interest import Interest


class Request(NamedTuple):
    """`since_ns` and `for_views` as in the Update of this epoch."""

    epoch: int
    since_ns: int
    for_views: bool


class Requests:
    """The requests of interests to one neighbour in one event type, those of each slot in order of epochs."""

    def __init__(self) -> None:
        self._by_slot: dict[int, dict[Interest, Request]] = {}

    def note(self, slot_id: int, interest: Interest, request: Request, acknowledged: int) -> None:
        """An interest has made a request; those up to the epoch that is acknowledged are of no use."""
        requests = self._by_slot.setdefault(slot_id, {})
        earlier = requests.pop(interest, None)
        while requests and requests[first := next(iter(requests))].epoch <= acknowledged:
            del requests[first]
        if earlier is not None and earlier.epoch > acknowledged:
            since_ns = min(earlier.since_ns, request.since_ns) or max(earlier.since_ns, request.since_ns)
            request = Request(request.epoch, since_ns, earlier.for_views or request.for_views)
        requests[interest] = request

    def of(self, slot_id: int) -> dict[Interest, Request]:
        """Those that were made through a slot."""
        return self._by_slot.get(slot_id, {})

    def release(self, slot_id: int) -> None:
        """A slot has left."""
        self._by_slot.pop(slot_id, None)

    def __len__(self) -> int:
        return len(self._by_slot)
