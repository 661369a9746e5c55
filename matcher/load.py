"""Many subscriptions of many filters in columns: the checked arguments of `Engine.add_all`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import IdArray, check_distinct, id_array, interface_array
from covey.matcher.errors import FilterError, VariableError
from covey.matcher.events.event_type import EventType
from covey.matcher.events.value_columns import columns_of, elements_of, is_column, taken
from covey.matcher.filters.filter import Filter, check_filter

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Load:
    """Subscription i has the filter `filters[numbers[i]]`, and element i of every column of `values`. Ids are
    distinct; every filter has a subscription, and a value or a column for each of its variables."""

    ids: IdArray
    filters: Sequence[Filter]
    numbers: Positions
    values: dict[str, Any]
    interfaces: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        ids: npt.ArrayLike,
        filters: Sequence[Filter],
        values: Mapping[str, Any] | None,
        numbers: npt.ArrayLike | None,
        interface: int | npt.NDArray[np.integer],
    ) -> Load:
        """From the arguments of `Engine.add_all`; raises as `add_all`."""
        subscription_ids = id_array(ids)
        check_distinct(subscription_ids)
        count = len(subscription_ids)
        named, each = _numbered(filters, numbers, count)
        columns = columns_of(values)
        _check_names(named, columns)
        used = np.bincount(each, minlength=len(named)) > 0
        chosen = [named[number] for number in np.flatnonzero(used).tolist()]
        each = (np.cumsum(used) - 1)[each]
        load = cls(subscription_ids, chosen, each, columns, interface_array(interface, count))
        load._check_values()
        return load

    def __len__(self) -> int:
        return len(self.ids)

    def _check_values(self) -> None:
        for name, value in self.values.items():
            if is_column(value) and len(value) != len(self):
                raise VariableError(f"variable ${name}: {len(value)} values, expected one or {len(self)}")
        named = self.values.keys()
        for variables, filter in {filter.variables: filter for filter in self.filters}.items():
            if not named >= set(variables):
                raise filter.no_value_for(named)

    def over(self, event_type: EventType) -> Load:
        """The same with the filters over this schema; raises as `Filter.over`."""
        return replace(self, filters=[filter.over(event_type) for filter in self.filters])

    def by_event_type(self) -> Iterator[Load]:
        members: dict[str, list[int]] = {}
        for number, filter in enumerate(self.filters):
            members.setdefault(filter.event_type.name, []).append(number)
        yield from [self] if len(members) == 1 else map(self.part, members.values())

    def part(self, members: Sequence[int]) -> Load:
        numbers, positions = self.members(members)
        filters = [self.filters[number] for number in members]
        named = {variable for filter in filters for variable in filter.variables}
        values = {name: value for name, value in self.values.items() if name in named}
        if positions is None:
            return Load(self.ids, filters, numbers, values, self.interfaces)
        chosen = elements_of(values, positions)
        return Load(self.ids[positions], filters, numbers, chosen, self.interfaces[positions])

    def members(self, members: Sequence[int]) -> tuple[Positions, Positions | None]:
        """The place of each subscription's filter in `members`, and the positions of subscriptions, None for
        all."""
        places = np.full(len(self.filters), -1, dtype=np.int64)
        places[members] = np.arange(len(members))
        numbers = places[self.numbers]
        if len(members) == len(self.filters):
            return numbers, None
        positions = np.flatnonzero(numbers >= 0)
        return numbers[positions], positions

    def values_of(self, filter: Filter, positions: Positions | None) -> dict[str, Any]:
        """The values of a filter's variables, columns without nulls at these positions."""
        return {name: taken(name, self.values[name], positions) for name in filter.variables}


def _check_names(filters: Sequence[Filter], values: Mapping[str, object]) -> None:
    known = {name for variables in {filter.variables for filter in filters} for name in variables}
    for name in values.keys() - known:
        variables = ", ".join(f"${variable}" for variable in sorted(known)) or "none"
        raise VariableError(f"variable ${name} is unknown: the filters have {variables}")


def _numbered(
    filters: Sequence[Filter], numbers: npt.ArrayLike | None, count: int
) -> tuple[Sequence[Filter], Positions]:
    """The filters, and the number of each subscription's filter."""
    if isinstance(filters, Filter) or not hasattr(filters, "__iter__"):
        raise FilterError(
            f"filters {filters!r}: expected a list of them; `add_many` takes one filter for all ids"
        )
    for filter in filters:
        check_filter(filter)
    if numbers is None:
        if len(filters) != count:
            raise FilterError(f"{len(filters)} filters for {count} ids: expected one for each, or numbers")
        number_of: dict[int, int] = {}
        each = [number_of.setdefault(id(filter), len(number_of)) for filter in filters]
        distinct = list({id(filter): filter for filter in filters}.values())
        return distinct, np.array(each, dtype=np.int64)
    array = np.asarray(numbers)
    if array.shape != (count,) or (count and array.dtype.kind not in "iu"):
        raise FilterError(
            f"filter numbers of type {array.dtype} and shape {array.shape}: expected {count} integers"
        )
    if count and not 0 <= int(array.min()) <= int(array.max()) < len(filters):
        wrong = int(array.min()) if int(array.min()) < 0 else int(array.max())
        raise FilterError(f"filter number {wrong}: expected 0 to {len(filters) - 1}")
    return filters, array.astype(np.int64)
