"""Values as JSON: those of events, and those of a subscription's structure.

Timestamps are ISO 8601 texts. An infinity or NaN, which JSON lacks, is the text "Infinity", "-Infinity" or
"NaN", which Spark, DuckDB, Polars and Python cast to the number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from covey.matcher.expressions.expression import Variable
from covey.overlay.core.moving.motion import Motion, moves, still

if TYPE_CHECKING:
    from covey.matcher import EventBatch, Filter


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
    """The values of each event of a batch."""
    return [_text(event) for event in batch.to_pylist()]


def values_text(filter: Filter, values: Mapping[str, Any]) -> str:
    """The values of the structure of a filter (`Filter.lift`), given all values of its own variables."""
    return _text(lifted_values(filter, values))


def lifted_values(filter: Filter, values: Mapping[str, Any]) -> dict[str, Any]:
    """As `Filter.lift_values`, with motions: they have their operand's scale and offset applied."""
    if not moves(values):
        return filter.lift_values(values)
    lifted: dict[str, Any] = filter.lift_values(still(values, 0))
    for number, operand in enumerate(filter.lift()[1], 1):
        motion = values.get(operand.name) if isinstance(operand, Variable) else None
        if isinstance(operand, Variable) and isinstance(motion, Motion):
            value, rate = operand.scale * motion.value + operand.offset, operand.scale * motion.rate
            lifted[str(number)] = replace(motion, value=value, rate=rate)
    return lifted
