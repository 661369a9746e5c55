"""Interest: one subscription of one interface, in the routing core; and the registry of a broker's interests.

This is the paper's poset node (Φ, values, Φ^V): `filter`, a value for each of its variables, and `region`,
what they accept together (Jayaram et al., section 4.3 and Fig. 6 line 13). Posets and slots use `routed`: the
filter without calls of stateful operators, which readers alone evaluate. With an `announcement`
(`moving/motion.py`), `region` is the announced one.

A *group* is a neighbour, or all clients together; each group has a poset.

Invariant: `region` is `structure` under `announced`, and covers `routed` under `values`. A `uid` identifies
one live interest of this broker, also in the engines; uids are reused after release, so they stay dense."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.covering.covering import Region, holds_both_ways
from covey.matcher.evaluation.bound_calls import is_stateful, keys_of
from covey.matcher.expressions.writing import write_call
from covey.overlay.core.moving.motion import Announcement, Motion, still
from covey.overlay.core.operators.operator_notices import Callers

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.messages import Interface


CLIENTS = "clients"


def group_of(interface: Interface) -> str:
    return interface if interface.startswith("broker/") else CLIENTS


class Interest:
    """Compared by identity; `epoch` is of the last message about it, on its interface."""

    __slots__ = """
        _call_keys announcement epoch filter gains group interface loses region routed subscription_id uid
        values
    """.split()

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
        self.announcement: Announcement | None = None
        self.routed = filter.stateless
        self.region: Region = self.routed.region(still(values, 0))
        self.gains = False
        self.loses = False
        self._call_keys: tuple[int, ...] | EllipsisType | None = ...

    def announce(self, damping: float, now_ns: int) -> None:
        self.announcement = Announcement(self.routed, self.values, damping, now_ns)
        self.region = self.announcement.region()

    @property
    def structure(self) -> Filter:
        """`routed`, with every operand lifted to a variable (`Filter.lift`)."""
        return self.routed.lift()[0]

    @property
    def announced(self) -> dict[str, Scalar]:
        """The values of the structure's variables that are sent to neighbours."""
        if self.announcement is not None:
            return self.announcement.values
        return self.routed.lift_values(self.values)

    def move(self, values: Mapping[str, Scalar], now_ns: int = 0) -> bool:
        """Take new values for some variables; True if the region changed. Afterwards `gains` is whether more
        events may match, `loses` whether some no longer do."""
        values = self.values = {**self.values, **values}
        self._call_keys = ...
        old = self.region
        if self.announcement is None:
            self.region = self.routed.region(values)
        elif self.announcement.move(values, now_ns):
            self.region = self.announcement.region()
        else:
            self.gains = self.loses = False
            return False
        covered, covering = holds_both_ways(old, self.region)
        self.gains, self.loses = not covered, not covering
        return not (covered and covering)

    def call_keys(self) -> tuple[int, ...] | None:
        """The keys of its calls in the results of a batch; None where an operator is unknown here."""
        if self._call_keys is ...:
            self._call_keys = keys_of(self._still().calls)
        return self._call_keys

    def calls_by_text(self) -> dict[str, int]:
        """Keys of its stateless calls, by their texts with values; empty if an operator is unknown here."""
        keys = self.call_keys()
        calls = [call for call in self._still().calls if not is_stateful(call)]
        return {} if keys is None else dict(zip(map(write_call, calls), keys, strict=True))

    def _still(self) -> Filter:
        still = {name: value for name, value in self.values.items() if not isinstance(value, Motion)}
        return self.filter.substitute(still)

    def concrete(self) -> str:
        """Φ^V as text of the filter language."""
        text = str(self._still())
        moving = [f"${name} = {value}" for name, value in self.values.items() if isinstance(value, Motion)]
        return f"{text} with {', '.join(moving)}" if moving else text or "true"

    def __repr__(self) -> str:
        return f"<{self.uid}: {self.interface}#{self.subscription_id} {self.concrete()}>"


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
