"""`rate_of_change(value, time, ?rate[, key])`: the change of an attribute per second, since the last event.

The example of an operator with state: the last value and time of each key, over the events that the rest of
the filter accepts. An event has no rate and is ignored if its time is not after the last one's, or if its
value is infinite or NaN; the first event has none. Invariant: state has at most `MOST_KEYS` keys; the key
with the oldest last event is evicted, counted in `Rates.forgotten`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from covey.matcher.events.event_type import Kind
from covey.matcher.operators.arguments import column, microseconds_of
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes

MOST_KEYS = 65_536


class Rates:
    """The state of one call: value and time in microseconds of the last event of each key, oldest first."""

    __slots__ = ("forgotten", "last")

    def __init__(self) -> None:
        self.last: dict[Any, tuple[float, int]] = {}
        self.forgotten = 0

    def set(self, key: Any, value: float, time_us: int) -> None:
        self.last.pop(key, None)
        self.last[key] = (value, time_us)
        if len(self.last) > MOST_KEYS:
            del self.last[next(iter(self.last))]
            self.forgotten += 1


def _evaluate(state: Rates, value: Any, time: Any, key: Any = None) -> pa.ListArray:
    values, times = column(value), microseconds_of(time)
    count = len(values)
    groups, names = np.zeros(count, np.int64), [None]
    if key is not None:
        encoded = key.dictionary_encode()
        groups, names = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()
    rows = np.flatnonzero(np.isfinite(values))
    rates = np.full(count, np.nan)
    known = [(group, *state.last[name]) for group, name in enumerate(names) if name in state.last]
    # Events behind the last one of each key, by key and then in order:
    at = np.concatenate([np.full(len(known), -1), rows])
    group = np.concatenate([[entry[0] for entry in known], groups[rows]]).astype(np.int64)
    order = np.argsort(group, kind="stable")
    at, group = at[order], group[order]
    number = np.concatenate([[entry[1] for entry in known], values[rows]])[order]
    moment = np.concatenate([np.array([entry[2] for entry in known], np.int64), times[rows]])[order]
    # A later event has a greater number than all before it, and one of the next key than all of this one.
    rank = np.unique(moment, return_inverse=True)[1] + group * len(moment)
    is_later = np.append(True, rank[1:] > np.maximum.accumulate(rank)[:-1])[: len(rank)]
    at, group, number, moment = at[is_later], group[is_later], number[is_later], moment[is_later]
    is_next = group[1:] == group[:-1]
    with np.errstate(over="ignore"):
        change = np.diff(number)[is_next] / (np.diff(moment)[is_next] / 1e6)
    rates[at[1:][is_next]] = change
    is_last = np.append(~is_next, True)[: len(group)]
    for place in np.flatnonzero(is_last)[np.argsort(at[is_last], kind="stable")].tolist():
        if at[place] >= 0:
            state.set(names[group[place]], float(number[place]), int(moment[place]))
    has_rate = ~np.isnan(rates)
    offsets = np.append(0, np.cumsum(has_rate)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rates[has_rate]))


RATE_OF_CHANGE = NamedOperator(
    name="rate_of_change",
    parameters=(
        Parameter("value", NUMBERS, Takes.ATTRIBUTE),
        Parameter("time", frozenset({Kind.TIMESTAMP}), Takes.ATTRIBUTE),
        Parameter("rate", frozenset({Kind.FLOAT64}), Takes.FREE),
        Parameter("key", frozenset({Kind.STRING, Kind.INT64}), Takes.ATTRIBUTE),
    ),
    evaluate=_evaluate,
    summary="the change of an attribute per second since the last event, by itself or of each key",
    optional=1,
    cost_us=0.5,
    state=Rates,
    bounded=True,
)
