"""Arguments of an operator's function as NumPy columns and numbers, and text that is parsed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Parsed = TypeVar("Parsed")

_SHORT = 4_096
_MANY, _FEW = 4_096, 64


def column(argument: Any) -> Any:
    """An attribute's numbers as float64[n], without a copy if they are float64; a constant as a float."""
    if isinstance(argument, pa.Array):
        return argument.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return number(argument)


def number(argument: Any) -> float:
    """A constant as a float: integers of 64 bits are rounded."""
    return float(argument)


def microseconds_of(argument: Any) -> npt.NDArray[np.int64]:
    """A timestamp attribute's microseconds since 1970, in UTC: int64[n]."""
    counts: npt.NDArray[np.int64] = argument.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return counts


def parsed_once(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Caches a function of text: 4,096 texts of up to 4,096 characters, and 64 longer ones. Errors are not
    cached."""
    short, long = lru_cache(_MANY)(parse), lru_cache(_FEW)(parse)

    def parsed(text: str) -> Parsed:
        return (short if len(text) <= _SHORT else long)(text)

    return parsed
