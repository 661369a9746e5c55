"""The tables of a trace and their columns; docs/traces.md explains each to users. Every row has the run, the
phase and its time; the order of rows has no meaning. Keys: an event is (run, publisher, sequence), a
subscription (run, client, subscription), a version of it (run, client, subscription, version). In JSON
timestamps are ISO 8601 texts, and numbers that it lacks "Infinity", "-Infinity" and "NaN", which Spark,
DuckDB, Polars and Python cast back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.matcher.expressions.expression import Variable
from covey.overlay.core.moving.motion import Motion, moves, still

if TYPE_CHECKING:
    from covey.matcher import EventBatch, Filter

WORD = pa.dictionary(pa.int32(), pa.string())
_EVERY = [("run", WORD), ("phase", WORD), ("time_ns", pa.int64())]
_EVENT = [("publisher", WORD), ("sequence", pa.int64())]
_SUBSCRIPTION = [("client", WORD), ("subscription", pa.int64())]

PHASES = ("advertising", "subscribing", "warming up", "running", "resting", "quiet")
"""In their order; the measurement is `running`. A run without a warm-up has no rows of that phase."""

TABLES: dict[str, pa.Schema] = {
    "events": pa.schema(
        [*_EVERY, *_EVENT, ("client", WORD), ("broker", WORD), ("event_type", WORD), ("values", pa.string())]
    ),
    "deliveries": pa.schema(
        [
            *_EVERY,
            *_EVENT,
            *_SUBSCRIPTION,
            ("broker", WORD),
            ("event_type", WORD),
            ("version", pa.int64()),
            ("ingress_ns", pa.int64()),
        ]
    ),
    "spurious": pa.schema(
        [*_EVERY, *_SUBSCRIPTION, ("broker", WORD), ("event_type", WORD), ("events", pa.int64())]
    ),
    "versions": pa.schema(
        [
            *_EVERY,
            *_SUBSCRIPTION,
            ("version", pa.int64()),
            ("broker", WORD),
            ("event_type", WORD),
            ("filter", WORD),
            ("values", pa.string()),
        ]
    ),
    "obligations": pa.schema([*_EVERY, *_EVENT, *_SUBSCRIPTION, ("excused", pa.bool_())]),
    "messages": pa.schema(
        [
            *_EVERY,
            ("source", WORD),
            ("target", WORD),
            ("kind", WORD),
            ("messages", pa.int64()),
            ("events", pa.int64()),
        ]
    ),
    "work": pa.schema([*_EVERY, ("broker", WORD), ("busy_ns", pa.int64())]),
    "history": pa.schema(
        [
            *_EVERY,
            ("what", WORD),
            ("node", WORD),
            ("peer", WORD),
            ("name", WORD),
            ("number", pa.int64()),
            ("text", WORD),
        ]
    ),
}
"""By name:

- events: an event was published; `values` as JSON
- deliveries: an event reached the user of a subscription, whose newest version was `version`; `ingress_ns` is
  by the clock at which motions are evaluated
- spurious: number of events that a client's own evaluation discarded
- versions: a subscription was made (version 0) or changed; `filter` is its structure (`Filter.lift`);
  `values` are the structure's (`Filter.lift_values`) as JSON, a Motion as an object of value, rate (per
  second) and since_ns, with the operand's scale and offset applied
- obligations: the judge expects a delivery, or (`excused`) no longer expects it
- messages: messages arrived; `events` counts the events of the kinds Publish and Deliver
- work: the accumulated working time of a broker, at the beginning of a phase
- history: begun, phase, ended; joined, moved, left; advertised, unadvertised, unsubscribed, settled, refused;
  dropped, crashed, restarted; clock (set back by `number` ns)
"""


def _plain(value: Any) -> Any:
    if isinstance(value, Motion):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} in the values of a trace: expected a scalar")


_encode = json.JSONEncoder(default=_plain, allow_nan=False).encode
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def _finite(value: Any) -> Any:
    return _NOT_FINITE.get(str(value), value) if isinstance(value, float) else value


def _text(values: Mapping[str, Any]) -> str:
    try:
        return _encode(values)
    except ValueError:
        return _encode({name: _finite(value) for name, value in values.items()})


def event_texts(batch: EventBatch) -> list[str]:
    """JSON of each event."""
    return [_text(event) for event in batch.to_pylist()]


def values_text(filter: Filter, values: Mapping[str, Any]) -> str:
    """JSON of the values of a filter's structure (`Filter.lift`), given the values of its own variables."""
    return _text(lifted_values(filter, values))


def lifted_values(filter: Filter, values: Mapping[str, Any]) -> dict[str, Any]:
    """As `Filter.lift_values`; motions have their operand's scale and offset applied."""
    if not moves(values):
        return filter.lift_values(values)
    lifted: dict[str, Any] = filter.lift_values(still(values, 0))
    for number, operand in enumerate(filter.lift()[1], 1):
        motion = values.get(operand.name) if isinstance(operand, Variable) else None
        if isinstance(operand, Variable) and isinstance(motion, Motion):
            value, rate = operand.scale * motion.value + operand.offset, operand.scale * motion.rate
            lifted[str(number)] = replace(motion, value=value, rate=rate)
    return lifted
