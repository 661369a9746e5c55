"""The evaluator: residues of every form, one evaluation per call, and faulty operators."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from covey.matcher import EventBatch, EventType, Filter, Kind, parse
from covey.matcher.evaluation import evaluator as evaluator_module
from covey.matcher.evaluation.asking import Fault
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.residues import Residues
from covey.matcher.evaluation.strategies import STRATEGIES
from covey.matcher.events.results import Answers
from covey.matcher.expressions.expression import (
    And,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Or,
    Predicate,
    Scalar,
    Variable,
)
from covey.matcher.expressions.operators import Operator
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register, unregister

NUMBER = EventType("Number", {"n": "int64", "word": "string", "x": "float64"})
INT64 = frozenset({Kind.INT64})
EVENTS = 12
ABSENT = 3
FALSE, UNDECIDED, TRUE = 0, 1, 2


class Operators:
    """`above(n, least)`, `divisors(n, ?d)`, `even_pairs(n, ?a, ?b)`, and their recorded calls."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, list[Any]]] = []

    def above(self, n: pa.Array, least: float) -> Any:
        self.rows.append((f"above {least}", n.to_pylist()))
        return np.asarray(n) > least

    def divisors(self, n: pa.Array) -> Any:
        self.rows.append(("divisors", n.to_pylist()))
        return pa.array(
            [[d for d in range(1, v + 1) if v % d == 0] for v in n.to_pylist()], pa.list_(pa.int64())
        )

    def splits(self, n: pa.Array) -> Any:
        item = pa.struct({"b": pa.int64(), "a": pa.int64()})
        return pa.array([[{"a": a, "b": v - a} for a in range(v + 1)] for v in n.to_pylist()], pa.list_(item))


@pytest.fixture
def operators() -> Iterator[Operators]:
    asked = Operators()
    n, free = Parameter("n", INT64), Takes.FREE
    entries = [
        NamedOperator(
            "above", (Parameter("n", NUMBERS), Parameter("least", NUMBERS, Takes.CONSTANT)), asked.above
        ),
        NamedOperator("divisors", (n, Parameter("d", INT64, free)), asked.divisors),
        NamedOperator("splits", (n, Parameter("a", INT64, free), Parameter("b", INT64, free)), asked.splits),
    ]
    for entry in entries:
        register(entry)
    yield asked
    for entry in entries:
        unregister(entry.name)


def batch(count: int = EVENTS) -> EventBatch:
    """Events n = 0, 1, ...; n is missing at ABSENT."""
    return EventBatch.from_pylist(
        NUMBER, [{"n": None if n == ABSENT else n, "word": "ab"[n % 2], "x": n / 2} for n in range(count)]
    )


def above(least: float | Variable, expected: bool = True) -> Call:
    operand = least if isinstance(least, Variable) else Constant(least)
    return Call("above", (Column("n"), operand), expected)


def call(name: str, *free: str) -> Call:
    return Call(name, (Column("n"), *map(Free, free)))


def where(terms: dict[str, float], operator: str, operand: float | Variable) -> Constraint:
    value = operand if isinstance(operand, Variable) else Constant(operand)
    return Constraint(tuple((scale, name) for name, scale in terms.items()), Operator(operator), value)


def test(attribute: str, operator: str, *operands: Scalar) -> Predicate:
    return Predicate(attribute, Operator(operator), tuple(map(Constant, operands)))


test.__test__ = False


def decided(expression: Expression, events: EventBatch | None = None, **values: Scalar) -> list[int]:
    """The truth of a filter's residue for each event, the same by every strategy."""
    truths = []
    for strategy in STRATEGIES:
        residues = Residues()
        number = residues.add(Filter.of_checked(NUMBER, expression), values)
        of = batch() if events is None else events
        rows = np.arange(len(of))
        truths.append(Evaluator(strategy).decide(of, residues, rows, np.full(len(of), number)).tolist())
    assert all(other == truths[0] for other in truths)
    return truths[0]


def true(expression: Expression, **values: Scalar) -> list[int]:
    """The events for which it is true; the others are false."""
    truths = decided(expression, **values)
    assert UNDECIDED not in truths
    return [row for row, truth in enumerate(truths) if truth == TRUE]


def test_a_missing_attribute_is_false_whatever_is_expected(operators: Operators) -> None:
    assert true(above(8)) == [9, 10, 11]
    assert true(above(8, False)) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert true(above(Variable("least", 2, 1)), least=3.5) == [9, 10, 11]


def test_a_normal_form_of_2_to_the_30_is_walked(operators: Operators) -> None:
    wide = And(tuple(Or((above(3 + i / 100), above(8 - i / 100))) for i in range(30)))
    assert true(wide) == [4, 5, 6, 7, 8, 9, 10, 11]
    names = And((call("divisors", "d"), *[Or((where({"d": 1}, "==", i), above(9))) for i in range(30)]))
    assert true(names) == [10, 11]


def test_each_call_is_asked_once_about_an_event(operators: Operators) -> None:
    residues, evaluator, events = Residues(), Evaluator(), batch()
    filters = [above(5), And((above(5), above(7, False))), Or((above(5, False), above(7)))]
    numbers = [residues.add(Filter.of_checked(NUMBER, each), {}) for each in filters]
    for _ in range(2):
        evaluator.decide(events, residues, np.repeat(np.arange(EVENTS), 3), np.tile(numbers, EVENTS))
    questions = [(name, n) for name, rows in operators.rows for n in rows]
    assert len(questions) == len(set(questions))
    account = evaluator.accounts["above"]
    assert account.events == len(questions)
    assert account.reused > 0
    residues.remove(np.array(numbers))
    assert len(residues) == 0
    assert not any(residues.calls)


def test_a_group_that_is_true_needs_no_further_calls(operators: Operators) -> None:
    residues, evaluator = Residues(), Evaluator()
    numbers = [residues.add(Filter.of_checked(NUMBER, above(least)), {}) for least in (-1, 5, 6, 7)]
    truths = evaluator.decide(
        batch(), residues, np.repeat(np.arange(EVENTS), 4), np.tile(numbers, EVENTS),
        np.zeros(4 * EVENTS, np.int64),
    )  # fmt: skip
    of_events = truths.reshape(EVENTS, 4).max(axis=1)
    assert of_events.tolist() == [0 if n == ABSENT else TRUE for n in range(EVENTS)]
    assert evaluator.accounts["above"].events < 4 * EVENTS


def raising(n: pa.Array) -> Any:
    raise RuntimeError("no model")


MISBEHAVIOUR: dict[str, tuple[Callable[[pa.Array], Any], str]] = {
    "raises": (raising, "raised RuntimeError: no model"),
    "no array": (lambda n: True, "returned bool, expected an array of Booleans"),
    "list": (lambda n: [True] * len(n), "returned list, expected an array of Booleans"),
    "numbers": (
        lambda n: np.full(len(n), np.nan),
        "returned an array of float64, expected an array of Booleans",
    ),
    "short": (lambda n: np.ones(len(n) - 1, np.bool_), "answers, expected 11"),
    "null": (lambda n: pa.array([None, *[True] * (len(n) - 1)]), "returned 1 nulls, expected true or false"),
    "lists": (
        lambda n: pa.array([[1]] * len(n)),
        "returned an Arrow array of list<item: int64>, expected an array of Booleans",
    ),
}


@pytest.mark.parametrize("kind", MISBEHAVIOUR)
def test_a_fault_leaves_events_undecided_and_others_decided(operators: Operators, kind: str) -> None:
    evaluate, reason = MISBEHAVIOUR[kind]
    faulty = register(NamedOperator("faulty", (Parameter("n", INT64),), evaluate))
    try:
        faults: list[Fault] = []
        residues, evaluator = Residues(), Evaluator(on_fault=faults.append)
        expressions = [
            call("faulty"),
            above(8),
            And((call("faulty"), above(8))),
            Or((call("faulty"), above(8))),
        ]
        truths = []
        for each in expressions:
            number = residues.add(Filter.of_checked(NUMBER, each), {})
            events = batch()
            truths.append(evaluator.decide(events, residues, np.arange(12), np.full(12, number)).tolist())
    finally:
        unregister(faulty.name)
    absent = [n for n in range(EVENTS) if n == ABSENT]
    assert truths[0] == [FALSE if n in absent else UNDECIDED for n in range(12)]
    assert truths[1] == [TRUE if n > 8 else FALSE for n in range(12)]
    assert truths[2] == [UNDECIDED if n > 8 else FALSE for n in range(12)]
    assert truths[3] == [FALSE if n in absent else TRUE if n > 8 else UNDECIDED for n in range(12)]
    assert {fault.operator for fault in faults} == {"faulty"}
    assert any(reason in fault.reason for fault in faults), faults
    assert evaluator.accounts["faulty"].failures == len(faults)


def test_solutions_of_two_types_are_a_fault_unless_they_can_be_one(
    operators: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that answers integers for some events and other numbers for later ones."""
    monkeypatch.setattr(evaluator_module, "_WINDOW", 6)
    large = 1
    halves = NamedOperator(
        "halves",
        (Parameter("n", INT64), Parameter("h", NUMBERS, Takes.FREE)),
        lambda n: pa.array([[i * large] if n[0].as_py() == 0 else [i / 2] for i in n.to_pylist()]),
    )
    register(halves)
    try:
        over = And((call("halves", "h"), where({"h": 1}, ">=", 4)))
        assert decided(over) == [TRUE if n in (4, 5) or n >= 8 else FALSE for n in range(EVENTS)]
        large = 2**60 + 1
        residues, faults = Residues(), []
        number = residues.add(Filter.of_checked(NUMBER, over), {})
        truths = Evaluator(on_fault=faults.append).decide(
            batch(), residues, np.arange(EVENTS), np.full(EVENTS, number)
        )
    finally:
        unregister(halves.name)
    assert truths.tolist() == [FALSE, TRUE, TRUE, FALSE, TRUE, TRUE, *[UNDECIDED] * 6]
    assert [(fault.events, "another type" in fault.reason) for fault in faults] == [(6, True)]


def test_solutions_that_are_not_of_the_operator_are_asked_for_again(operators: Operators) -> None:
    """As from a neighbour with another operator of this name and version."""
    expression = And((call("divisors", "d"), where({"d": 1}, ">", 3)))
    residues = Residues()
    number = residues.add(Filter.of_checked(NUMBER, expression), {})
    ((bound, _),) = residues.calls_of(number)
    for solutions in (None, pa.array([["a"]], pa.list_(pa.string()))):
        events = batch()
        assert events.shared_results().add(bound.key, Answers(np.array([8]), np.array([True]), solutions))
        assert decided(expression, events)[8] == TRUE


def test_an_unknown_operator_is_undecided(operators: Operators) -> None:
    assert decided(call("unheard_of")) == [FALSE if n == ABSENT else UNDECIDED for n in range(EVENTS)]


def test_too_many_solutions_are_undecided(operators: Operators) -> None:
    several = And(
        (
            *[call("splits", f"a{i}", f"b{i}") for i in range(5)],
            where({f"a{i}": 1 for i in range(5)}, "==", 1_000),
        )
    )
    truths = decided(several)
    assert truths[2] == FALSE
    assert truths[11] == UNDECIDED


def test_many_events_are_decided_in_windows(operators: Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_module, "_WINDOW", 5)
    several = And((call("divisors", "d"), call("divisors", "e"), where({"d": 1, "e": -2}, "==", 0)))
    either = Or((And((several, test("x", ">", 1))), above(9)))
    assert true(either) == [4, 6, 8, 10, 11]
    questions = [(name, n) for name, rows in operators.rows for n in rows]
    assert len(questions) == len(set(questions)) * len(STRATEGIES)
    events = batch()
    for _ in range(2):
        assert decided(above(8), events) == [TRUE if n > 8 else FALSE for n in range(EVENTS)]
    assert [answers.rows.tolist() for _, answers in events.results.items()] == [
        [n for n in range(EVENTS) if n != ABSENT]
    ]


@pytest.mark.parametrize("bound", ["_WINDOW_PAIRS", "_WINDOW_CELLS"])
def test_windows_are_shorter_where_many_residues_meet_each_event(
    operators: Operators, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(evaluator_module, bound, 25)
    lengths: list[int] = []
    asking = evaluator_module.Asking

    def observed(batch: EventBatch, window: range, *others: Any, **options: Any) -> Any:
        lengths.append(len(window))
        return asking(batch, window, *others, **options)

    monkeypatch.setattr(evaluator_module, "Asking", observed)
    residues = Residues()
    filter = parse("above(n, $least)", NUMBER)
    numbers = residues.add_many(filter, {"least": [float(n) for n in range(10)]}, 10)
    events = batch()
    rows = np.repeat(np.arange(EVENTS), 10)
    truths = Evaluator().decide(events, residues, rows, np.tile(numbers, EVENTS))
    wanted = [TRUE if n != ABSENT and n > least else FALSE for n in range(EVENTS) for least in range(10)]
    assert truths.tolist() == wanted
    assert lengths == [2] * (EVENTS // 2)
    assert sorted(n for _, values in operators.rows for n in values) == sorted(
        n for n in range(EVENTS) if n != ABSENT for _ in range(10)
    )


def test_true_and_1_are_different_calls_of_an_unknown_operator() -> None:
    filter = parse("mystery(i, $x)", EventType("T", {"i": "int64"}), unknown_operators=True)
    residues = Residues()
    numbers = residues.add_many(filter, {"x": [1, True, 1.0]}, 3)
    calls = [residues.calls_of(int(number))[0][0].text for number in numbers]
    assert calls == ["mystery(i, 1)", "mystery(i, true)", "mystery(i, 1)"]


@pytest.mark.parametrize(
    "solutions",
    [pa.array([["a"], ["b"]]), pa.array([[7], [2]]), pa.array([[True], []]), pa.array([[[1]], [[2]]])],
    ids=lambda solutions: str(solutions.type.value_type),
)
@pytest.mark.parametrize("text", ["mystery(i, ?n) and ?n > 5", "mystery(i, ?n) and 2 * ?n > 10"])
def test_solutions_of_another_family_satisfy_no_constraint(solutions: pa.ListArray, text: str) -> None:
    event_type = EventType("T", {"i": "int64"})
    residues = Residues()
    number = residues.add(parse(text, event_type, unknown_operators=True), {})
    batch = EventBatch.from_pylist(event_type, [{"i": 1}, {"i": 2}])
    (call, _), *_ = residues.calls_of(number)
    batch.shared_results().add(call.key, Answers(np.arange(2), np.ones(2, np.bool_), solutions))
    truths = Evaluator().decide(batch, residues, np.arange(2), np.array([number, number]))
    expected = [2, 0] if solutions.type.value_type == pa.int64() else [0, 0]
    assert truths.tolist() == expected


def test_a_call_of_constants_alone_has_one_answer_for_all_events(operators: Operators) -> None:
    of, part = Parameter("of", NUMBERS, Takes.CONSTANT), Parameter("part", INT64, Takes.FREE)
    halves = NamedOperator("halves", (of, part), lambda of: pa.array([[int(of / 2)]], pa.list_(pa.int64())))
    register(halves)
    try:
        for number, expected in ((8.0, [*range(EVENTS)]), (2.0, [])):
            one = Call("halves", (Constant(number), Free("p")))
            assert true(And((one, where({"p": 1}, ">", 3)))) == expected
    finally:
        unregister(halves.name)
