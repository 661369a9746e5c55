"""The different constants of `contains` and `not suffix` of the live interests in one event type.

An engine has a column for each and accepts so many. The broker applies changes to engines long after it has
accepted them, so it refuses a subscription over that number when it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from covey.matcher.errors import CapacityError
from covey.matcher.expressions.expression import And, Expression, Or, Predicate, Variable
from covey.matcher.expressions.operators import Operator

if TYPE_CHECKING:
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter

_OPERATORS = {
    Operator.CONTAINS: Operator.CONTAINS,
    Operator.NOT_CONTAINS: Operator.CONTAINS,
    Operator.NOT_SUFFIX: Operator.SUFFIX,
}
"""The operators whose constants have columns, and what these columns hold."""

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
        needed = _constants(filter.expression, values)
        if not needed:
            return
        freed = sum(self._users[c] == 1 for c in self._by_uid.get(replaced, set()) - needed)
        if len(self._users) - freed + len(needed - self._users.keys()) > self.most:
            raise CapacityError(
                f"over {self.most:,} different constants of contains and not suffix in the subscriptions to "
                f"{filter.event_type.name}: expected one that others have, or fewer subscriptions"
            )

    def put(self, uid: int, filter: Filter, values: Mapping[str, Scalar]) -> None:
        """Count an interest, with its new values if it is known."""
        self.discard(uid)
        constants = _constants(filter.expression, values)
        if constants:
            self._by_uid[uid] = constants
        for constant in constants:
            self._users[constant] = self._users.get(constant, 0) + 1

    def discard(self, uid: int) -> None:
        for constant in self._by_uid.pop(uid, ()):
            self._users[constant] -= 1
            if not self._users[constant]:
                del self._users[constant]


def _constants(expression: Expression, values: Mapping[str, Scalar]) -> set[_Constant]:
    found: set[_Constant] = set()
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, And | Or):
            pending += part.parts
        elif isinstance(part, Predicate) and part.operator in _OPERATORS:
            (operand,) = part.operands
            value = values[operand.name] if isinstance(operand, Variable) else operand.value
            found.add((part.attribute, _OPERATORS[part.operator], value))
    return found
