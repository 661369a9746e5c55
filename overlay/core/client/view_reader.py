"""What waits for the reader of one view, and the changes that it makes, without I/O: the client library and
the simulator use it.

What has arrived, and what has happened to the bounds and the session, is applied to the view's state in one
order, when it is read: events under the newest values. Invariant: credit for events is granted again once
they are applied, and what was applied and not read is bounded (`ViewState.net`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.client.view_state import MAX_KEYS, Changes, ViewState

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch
    from covey.overlay.core.client.actions import DeliverTo
    from covey.overlay.core.client.session import ClientSession

_WAITING = 1024
"""Events of changes that wait before they are told together."""


class _Signal(Enum):
    MOVED = "moved"
    RESET = "reset"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class _Arrived:
    share: DeliverTo
    done: Callable[[], None]


class ViewReader:
    """The reader of the subscription of a view. `next`, `apply` and `batch` raise `CapacityError` where more
    than `max_keys` keys are inside.
    """

    def __init__(self, session: ClientSession, subscription_id: int, max_keys: int = MAX_KEYS) -> None:
        self.session, self.id = session, subscription_id
        event_type = session.subscriptions[subscription_id].event_type
        self._enter_rows = session.enter_reader(subscription_id)
        enters = None if self._enter_rows is None else self._enters
        self.state = ViewState(event_type, self._inside, max_keys, enters)
        self._strict_rows = session.strict_reader(subscription_id)
        self._waiting: deque[_Arrived | _Signal] = deque()
        self._changes: deque[Changes] = deque()
        self._together_at = _WAITING
        self._anew_until = 0
        """The epoch by whose Answered a broker that had lost the session, or events of it, has sent all that
        is inside; 0 for none."""
        self._lost_until = 0
        """That of the newest update after a loss."""

    # --- what happens, in order -----------------------------------------------------------------------------

    def arrived(self, share: DeliverTo, done: Callable[[], None]) -> None:
        """Events have arrived; `done` is called once they are applied."""
        self._waiting.append(_Arrived(share, done))

    def moved(self) -> None:
        """The bounds have moved; after a loss all that is inside is sent again."""
        anew = self.session.view_anew(self.id)
        if anew > self._lost_until:
            self._anew_until = self._lost_until = anew
            self._signal(_Signal.RESET)
        self._signal(_Signal.MOVED)

    def begun_anew(self) -> None:
        """The broker has lost the session, and was sent it again: it sends what is inside again."""
        self._anew_until = self.session.view_epoch(self.id)
        self._signal(_Signal.RESET)

    def answered(self, epoch: int) -> None:
        """All that is inside by an epoch of the session has arrived (`messages.Answered`)."""
        if self._anew_until and epoch >= self._anew_until:
            self._anew_until = 0
            self._signal(_Signal.CONFIRMED)

    def discard(self) -> None:
        """Drop what waits: the view has ended."""
        while self._waiting:
            item = self._waiting.popleft()
            if isinstance(item, _Arrived):
                item.done()

    def _signal(self, signal: _Signal) -> None:
        if not self._waiting or self._waiting[-1] is not signal:
            self._waiting.append(signal)

    @property
    def waiting(self) -> int:
        """How much has arrived, or happened, and was not applied."""
        return len(self._waiting)

    # --- reading --------------------------------------------------------------------------------------------

    def next(self) -> Changes | None:
        """The next changes, None where nothing waits that makes some."""
        while not self._changes and self._waiting:
            self._apply(self._waiting.popleft())
        return self._changes.popleft() if self._changes else None

    def batch(self) -> EventBatch:
        """What is inside by all that has arrived, an event per key; its changes still wait. Where many wait,
        those of a key become one, or a leave and an enter.
        """
        self.apply()
        self._widen()
        return self.state.batch()

    def apply(self) -> None:
        """Apply all that has arrived; as `batch`."""
        while self._waiting:
            self._apply(self._waiting.popleft())
        if self.unread > self._together_at:
            self._changes = deque(self.state.net(self._changes))
            self._together_at = 2 * self.unread + _WAITING

    @property
    def unread(self) -> int:
        """Events of changes that were applied and not read."""
        return sum(changes.batch.count for changes in self._changes)

    def _widen(self) -> None:
        """What is inside has the attributes that its client has declared by now, as what arrives."""
        if self.session.has_subscription(self.id):
            known = self.session.event_type(self.state.event_type.name)
            assert known is not None
            self.state.event_type = known

    def _apply(self, item: _Arrived | _Signal) -> None:
        self._widen()
        state = self.state
        if isinstance(item, _Arrived):
            item.done()
            share = item.share
            departed = share.for_views and not share.replayed
            self._changes += state.arrived(share.batch, replayed=share.replayed, departed=departed)
        elif item is _Signal.RESET:
            state.unconfirm()
        else:
            self._changes += state.moved() if item is _Signal.MOVED else state.confirmed()

    def _inside(self, batch: EventBatch) -> npt.NDArray[np.bool_]:
        rows = self._strict_rows(batch, -1)
        inside = np.full(batch.count, rows is None, np.bool_)
        if rows is not None:
            inside[rows] = True
        return inside

    def _enters(self, batch: EventBatch) -> npt.NDArray[np.bool_]:
        assert self._enter_rows is not None
        enters = np.zeros(batch.count, np.bool_)
        enters[self._enter_rows(batch)] = True
        return enters
