"""The registry of a broker's interests: their uids and, columnwise, what delivery needs of them.

The columns let the result of a match be split by session without a Python statement per event. Uids stay
dense: released ones are reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.operators.operator_notices import Callers

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.messages import Interface


class Registry:
    """`owner[uid]` is the number of an interest's interface and `subscription[uid]` its id there."""

    def __init__(self) -> None:
        self.owner: npt.NDArray[np.int64] = np.full(64, -1, np.int64)
        self.subscription: npt.NDArray[np.int64] = np.zeros(64, np.int64)
        self.live: dict[int, Interest] = {}
        self.callers = Callers()
        self._free: list[int] = []
        self._next = 0

    def make(
        self,
        interface: Interface,
        number: int,
        subscription_id: int,
        filter: Filter,
        values: dict[str, Scalar],
    ) -> Interest:
        """A new interest with a uid of its own."""
        uid = self._free.pop() if self._free else self._next
        interest = Interest(uid, interface, subscription_id, filter, values)
        if uid == self._next:
            self._next += 1
            if uid == len(self.owner):
                self.owner = np.concatenate([self.owner, np.full(uid, -1, np.int64)])
                self.subscription = np.concatenate([self.subscription, np.zeros(uid, np.int64)])
        self.owner[uid] = number
        self.subscription[uid] = subscription_id
        self.live[uid] = interest
        if filter.calls:
            self.callers.add(interest)
        return interest

    def rename(self, interest: Interest, subscription_id: int) -> None:
        """Give the interest another id on its interface."""
        interest.subscription_id = subscription_id
        self.subscription[interest.uid] = subscription_id

    def release(self, interest: Interest) -> None:
        """The interest is in no poset any more: its uid may be reused."""
        del self.live[interest.uid]
        if interest.filter.calls:
            self.callers.discard(interest)
        self.owner[interest.uid] = -1
        self._free.append(interest.uid)

    def __len__(self) -> int:
        return len(self.live)
