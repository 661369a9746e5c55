"""`score_operator`: models and functions as operators."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from covey.matcher.errors import CoveyError
from covey.matcher.operators.score import score_operator

SPEED, LOAD = pa.array([1.0, 2.0, 3.0]), pa.array([4, 5, 6])


def weighted(features: Any) -> Any:
    assert features.dtype == np.float64
    return features @ [1.0, 0.5]


def test_a_function_gets_a_column_per_attribute_and_binds_its_scores() -> None:
    risk = score_operator("risk", weighted, ["speed", "load"])
    assert risk.signature == "risk(speed, load, ?score)"
    assert risk.evaluate(SPEED, LOAD).to_pylist() == [[3.0], [4.5], [6.0]]
    assert risk.evaluate(SPEED, LOAD, 4.5).tolist() == [False, True, True]
    assert risk.evaluate(SPEED, 2).to_pylist() == [[2.0], [3.0], [4.0]]
    assert risk.evaluate(SPEED, pa.array([True, False, True])).to_pylist() == [[1.5], [2.0], [3.5]]


def test_models_are_called_by_what_they_have() -> None:
    chances = SimpleNamespace(predict_proba=lambda x: np.column_stack([1 - x[:, 0] / 4, x[:, 0] / 4]))
    assert score_operator("p", chances, ["x"]).evaluate(SPEED, 0.5).tolist() == [False, True, True]
    other = score_operator("p", chances, ["x"], output=0)
    assert other.evaluate(SPEED).to_pylist() == [[0.75], [0.5], [0.25]]
    numbers = SimpleNamespace(predict=lambda x: x[:, :1])
    assert score_operator("p", numbers, ["x"]).evaluate(SPEED).to_pylist() == [[1.0], [2.0], [3.0]]


def test_a_model_of_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.LogisticRegression().fit([[0, 0], [1, 1], [0, 1], [5, 5], [6, 5]], [0, 0, 0, 1, 1])
    risk = score_operator("risk", model, ["speed", "load"], summary="danger")
    scores = risk.evaluate(SPEED, LOAD).to_pylist()
    assert [score for (score,) in scores] == model.predict_proba([[1, 4], [2, 5], [3, 6]])[:, 1].tolist()
    assert risk.summary == "danger"


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (lambda x: np.zeros((len(x), 2)), "expected one for each of 3 events"),
        (lambda x: 1.0, "expected one for each of 3 events"),
        (lambda x: ["high"] * len(x), "could not convert"),
        (SimpleNamespace(predict_proba=lambda x: np.zeros((len(x), 3))), "expected `output`"),
    ],
)
def test_answers_of_another_shape_are_errors(model: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        score_operator("risk", model, ["speed"]).evaluate(SPEED)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(CoveyError, match=r"operator risk: a model 3, expected predict_proba, predict or a"):
        score_operator("risk", 3, ["speed"])


def test_a_lower_threshold_covers_a_higher_one_of_the_same_attributes() -> None:
    covers = score_operator("risk", weighted, ["speed", "load"]).covers
    assert covers is not None
    assert covers((None, None, 0.5), (None, None, 0.8))
    assert not covers((None, None, 0.8), (None, None, 0.5))
    assert not covers((None, 1, 0.5), (None, 2, 0.8))
    assert covers((None, None, None), (None, None, None))
