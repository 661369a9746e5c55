"""Why a subscription matches an event or not, as text."""

from __future__ import annotations

import numpy as np

from covey.matcher.compile.plan import Plan
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys, float_of_key
from covey.matcher.engines.rows.store import RowStore
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import FIRST, INFINITY_KEY, LAST, MISSING, NAN_KEY
from covey.matcher.events.times import moment_of


def explain_rows(store: RowStore, columns: Columns, plan: Plan, first: int, keys: Keys) -> list[str]:
    """For every box of a subscription, each test's interval, the event's value and the outcome."""
    if not plan.boxes:
        return ["  its predicates contradict each other: it matches nothing"]
    lines = []
    for box, box_plan in enumerate(plan.boxes):
        row = np.array([first + box], dtype=np.int64)
        lows, highs = store.read(row, box_plan.size)
        tested = store.signatures.columns[int(store.signatures_of(row)[0])]
        lines.append(f"  conjunction {box + 1} of {len(plan.boxes)}:")
        for t, column in enumerate(tested):
            lines.append(_line(columns, column, int(lows[t, 0]), int(highs[t, 0]), int(keys[column])))
        if not tested:
            lines.append("    nothing to test: it matches every event")
    return lines


def _line(columns: Columns, column: int, low: int, high: int, key: int) -> str:
    passed = low <= key <= high
    kind = Kind.BOOL if columns.is_derived(column) else columns.event_type.kinds[column]
    interval = _interval(columns, kind, low, high)
    value = "missing" if key == MISSING else show_key(columns, kind, key)
    verdict = "yes" if passed else "no "
    return f"    {verdict} {columns.describe(column)}: requires {interval}, event has {value}"


def _interval(columns: Columns, kind: Kind, low: int, high: int) -> str:
    if low == high == MISSING:
        return "a missing value"
    if low > high:
        return "an empty interval"
    if low == high:
        return show_key(columns, kind, low)
    bounded_low = low > FIRST
    bounded_high = high < (INFINITY_KEY if kind is Kind.FLOAT64 else LAST)
    if bounded_low and bounded_high:
        return f"{show_key(columns, kind, low)} to {show_key(columns, kind, high)}"
    if bounded_low:
        return f"at least {show_key(columns, kind, low)}"
    return f"at most {show_key(columns, kind, high)}" if bounded_high else "any value"


def show_key(columns: Columns, kind: Kind, key: int) -> str:
    """A key as the value it stands for."""
    if kind is Kind.FLOAT64:
        return "NaN" if key == NAN_KEY else repr(float_of_key(key))
    if kind is Kind.BOOL:
        return "true" if key else "false"
    if kind is Kind.TIMESTAMP:
        return moment_of(key).isoformat()
    if kind is Kind.STRING:
        name = columns.strings.name(key)
        return "a string that no filter names" if name is None else repr(name)
    return str(key)
