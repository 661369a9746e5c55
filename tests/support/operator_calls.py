"""Calls of named operators on plain Python values."""

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from covey.matcher.operators.named_operator import NamedOperator
from covey.matcher.operators.table import find, why_missing

TIMES = pa.timestamp("us", tz="UTC")


def operator(name: str) -> NamedOperator:
    found = find(name)
    assert found is not None, f"operator {name} is {why_missing(name)}"
    return found


def answers(name: str, *arguments: Any) -> list[Any]:
    """An operator's answers for events whose attributes are the lists among the arguments: Booleans, or lists
    of solutions."""
    result = operator(name).evaluate(*map(_argument, arguments))
    return np.asarray(result).tolist() if isinstance(result, np.ndarray) else result.to_pylist()


def covers(name: str, wider: tuple[Any, ...], narrower: tuple[Any, ...]) -> bool:
    """Whether covering holds by the operator's rule for these arguments, None for an attribute."""
    rule = operator(name).covers
    assert rule is not None
    return rule(wider, narrower)


def _argument(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], datetime):
        return pa.array(value, TIMES)
    return pa.array(value, pa.float64()) if value and isinstance(value[0], float) else pa.array(value)
