"""Normal form or tree: the paper's equations, exact counts, and the choice of the cluster engine."""

import random

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.compile.form_model import Parameters, conjunction_count, parameters_of
from covey.matcher.covering.boxes import conjunctions
from covey.matcher.engines.cluster.engine import ClusterEngine
from covey.matcher.errors import CoveyError

T = EventType("T", {"firm": "string", "a": "int64", "b": "int64", "c": "int64"})
MANY = 'firm == "x" and ' + " and ".join(f"(a == {i} or b < {i} and c > {i})" for i in range(30))


def test_the_papers_equations_at_its_widths() -> None:
    """(1) to (5) and (11) to (14) by hand, for |p| = 10, |op| = 5, S_s = 4, s_p = 2."""
    of = Parameters(p=10, op=5, S_s=4, s_p=2, s=3)
    assert of.counting(unsubscription=False) == 3 * (8 + 80)
    assert of.counting() == 3 * (8 + 80 + 80)
    assert of.cluster(unsubscription=False) == 3 * (16 + 80)
    assert of.cluster() == 3 * (16 + 80 + 16 + 80)
    assert of.noncanonical() == 3 * (40 + 10 + 10 + 4 + 40 + 2)
    assert (of.op_r, of.s_r, of.r_p) == (0.5, 0.5, 0.0)
    assert Parameters(10, 5, 4, 2, s=10, p_u=50).r_p == 0.5
    numerator = 10 * 10 + 6
    assert of.turning_point("counting", unsubscription=False) == numerator / (2 + 20)
    assert of.turning_point("counting") == numerator / (2 + 40)
    assert of.turning_point("cluster", unsubscription=False) == numerator / (4 + 20)
    assert of.turning_point("cluster") == numerator / (8 + 40)


def test_conjunctions_are_counted_exactly() -> None:
    choose = random.Random(2)

    def made(depth: int, operator: str) -> str:
        if depth == 0 or choose.random() < 0.2:
            return f"{choose.choice('abc')} < {choose.randrange(9)}"
        other = "or" if operator == "and" else "and"
        return "(" + f" {operator} ".join(made(depth - 1, other) for _ in range(choose.randint(2, 3))) + ")"

    compared = 0
    for _ in range(300):
        expression = parse(made(4, choose.choice(["and", "or"])), T).expression
        forms = conjunctions(expression)
        if forms is not None:
            compared += 1
            of = parameters_of(expression)
            assert conjunction_count(expression) == of.S_s == len(forms)
            assert of.s_p * of.p == pytest.approx(sum(map(len, forms)))
    assert compared > 100


def test_a_filter_of_2_to_the_30_conjunctions_is_a_tree_at_once() -> None:
    filter = parse(MANY, T)
    assert conjunction_count(filter.expression) == 2**30
    assert filter.boxes() is None
    engine = create_engine("cluster", T)
    engine.add(1, filter)
    event = {"firm": "x", "a": 99, "b": -1, "c": 99}
    assert engine.match(EventBatch.from_pylist(T, [event])).ordered()[1].tolist() == [1]
    assert "matched as a tree: its normal form of 1,073,741,824 conjunctions" in engine.explain(event, 1)
    assert filter.covers(filter)
    assert filter.intersects(parse("a > 5", T))
    assert parse('firm == "x"', T).covers(filter)
    assert not filter.covers(parse('firm == "x"', T))


def test_the_engine_chooses_and_says_why() -> None:
    few = "firm == $f and (a == 1 or b == 2)"
    ranges = " and ".join(f"{name} between ${name} and ${name} + 9" for name in "abc")
    several = ranges + " and (a > 1 or b > 2) and (b > 1 or c > 2) and (a < 9 or c < 4) and (a > 3 or c < 5)"
    engine, normal = ClusterEngine(T), ClusterEngine(T, forms="normal")
    for each in (engine, normal):
        each.add(1, parse(few, T), {"f": "x"})
        each.add_many(np.arange(2, 5), parse(several, T), {"a": 3, "b": 1, "c": 2})
    assert engine.trees is not None
    assert len(engine.trees) == 3
    assert "as trees, in trees: 3 subscriptions" in engine.render()
    assert normal.trees is None
    event = {"firm": "x", "a": 5, "b": 2, "c": 4}
    batch = EventBatch.from_pylist(T, [event])
    assert (
        engine.match(batch).ordered()[1].tolist() == normal.match(batch).ordered()[1].tolist() == [1, 2, 3, 4]
    )
    assert "matched in normal form: 2 conjunctions take" in engine.explain(event, 1)
    assert "matched as a tree: " in engine.explain(event, 3)
    assert "matched" not in normal.explain(event, 1).replace("matches", "")
    engine.remove_many(np.arange(1, 5))
    assert engine.trees is None
    with pytest.raises(CoveyError, match="forms 'x': expected one of model, normal"):
        ClusterEngine(T, forms="x")
