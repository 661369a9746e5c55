"""Numbers for tables: three significant digits, separated thousands, a dash for unknown values."""

from __future__ import annotations

from typing import Any


def number(value: Any) -> str:
    """A value for a table, such as 1,234, 0.0123, 12.3 and yes; a dash for None; text is unchanged."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"
