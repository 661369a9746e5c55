"""The different constants of `contains` and `not suffix` of the live interests in one event type.

An engine has a column for each and accepts so many. The broker applies changes to engines long after it has
accepted them, so it refuses a subscription over that number when it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from covey.matcher.errors import CapacityError
from covey.matcher.expressions.expression import Variable
from covey.matcher.expressions.operators import Operator

if TYPE_CHECKING:
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter

_Constant = tuple[str, Operator, "Scalar"]


class TextConstants:
    """The constants in use, at most `most`, with the number of interests that have each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._users: dict[_Constant, int] = {}
        self._by_uid: dict[int, set[_Constant]] = {}

    def __contains__(self, uid: int) -> bool:
        return uid in self._by_uid

    def check(self, filter: Filter, values: Mapping[str, Scalar], replaced: int) -> None:
        """`CapacityError` where this filter with values, in place of interest `replaced`, would be over the
        number.
        """
        if not filter.texts:
            return
        needed = _constants(filter, values)
        freed = sum(self._users[c] == 1 for c in self._by_uid.get(replaced, set()) - needed)
        if len(self._users) - freed + len(needed - self._users.keys()) > self.most:
            raise CapacityError(
                f"over {self.most:,} different constants of contains and not suffix in the subscriptions to "
                f"{filter.event_type.name}: expected one that others have, or fewer subscriptions"
            )

    def put(self, uid: int, filter: Filter, values: Mapping[str, Scalar]) -> None:
        """Count an interest, with its new values if it is known."""
        if self._by_uid:
            self.discard(uid)
        if filter.texts:
            self._by_uid[uid] = _constants(filter, values)
            for constant in self._by_uid[uid]:
                self._users[constant] = self._users.get(constant, 0) + 1

    def discard(self, uid: int) -> None:
        for constant in self._by_uid.pop(uid, ()):
            self._users[constant] -= 1
            if not self._users[constant]:
                del self._users[constant]


def _constants(filter: Filter, values: Mapping[str, Scalar]) -> set[_Constant]:
    """The attributes, what the columns hold, and the constants."""
    found: set[_Constant] = set()
    for predicate in filter.texts:
        (operand,) = predicate.operands
        value = values[operand.name] if isinstance(operand, Variable) else operand.value
        held = Operator.SUFFIX if predicate.operator is Operator.NOT_SUFFIX else Operator.CONTAINS
        found.add((predicate.attribute, held, value))
    return found
