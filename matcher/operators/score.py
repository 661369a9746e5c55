"""Operators that call a model: `score_operator` wraps a scikit-learn model or any function.

`risk(speed, load, ?score) and ?score > 0.8` binds the score; `risk(speed, load, 0.8)` is true for a score of
at least 0.8. The model is called once for all events of a batch that reach it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.errors import CoveyError
from covey.matcher.events.event_type import Kind
from covey.matcher.operators.arguments import column
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes


def score_operator(
    name: str,
    model: Any,
    attributes: Sequence[str],
    *,
    output: int | None = None,
    version: int = 1,
    cost_us: float | None = None,
    summary: str = "",
) -> NamedOperator:
    """The operator `name(*attributes, ?score)`, to be registered by `register`.

    `model` has `predict_proba` or `predict`, or is a function of float64[n, attributes] to n scores. `output`
    is the class whose probability is the score: its place in the model's `classes_`, by default the second of
    two. `attributes` names the parameters: numbers and Booleans. Results of brokers travel with events: raise
    `version` with every new model. `CoveyError` if `model` is none of these."""
    if not (hasattr(model, "predict_proba") or hasattr(model, "predict") or callable(model)):
        raise CoveyError(f"operator {name}: a model {model!r}, expected predict_proba, predict or a function")
    count = len(attributes)

    def evaluate(*arguments: Any) -> Any:
        columns = np.broadcast_arrays(*map(column, arguments[:count]))
        scores = _scores(model, np.column_stack(columns), output)
        if len(arguments) > count:
            return scores >= arguments[count]
        offsets = np.arange(len(scores) + 1, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(scores))

    return NamedOperator(
        name=name,
        parameters=(
            *(Parameter(each, NUMBERS | {Kind.BOOL}) for each in attributes),
            Parameter("score", frozenset({Kind.FLOAT64}), Takes.FREE | Takes.CONSTANT),
        ),
        evaluate=evaluate,
        summary=summary or f"the score of a model, {type(model).__name__}",
        cost_us=cost_us,
        covers=_covers,
        version=version,
    )


def _scores(model: Any, features: npt.NDArray[np.float64], output: int | None) -> Any:
    """float64[n] from float64[n, attributes]."""
    if hasattr(model, "predict_proba"):
        chances = np.asarray(model.predict_proba(features))
        if output is None and chances.shape[1] != 2:
            raise ValueError(f"a model of {chances.shape[1]} classes: expected `output`, the place of one")
        return chances[:, 1 if output is None else output].astype(np.float64)
    answer = model.predict(features) if hasattr(model, "predict") else model(features)
    scores = np.asarray(answer, np.float64)
    if scores.size != len(features):
        raise ValueError(f"scores of shape {scores.shape}: expected one for each of {len(features)} events")
    return scores.reshape(-1)


def _covers(wider: Sequence[Any], narrower: Sequence[Any]) -> bool:
    if wider[:-1] != narrower[:-1]:
        return False
    least, other = wider[-1], narrower[-1]
    return bool(least == other or (least is not None and other is not None and least <= other))
