"""Interest: one subscription of one interface, in the routing core.

This is the paper's poset node (Φ, values, Φ^V): `filter` is Φ with its variables, `values` has a value for
each, and `region` is Φ^V, what the two accept together (Jayaram et al., section 4.3 and Fig. 6 line 13).
Posets order and slots carry what is `routed`: the filter without calls of operators with state, which readers
alone evaluate. With an `announcement` (`announcing.py`), `region` is the announced one.

A *group* is a neighbour, or all clients together; each group has a poset.

Invariant: `region` is that of `structure` under `announced`, and covers that of `routed` under `values`; a
`uid` identifies one live interest of this broker, also in the matching engines, and is reused only after its
release.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING

from covey.matcher.covering.covering import Region, covers_both_ways
from covey.matcher.evaluation.bound_calls import is_stateful, keys_of
from covey.matcher.expressions.writing import write_call
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
        "_call_keys",
        "announcement",
        "epoch",
        "filter",
        "gains",
        "group",
        "interface",
        "loses",
        "region",
        "routed",
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
        self.routed = filter.stateless
        self.region: Region = self.routed.region(still(values, 0))
        self.gains = False
        self.loses = False
        self._call_keys: tuple[int, ...] | EllipsisType | None = ...

    def announce(self, damping: float, now_ns: int) -> None:
        """Announce wider bounds from now on."""
        self.announcement = Announcement(self.routed, self.values, damping, now_ns)
        self.region = self.announcement.region()

    @property
    def structure(self) -> Filter:
        """What is routed, with every operand lifted to a variable (`Filter.lift`)."""
        return self.routed.lift()[0]

    @property
    def announced(self) -> dict[str, Scalar]:
        """The values of the structure's variables that are sent to neighbours."""
        if self.announcement is not None:
            return self.announcement.values
        return self.routed.lift_values(self.values)

    def move(self, values: Mapping[str, Scalar], now_ns: int = 0) -> bool:
        """Take new values for some variables; true if the region changed.

        Afterwards `gains` is true if events may match that did not before, `loses` if some may no longer.
        """
        values = self.values = {**self.values, **values}
        self._call_keys = ...
        if self.announcement is None:
            return self._shift(self.routed.region(values))
        if self.announcement.move(self.values, now_ns):
            return self._shift(self.announcement.region())
        self.gains = self.loses = False
        return False

    def _shift(self, new: Region) -> bool:
        old, self.region = self.region, new
        covered, covering = covers_both_ways(old, new)
        self.gains, self.loses = not covered, not covering
        return not (covered and covering)

    def call_keys(self) -> tuple[int, ...] | None:
        """The keys of its calls in the results of a batch; None where an operator is unknown here."""
        if self._call_keys is ...:
            self._call_keys = keys_of(self._still().calls)
        return self._call_keys

    def calls_by_text(self) -> dict[str, int]:
        """The keys of its calls, by their texts with values; none where an operator is unknown here."""
        keys = self.call_keys()
        calls = [call for call in self._still().calls if not is_stateful(call)]
        return {} if keys is None else dict(zip(map(write_call, calls), keys, strict=True))

    def _still(self) -> Filter:
        """The filter with values for the variables that do not move by themselves."""
        still = {name: value for name, value in self.values.items() if not isinstance(value, Motion)}
        return self.filter.substitute(still)

    def concrete(self) -> str:
        """Φ^V as text of the filter language."""
        text = str(self._still())
        moving = [f"${name} = {value}" for name, value in self.values.items() if isinstance(value, Motion)]
        return f"{text} with {', '.join(moving)}" if moving else text or "true"

    def __repr__(self) -> str:
        return f"<{self.uid}: {self.interface}#{self.subscription_id} {self.concrete()}>"
