"""Calls with values: what an operator is asked, and by which key its answers are known.

The key is 64 bits of a hash of `name/version(arguments)`, equal on every broker: a number is written by its
value (500 and 500.0 are one), a free variable by its place among those of the call. A call with state belongs
to one filter with values, whose text is part of the key. (Liu et al., section 3: equal predicates.)
"""

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
    """One call with values. `arguments` has a `Column` or a value for each argument of the function; `free`
    numbers the free variables by place, equal names alike; `fields` are their parameters' names.
    """

    __slots__ = ("_state", "arguments", "columns", "fields", "free", "key", "operator", "text")

    def __init__(self, call: Call, values: Sequence[Scalar], owner: str = "") -> None:
        """`values`: of the constants and variables, in order; `owner`: the filter that state belongs to."""
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
        """The state of an operator that has some, made when it is first called."""
        if self._state is _NONE:
            entry = self.entry
            assert entry is not None
            assert entry.state is not None
            self._state = entry.state()
        return self._state

    @property
    def entry(self) -> NamedOperator | None:
        """The operator; None where it is unknown."""
        return find(self.operator)


def keys_of(calls: Iterable[Call]) -> tuple[int, ...] | None:
    """The keys of calls without variables and state; None where an operator is unknown here, so that nobody
    knows its version.
    """
    keys: list[int] = []
    for call in calls:
        if find(call.operator) is None:
            return None
        if not is_stateful(call):
            values = [argument.value for argument in call.arguments if isinstance(argument, Constant)]
            keys.append(BoundCall(call, values).key)
    return tuple(keys)


def names_of(calls: Iterable[Call]) -> dict[str, list[str]]:
    """By the text of a bound call with free variables, its texts with their names; of calls without other
    variables.
    """
    names: dict[str, list[str]] = {}
    for call in calls:
        if any(isinstance(argument, Free) for argument in call.arguments):
            values = [argument.value for argument in call.arguments if isinstance(argument, Constant)]
            names.setdefault(BoundCall(call, values).text, []).append(write_call(call))
    return names


def is_stateful(call: Call) -> bool:
    """Whether the results of a call depend on earlier events."""
    entry = find(call.operator)
    return entry is not None and entry.stateful
