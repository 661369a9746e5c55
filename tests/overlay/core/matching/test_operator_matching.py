"""Interests with calls beside those without."""

from functools import partial

from core_posets import POINT
from named_operators import registered

from covey.matcher import EventBatch, parse
from covey.matcher.evaluation.evaluator import Evaluator
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.matching import FilterAt, Matching
from covey.overlay.core.matching.operator_matching import OperatorMatching


def test_an_interest_is_matched_once_whether_its_newest_filter_calls_operators_or_not() -> None:
    matching = OperatorMatching(partial(Matching, "naive"), POINT, Evaluator(), reads=False)
    with registered():
        calling = FilterAt(7, parse("x > 1 and near(x, 5, 1)", POINT), {})
        plain = FilterAt(7, parse("x > 1", POINT), {})
        for interest in (plain, calling, plain, calling):
            matching.put(interest, 0)
            events = EventPoints(EventBatch.from_pylist(POINT, [{"x": 5}, {"x": 9}]))
            expected = [7] if interest is calling else [7, 7]
            assert matching.decide(events)[1].tolist() == expected
            assert (len(matching), matching.calls) == (1, interest is calling)
        matching.discard(calling)
    assert matching.interests() == {}
