"""The predicates beside calls in a disjunction, tested column by column.

Invariant: the truth of a predicate is as in `Filter.matches`. Numbers, Booleans and times are compared by
keys (`encoding/keys.py`), which is exact; strings by distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from covey.matcher.encoding.keys import float_keys, largest_key, lower_key, upper_key
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import FIRST
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.expression import Scalar
from covey.matcher.expressions.operators import SPECS, Operator

Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.int64]


class PredicateMasks:
    """The events of one batch; masks are cached, so that equal predicates are tested once."""

    def __init__(self, batch: EventBatch) -> None:
        self._batch = batch
        self._masks: dict[tuple[str, Operator, tuple[Scalar, ...]], Mask] = {}
        self._keys: dict[str, Keys] = {}
        self._texts: dict[str, tuple[npt.NDArray[np.int64], list[Any]]] = {}

    def mask(self, attribute: str, operator: Operator, operands: tuple[Scalar, ...]) -> Mask:
        """The events for which a predicate is true: bool[n_events]."""
        key = attribute, operator, operands
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = self._computed(attribute, operator, operands)
        return mask

    def _computed(self, attribute: str, operator: Operator, operands: tuple[Scalar, ...]) -> Mask:
        spec = SPECS[operator]
        kind = self._batch.event_type.attributes.get(attribute)
        if kind is None:
            return np.full(len(self._batch), spec.presence is False)
        column = self._batch.record_batch.column(attribute)
        present: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        if spec.presence is not None:
            return present if spec.presence else ~present
        if kind not in _KEYED:
            codes, values = self._text(attribute, column)
            truths = [value is not None and passes(operator, value, list(operands)) for value in values]
            return np.array([*truths, False])[codes]
        if spec.outside:
            return present & ~self.mask(attribute, spec.complement, operands)
        keys, mask = self._keys_of(attribute, kind, column), np.zeros(len(present), np.bool_)
        each = [operands] if spec.operand_count is not None else [(operand,) for operand in operands]
        for some in each:
            for low, high in spec.intervals:
                least = FIRST if low is None else lower_key(kind, some[low.operand], low.after)
                most = (
                    largest_key(kind) if high is None else upper_key(kind, some[high.operand], not high.after)
                )
                mask |= (keys >= least) & (keys <= most)
        return mask & present

    def _keys_of(self, attribute: str, kind: Kind, column: pa.Array) -> Keys:
        keys = self._keys.get(attribute)
        if keys is None:
            numbers = column.cast(pa.int64()) if kind in (Kind.TIMESTAMP, Kind.BOOL) else column
            values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
            if kind is Kind.FLOAT64:
                nan = np.isnan(values)
                keys = float_keys(np.where(nan, 0.0, values + 0.0))
                keys[nan] = largest_key(kind) + 1
            else:
                keys = values.astype(np.int64)
            self._keys[attribute] = keys
        return keys

    def _text(self, attribute: str, column: pa.Array) -> tuple[npt.NDArray[np.int64], list[Any]]:
        """The number of each value among the distinct ones, null the number after the last; and the distinct
        ones."""
        known = self._texts.get(attribute)
        if known is None:
            encoded = column.dictionary_encode()
            values: Sequence[Any] = encoded.dictionary.to_pylist()
            codes = pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False)
            known = self._texts[attribute] = codes.astype(np.int64), list(values)
        return known


_KEYED = frozenset({Kind.INT64, Kind.FLOAT64, Kind.BOOL, Kind.TIMESTAMP})
