"""Calls with values: the arguments of an operator's function, and the key of its answers.

The key is a 64-bit hash of `name/version(arguments)`, equal on every broker: a number is written by its value
(500 and 500.0 are one), a free variable by its place in the call. A call with state belongs to one filter
with values, whose text is part of the key. (Liu et al., section 3: equal predicates.)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from covey.matcher.expressions.expression import Call, Column, Constant, Free, Scalar
from covey.matcher.expressions.values import shortest
from covey.matcher.expressions.writing import write_call
from covey.matcher.operators.named_operator import NamedOperator
from covey.matcher.operators.table import find

_NONE = object()


class BoundCall:
    """One call with values. `arguments` has a `Column` or a value per argument, without free variables;
    `free` numbers the free variables in order, equal names alike; `fields` are the names of their parameters.
    """

    __slots__ = ("_state", "arguments", "columns", "fields", "free", "key", "operator", "text")

    def __init__(self, call: Call, values: Sequence[Scalar], owner: str = "") -> None:
        """`values` of constants and variables, in order; `owner`: the filter that the state belongs to."""
        others = iter(values)
        numbers: dict[str, int] = {}
        shown: list[Column | Constant | Free] = []
        self.arguments: list[Column | Scalar] = []
        places: list[int] = []
        for place, argument in enumerate(call.arguments):
            if isinstance(argument, Free):
                number = numbers.setdefault(argument.name, len(numbers))
                shown.append(Free(str(number)))
                places.append(place)
            elif isinstance(argument, Column):
                shown.append(argument)
                self.arguments.append(argument)
            else:
                value = next(others)
                self.arguments.append(value)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    value = shortest(value)
                shown.append(Constant(value))
        self.operator = call.operator
        self.columns = call.attributes
        self.free = tuple([numbers[a.name] for a in call.arguments if isinstance(a, Free)])
        self.text = write_call(Call(call.operator, tuple(shown)))
        entry = self.entry
        self.fields = () if entry is None else tuple([entry.parameter(place).name for place in places])
        identity = f"{call.operator}/{1 if entry is None else entry.version}{self.text}{owner}"
        self.key = int.from_bytes(blake2b(identity.encode(), digest_size=8).digest(), "little")
        self._state: object = _NONE

    @property
    def state(self) -> object:
        """The state of a stateful operator, created at its first call."""
        if self._state is _NONE:
            entry = self.entry
            assert entry is not None
            assert entry.state is not None
            self._state = entry.state()
        return self._state

    @property
    def entry(self) -> NamedOperator | None:
        """None if the operator is unknown."""
        return find(self.operator)


def keys_of(calls: Iterable[Call]) -> tuple[int, ...] | None:
    """The keys of calls without variables and state; None if an operator, and so its version, is unknown."""
    keys: list[int] = []
    for call in calls:
        if find(call.operator) is None:
            return None
        if not is_stateful(call):
            values = [argument.value for argument in call.arguments if isinstance(argument, Constant)]
            keys.append(BoundCall(call, values).key)
    return tuple(keys)


def names_of(calls: Iterable[Call]) -> dict[str, list[str]]:
    """By the text of a bound call with free variables: its texts with their names; of calls without other
    variables."""
    names: dict[str, list[str]] = {}
    for call in calls:
        if any(isinstance(argument, Free) for argument in call.arguments):
            values = [argument.value for argument in call.arguments if isinstance(argument, Constant)]
            names.setdefault(BoundCall(call, values).text, []).append(write_call(call))
    return names


def is_stateful(call: Call) -> bool:
    entry = find(call.operator)
    return entry is not None and entry.stateful
