"""What a broker requires of whatever matches events against the interest in one event type.

`OperatorMatching` implements it with engines. A `MatchingFactory` passed to the broker replaces that, as the
measuring baseline `baselines/poset_matching.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.matcher.matches import Matches
    from covey.overlay.core.covering.poset import Poset
    from covey.overlay.core.matching.event_points import EventPoints


Int64s = npt.NDArray[np.int64]
_NONE: Int64s = np.zeros(0, np.int64)


Decided = tuple[Int64s, Int64s, tuple[Int64s, Int64s]]
"""The matches of a batch, as offsets and ids that ascend within each event; then the pairs (row, id) of
residues without a decision: among the matches where these are passed on, else missing from them."""
NO_PAIRS = _NONE, _NONE


class Matched(Protocol):
    """A filter with values, under an id."""

    @property
    def uid(self) -> int: ...

    @property
    def filter(self) -> Filter: ...

    @property
    def values(self) -> Mapping[str, Scalar]: ...


class InterestMatching(Protocol):
    """Matches events of one type against the interests of links, or against those of sessions."""

    @property
    def calls(self) -> bool:
        """Whether a filter calls a named operator."""

    def widen(self, event_type: EventType) -> None:
        """Take interests over this schema, which includes those of all present ones, from now on. In place
        where it begins with the schema before.
        """

    def check_room(self, filter: Filter, values: Mapping[str, Scalar], replaced: int) -> None:
        """`CapacityError` where an interest with this filter and values has no room, in place of that with
        the uid `replaced`, -1 for none.
        """

    def put(self, interest: Matched, number: int) -> None:
        """Insert an interest of the interface with this number, or take its new values."""

    def discard(self, interest: Matched) -> None:
        """Remove an interest."""

    def match(self, events: EventPoints) -> Matches:
        """The uids of the matching interests of each event; of its products, all but `interfaces`."""

    def decide(self, events: EventPoints) -> Decided:
        """As `match`, and which pairs no operator has decided."""

    def match_interfaces(self, events: EventPoints, exclude: int = -1) -> npt.NDArray[np.uint64]:
        """As `Matches.interfaces`; the bits of the interface `exclude` are undefined."""

    def event_interfaces(self, events: EventPoints, exclude: int = -1) -> int:
        """The interfaces of the matching interests of a single event: bit i of interface i is set. The bit of
        the interface `exclude` is undefined.
        """

    def form(self, filter: Filter) -> str:
        """As `Engine.form`."""

    def interests(self) -> dict[int, int]:
        """The uids, and the numbers of their interfaces."""


MatchingFactory = Callable[["EventType", "Mapping[str, Poset]", bool, "Evaluator"], InterestMatching]
"""Creates the matching of one event type from the posets of its groups, by name; the flag is true for the
interest of sessions, false for that of links. The evaluator asks named operators.
"""
