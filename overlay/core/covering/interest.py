"""Interest: one subscription of one interface, as the routing core holds it.

This is the paper's poset node (Φ, values, Φ^V): `filter` is Φ with its variables, `values` gives each of
them, and `region` is Φ^V, what the two accept together (Jayaram et al., section 4.3 and Fig. 6 line 13). Φ^V
as a filter is made only where people want to read it. Where an `announcement` stands between the two
(`announcing.py`), `region` is what is announced: that is what posets order and neighbours are asked for.

A *group* is a neighbour, or all clients together: the interest of each is ordered by itself.

Invariant: `region` is that of `structure` under `announced`, and covers that of `filter` under `values`; a
`uid` names one live interest of this broker, is the id under which the matching engines know it, and is given
again only after it was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.covering.covering import Region, covers_both_ways
from covey.overlay.core.moving.announcing import Announcement
from covey.overlay.core.moving.motion import Motion, still

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.messages import Interface


CLIENTS = "clients"
"""The group of all clients."""


def group_of(interface: Interface) -> str:
    """The group that an interface belongs to."""
    return interface if interface.startswith("broker/") else CLIENTS


class Interest:
    """One subscription. Compared by identity; ordered, where order matters, by `uid` or by insertion."""

    __slots__ = (
        "announcement",
        "epoch",
        "filter",
        "gains",
        "group",
        "interface",
        "loses",
        "region",
        "subscription_id",
        "uid",
        "values",
    )

    def __init__(
        self, uid: int, interface: Interface, subscription_id: int, filter: Filter, values: dict[str, Scalar]
    ) -> None:
        self.uid = uid
        self.interface = interface
        self.group = group_of(interface)
        self.subscription_id = subscription_id
        self.filter = filter
        self.values = values
        self.epoch = 0
        """Of the last message about it, on its interface."""
        self.announcement: Announcement | None = None
        self.region: Region = filter.region(still(values, 0))
        self.gains = False
        self.loses = False

    def announce(self, damping: float, now_ns: int) -> None:
        """From now on an announcement stands between this interest and what is asked of neighbours."""
        self.announcement = Announcement(self.filter, self.values, damping, now_ns)
        self.region = self.announcement.region()

    @property
    def structure(self) -> Filter:
        """The filter with every operand lifted to a variable (`Filter.lift`)."""
        return self.filter.lift()[0]

    @property
    def announced(self) -> dict[str, Scalar]:
        """The values of the structure's variables that neighbours are to hold."""
        if self.announcement is not None:
            return self.announcement.values
        return self.filter.lift_values(self.values)

    def move(self, values: Mapping[str, Scalar], now_ns: int = 0) -> bool:
        """Take new values for some variables; true when the region changed.

        Afterwards `gains` says whether events may match that did not before, `loses` the contrary.
        """
        values = self.values = {**self.values, **values}
        if self.announcement is None:
            return self._shift(self.filter.region(values))
        if self.announcement.move(self.values, now_ns):
            return self._shift(self.announcement.region())
        self.gains = self.loses = False
        return False

    def _shift(self, new: Region) -> bool:
        old, self.region = self.region, new
        covered, covering = covers_both_ways(old, new)
        self.gains, self.loses = not covered, not covering
        return not (covered and covering)

    def concrete(self) -> str:
        """Φ^V as text of the filter language."""
        text = str(
            self.filter.substitute({n: v for n, v in self.values.items() if not isinstance(v, Motion)})
        )
        moving = [f"${name} = {value}" for name, value in self.values.items() if isinstance(value, Motion)]
        return f"{text} with {', '.join(moving)}" if moving else text or "true"

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
