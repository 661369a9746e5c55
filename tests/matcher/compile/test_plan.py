"""Plans: the shared plan of a skeleton equals that of each structure."""

from itertools import permutations
from typing import Any

from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, filters

from covey.matcher import EventBatch, EventType, Filter, Kind, create_engine, parse
from covey.matcher.compile.plan import Plan, Side, in_order, make_plan, plan_key, structure_key
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.expressions.expression import Variable

T = EventType("T", {"x": "int64", "y": "int64", "z": "float64", "s": "string", "t": "string"})


def plan_of(filter: Filter) -> Plan:
    made = make_plan(filter, plan_key(filter)[0], SchemaColumns(filter.event_type))
    return made[0]


def ordered(filter: Filter) -> Filter:
    return Filter.of_checked(filter.event_type, in_order(filter.expression, filter.event_type))


@examples(400)
@given(st.data())
def test_structure_keys_are_equal_exactly_for_equal_structures(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    f, g = (data.draw(filters(event_type)) for _ in range(2))
    for one, other in ((f, g), (f, f.lift()[0])):
        same = structure_key(one)[:2] == structure_key(other)[:2]
        assert same is (ordered(one).lift()[0] == ordered(other).lift()[0])
    assert structure_key(f)[2] == ordered(f).lift()[1]


@examples(400)
@given(st.data())
def test_a_skeleton_has_the_plan_of_its_structure(data: st.DataObject) -> None:
    f = ordered(data.draw(data.draw(event_types().map(filters))))
    key, operands = plan_key(f)
    if isinstance(key[0], Filter):
        assert not operands
        return
    structure = f.lift()[0]
    alone = make_plan(structure, (structure, (), (), False), SchemaColumns(structure.event_type))
    shared = make_plan(f, key, SchemaColumns(f.event_type))
    assert shared is not None
    assert described(shared[0], list(range(len(operands)))) == described(
        alone[0], [int(v.name) - 1 for v in alone[0].variables if v is not None]
    )
    assert shared[0].variables == tuple([o if isinstance(o, Variable) else None for o in operands])


def test_filters_that_differ_in_the_order_of_parts_share_a_plan() -> None:
    parts = ["x > $a", "x < $b", "y == 3", "t != 'b'"]
    event_type = EventType("T", {"x": "int64", "y": "int64", "t": "string"})
    filters = [parse(" and ".join(each), event_type) for each in permutations(parts)]
    filters += [parse(f"y == 3 or {' or '.join(each)}", event_type) for each in permutations(parts[:2])]
    nested = ["(x > $a or t == 'a')", "(x < $b or y == $a)", "(x != $a or y > $b)"]
    filters += [parse(" and ".join(each), event_type) for each in permutations(nested)]
    assert len({plan_key(each)[0] for each in filters}) == 3
    assert len({structure_key(each)[:2] for each in filters}) == 3
    rows = [{"x": x, "y": y, "t": t} for x in range(6) for y in (3, 4) for t in ("a", "b")]
    engine, oracle = create_engine("cluster", event_type), create_engine("naive", event_type)
    for each in (engine, oracle):
        for number, filter in enumerate(filters):
            each.add(number, filter, {"a": number % 4, "b": 2 + number % 5})
        each.update_many(range(0, len(filters), 2), {"b": 4})
    batch = EventBatch.from_pylist(event_type, rows)
    for ours, theirs in zip(engine.match(batch).ordered(), oracle.match(batch).ordered(), strict=True):
        assert ours.tolist() == theirs.tolist()


def described(plan: Plan, numbers: list[int]) -> tuple[Any, ...]:
    """A plan with its operands renumbered."""

    def end(side: Side | None) -> tuple[int, bool, bool] | None:
        return None if side is None else (numbers[side.operand], side.strict, side.past)

    boxes = [
        (
            [(t.kind, end(t.lower), end(t.upper), t.low, t.high, t.shape) for t in box.tests],
            [(t.operator, numbers[t.operand], t.expected) for t in box.texts],
            (box.columns, box.text_columns, box.shapes),
        )
        for box in plan.boxes
    ]
    kinds = {numbers[o]: kind for o, kind in enumerate(plan.kinds) if kind is not None}
    return boxes, kinds


def test_structures_that_differ_in_attributes_alone_share_all_but_columns() -> None:
    one = plan_of(parse("x > $a and t == 'b' and y <= 3 and s suffix $c", T))
    other = plan_of(parse("y > $d and t == $e and x <= $f and s suffix 'g'", T))
    assert one.boxes[0].columns == (4, 0, 1)
    assert one.boxes[0].text_columns == (3,)
    assert other.boxes[0].skeleton is not one.boxes[0].skeleton  # y stands behind x
    several = [plan_of(parse(text, T)) for text in ("x > $a", "y > 3", "y > 2 * $b")]
    assert [plan.boxes[0].columns for plan in several] == [(0,), (1,), (1,)]
    assert len({plan.boxes[0].skeleton for plan in several}) == 1
    assert plan_of(parse("z > $a", T)).kinds == (Kind.FLOAT64,)


def test_a_filter_whose_constants_make_fewer_boxes_has_its_own_plan() -> None:
    assert len(plan_of(parse("x not in (10, 20, 30)", T)).boxes) == 4
    assert len(plan_of(parse("x not in ($a, $b, $c)", T)).boxes) == 8
    assert plan_key(parse("x != 1", T))[0] == plan_key(parse("x != 2", T))[0]
    assert plan_key(parse("x not in (10, 20)", T))[0] != plan_key(parse("x not in (10, 30)", T))[0]


def test_boxes_that_exclude_each_other_are_known() -> None:
    apart = (
        "x != 1", "s != $a", "s not prefix 'a'", "x in (1, 2, 3)", "s in ('a', 'b')", "z != 1",
        "z in (1, 2) and x > $a", "x == 1 and not exists(s) or x == 2", "exists(x) or not exists(x)",
        "x not in (1, 2)",
    )  # fmt: skip
    overlapping = (
        "x < $a or x > $b", "x in ($a, $b)", "x in (1, $b)", "x == 1 or y == 1", "x <= $a or x >= $a",
        "x == 1 or x == 1 and y == 2", "s prefix $a or s prefix $b", "x < 3 or x > 2",
    )  # fmt: skip
    assert [text for text in apart if plan_of(parse(text, T)).overlaps] == []
    assert [text for text in overlapping if not plan_of(parse(text, T)).overlaps] == []
