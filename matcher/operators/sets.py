"""`has_any`, `has_all` and `has_only`: a list attribute as a set, compared with a set of strings.

`has_any(tags, "a", "b")`: a or b is in the list. `has_all(tags, "a", "b")`: both are. `has_only(tags, "a",
"b")`: nothing else is, so it is true for the empty list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher.events.event_type import Kind
from covey.matcher.operators.arguments import Bools
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes

Int64s = npt.NDArray[np.int64]


def _has_any(lists: pa.ListArray, *values: str) -> Bools:
    truths: Bools = _counts(lists, _are_among(lists, values)) > 0
    return truths


def _has_only(lists: pa.ListArray, *values: str) -> Bools:
    truths: Bools = _counts(lists, ~_are_among(lists, values)) == 0
    return truths


def _has_all(lists: pa.ListArray, *values: str) -> Bools:
    distinct = dict.fromkeys(values)
    if len(distinct) == 1:
        return _has_any(lists, *distinct)
    places = pc.index_in(lists.flatten(), pa.array(distinct, pa.string()))
    is_value = places.is_valid().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(lists)), _lengths(lists))[is_value]
    pairs = rows * len(distinct) + places.drop_null().to_numpy()
    truths: Bools = np.bincount(np.unique(pairs) // len(distinct), minlength=len(lists)) == len(distinct)
    return truths


def _are_among(lists: pa.ListArray, values: tuple[str, ...]) -> Bools:
    among: Bools = pc.is_in(lists.flatten(), pa.array(values, pa.string())).to_numpy(zero_copy_only=False)
    return among


def _counts(lists: pa.ListArray, is_counted: Bools) -> Int64s:
    sums = np.append(0, np.cumsum(is_counted))
    counts: Int64s = np.diff(sums[np.append(0, np.cumsum(_lengths(lists)))])
    return counts


def _lengths(lists: pa.ListArray) -> Int64s:
    lengths: Int64s = lists.value_lengths().to_numpy(zero_copy_only=False)
    return lengths


def _covers_fewer(wider: Sequence[Any], narrower: Sequence[Any]) -> bool:
    return set(wider[1:]) >= set(narrower[1:])


def _covers_more(wider: Sequence[Any], narrower: Sequence[Any]) -> bool:
    return set(wider[1:]) <= set(narrower[1:])


def _operator(
    name: str,
    evaluate: Callable[..., Bools],
    covers: Callable[[Sequence[Any], Sequence[Any]], bool],
    summary: str,
) -> NamedOperator:
    return NamedOperator(
        name=name,
        parameters=(
            Parameter("strings", frozenset({Kind.STRINGS}), Takes.ATTRIBUTE),
            Parameter("value", frozenset({Kind.STRING}), Takes.CONSTANT),
        ),
        evaluate=evaluate,
        summary=summary,
        variadic=True,
        cost_us=0.1,
        covers=covers,
        bounded=True,
    )


HAS_ANY = _operator("has_any", _has_any, _covers_fewer, "a list contains at least one of the values")
HAS_ALL = _operator("has_all", _has_all, _covers_more, "a list contains all of the values")
HAS_ONLY = _operator("has_only", _has_only, _covers_fewer, "a list contains nothing but the values")
