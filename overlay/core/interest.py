"""Interest: one subscription of one interface, as the routing core holds it.

This is the paper's poset node (Φ, values, Φ^V): `filter` is Φ with its variables, `values` gives each of
them, and `region` is Φ^V, what the two accept together (Jayaram et al., section 4.3 and Fig. 6 line 13). Φ^V
as a filter is made only where people want to read it.

Invariant: `region` is that of `filter` under `values`; a `uid` names one live interest of this broker, is the
id under which the matching engines know it, and is given again only after it was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.covering import Region, covers_region

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.expression import Scalar
    from covey.overlay.core.messages import Interface


class Interest:
    """One subscription. Compared by identity; ordered, where order matters, by `uid` or by insertion."""

    __slots__ = ("filter", "gains", "interface", "loses", "region", "subscription_id", "uid", "values")

    def __init__(
        self, uid: int, interface: Interface, subscription_id: int, filter: Filter, values: dict[str, Scalar]
    ) -> None:
        self.uid = uid
        self.interface = interface
        self.subscription_id = subscription_id
        self.filter = filter
        self.values = values
        self.region: Region = filter.region(values)
        self.gains = False
        self.loses = False

    def move(self, values: Mapping[str, Scalar]) -> bool:
        """Take new values for some variables; true when the region changed.

        Afterwards `gains` says whether events may match that did not before, `loses` the contrary.
        """
        self.values = {**self.values, **values}
        old = self.region
        self.region = new = self.filter.region(self.values)
        self.gains = not covers_region(old, new)
        self.loses = not covers_region(new, old)
        return self.gains or self.loses

    def concrete(self) -> str:
        """Φ^V as text of the filter language."""
        return str(self.filter.substitute(self.values)) or "true"

    def __repr__(self) -> str:
        return f"<{self.uid}: {self.interface}#{self.subscription_id} {self.concrete()}>"


class Registry:
    """Gives every interest of a broker its uid and, columnwise, what delivering needs to know about it.

    `owner[uid]` is the number of its interface and `subscription[uid]` its id there, so that the result of a
    match is split by session without a Python statement per event. Uids stay dense: released ones are given
    again.
    """

    def __init__(self) -> None:
        self.owner: npt.NDArray[np.int64] = np.full(64, -1, np.int64)
        self.subscription: npt.NDArray[np.int64] = np.zeros(64, np.int64)
        self.live: dict[int, Interest] = {}
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
        return interest

    def rename(self, interest: Interest, subscription_id: int) -> None:
        """The interest goes by another id on its interface."""
        interest.subscription_id = subscription_id
        self.subscription[interest.uid] = subscription_id

    def release(self, interest: Interest) -> None:
        """The interest is gone from every poset and its uid may be given again."""
        del self.live[interest.uid]
        self.owner[interest.uid] = -1
        self._free.append(interest.uid)

    def __len__(self) -> int:
        return len(self.live)
