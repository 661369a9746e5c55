"""A change of the roots of a poset, or of the bundles that merge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

C = TypeVar("C", covariant=True)


class Handover(NamedTuple, Generic[C]):
    """An element that entered and may take over the slot of one that left: it covers that one (`wider`) or
    was covered by it.
    """

    left: C
    entered: C
    wider: bool


@dataclass(slots=True)
class Change(Generic[C]):
    """An element that only took new values has `moved`."""

    entered: Sequence[C] = ()
    moved: Sequence[C] = ()
    left: Sequence[C] = ()
    handovers: Sequence[Handover[C]] = ()

    def __bool__(self) -> bool:
        return bool(self.entered or self.moved or self.left)
