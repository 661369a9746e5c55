"""Why a subscription matches an event or not, as text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from covey.matcher.compile.plan import Plan
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import float_of_key
from covey.matcher.engines.rows.store import RowStore
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import FIRST, INFINITY_KEY, LAST, MISSING, NAN_KEY
from covey.matcher.events.times import moment_of


def explain_rows(store: RowStore, columns: Columns, plan: Plan, first: int, event: EventBatch) -> list[str]:
    """Per box, each test's interval, the event's value and the outcome."""
    if not plan.boxes:
        return ["  its predicates contradict each other: it matches nothing"]
    keys = columns.encode(event)[0]
    values = event.to_pylist()[0]
    lines = []
    for box, box_plan in enumerate(plan.boxes):
        row = np.array([first + box], dtype=np.int64)
        lows, highs = store.read(row, box_plan.size)
        tested = store.signatures.columns[int(store.signatures_of(row)[0])]
        lines.append(f"  conjunction {box + 1} of {len(plan.boxes)}:")
        for t, column in enumerate(tested):
            low, high, key = int(lows[t, 0]), int(highs[t, 0]), int(keys[column])
            interval, value = _interval(columns, column, low, high), _value(columns, column, key, values)
            verdict = "yes" if low <= key <= high else "no "
            lines.append(f"    {verdict} {columns.describe(column)}: requires {interval}, event has {value}")
        if not tested:
            lines.append("    nothing to test: it matches every event")
    return lines


def _value(columns: Columns, column: int, key: int, values: Mapping[str, object]) -> str:
    attribute = columns.source(column)
    value = values[columns.event_type.names[attribute]]
    if value is None:
        return "missing"
    is_string = columns.event_type.kinds[attribute] is Kind.STRING
    if columns.is_text(column) or not (is_string or columns.is_derived(column)):
        return show_key(columns, column, key)
    return repr(value)


def _interval(columns: Columns, column: int, low: int, high: int) -> str:
    if low == high == MISSING:
        return "a missing value"
    if low > high:
        return "an empty interval"
    if low == high:
        return show_key(columns, column, low)
    attribute = columns.attribute(column)
    top = (
        INFINITY_KEY
        if attribute is not None and columns.event_type.kinds[attribute] is Kind.FLOAT64
        else LAST
    )
    bounded_low, bounded_high = low > FIRST, high < top
    if column in columns.ranks:
        least, most = columns.ranks[column].describe(low, high)
        if bounded_low and bounded_high:
            return f"{least} and {most}"
        return least if bounded_low else most
    if bounded_low and bounded_high:
        return f"{show_key(columns, column, low)} to {show_key(columns, column, high)}"
    if bounded_low:
        return f"at least {show_key(columns, column, low)}"
    return f"at most {show_key(columns, column, high)}" if bounded_high else "any value"


def show_key(columns: Columns, column: int, key: int) -> str:
    attribute = columns.attribute(column)
    kind = Kind.BOOL if attribute is None else columns.event_type.kinds[attribute]
    if column in columns.endings:
        return repr(columns.strings.name(key))
    if attribute is None and not columns.is_text(column):
        return columns.show_set(column, key) or "none of them"
    if kind is Kind.FLOAT64:
        return "NaN" if key == NAN_KEY else repr(float_of_key(key))
    if kind is Kind.BOOL:
        return "true" if key else "false"
    if kind is Kind.STRINGS:
        return "a list"
    if kind is Kind.TIMESTAMP:
        return moment_of(key).isoformat()
    if column in columns.ranks:
        return columns.ranks[column].describe(key, key)[0]
    return repr(columns.strings.name(key)) if kind is Kind.STRING else str(key)
