"""The cost of a filter in normal form and as a tree, in memory and time.

The paper's part (Bittner and Hinze 2005): Table 1, and equations 1 to 5 and 11 to 14; 6 to 10 are 1 to 5 for
one subscription. `S_s` and `s_p` are counted without building the normal form. Ours: the lesser product of
bytes and expected nanoseconds wins, so a factor of memory weighs as much as a factor of time. The constants
were measured with 20,000 subscriptions of 12 predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from covey.matcher.compile.plan import BoxPlan, Shape
from covey.matcher.compile.tree_plan import access_rows
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import And, Expression, Or

PASSED = {Shape.EQUAL: 0.02, Shape.FIXED: 0.5, Shape.LOW: 0.5, Shape.HIGH: 0.5, Shape.BOTH: 0.25}
"""The share of the events that pass a test, while there are no statistics."""

Passed = Callable[[int, int], float]
"""Share of the events that pass a test of a shape on a column."""

ROW, HASHED_ROW, TREE = 100.0, 60.0, 44.0
"""Bytes beside bounds: of a row in bitmaps, of a hashed row, of a tree."""
SEARCH, COMBINE, CHECK, RECORD = 0.04, 0.003, 1.5, 15.0
"""ns per event: of a row, of each of its tests in bitmaps, of checking a hashed row, of a row that passes
bitmaps."""
EVALUATE, LEAF = 60.0, 4.0  # nanoseconds: of evaluating a tree, of each leaf visited
FLOOR = 0.02  # nanoseconds below which times count as equal
HASHED = 3  # the most equalities of an access predicate


# --- the paper ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameters:
    """Table 1, for filters of equal size; `p`, `op`, `s`, `p_u` are the paper's |p|, |op|, |s|, |p_u|."""

    p: float
    op: float
    S_s: float
    s_p: float
    s: float = 1
    p_u: float | None = None
    p_e: float = 0
    w_s: int = 4
    w_p: int = 4
    w_l: int = 4
    w_c: int = 4

    @property
    def op_r(self) -> float:
        """op^r, operators per predicate."""
        return self.op / self.p

    @property
    def r_p(self) -> float:
        return 0.0 if self.p_u is None else 1.0 - self.p_u / (self.p * self.s)

    @property
    def s_r(self) -> float:
        """s^r, the share of the conjunctions that contain a predicate."""
        return self.s_p / self.S_s

    def counting(self, *, unsubscription: bool = True) -> float:
        """Bytes of the counting approach, (1); (2) with fast unsubscription."""
        association = self.s_p * self.p
        return self.s * (
            2 * self.S_s + self.w_s * association + (self.w_p * association if unsubscription else 0)
        )

    def cluster(self, *, unsubscription: bool = True) -> float:
        """Bytes of the cluster approach, (3); (4) with fast unsubscription."""
        association = self.s_p * self.p
        more = self.S_s * self.w_c + association * self.w_s if unsubscription else 0
        return self.s * (self.S_s * self.w_s + association * self.w_p + more)

    def noncanonical(self) -> float:
        """Bytes of the non-canonical approach, (5)."""
        return self.s * (self.w_p * self.p + self.p + 2 * self.op + self.w_l + self.p * self.w_s + 2)

    def turning_point(self, approach: str, *, unsubscription: bool = True) -> float:
        """S_s from which the tree takes less memory: (11), (12) for `counting`, (13), (14) for `cluster`;
        with 4-byte ids."""
        base = {("counting", False): (2, 4), ("counting", True): (2, 8)}
        base |= {("cluster", False): (4, 4), ("cluster", True): (8, 8)}
        fixed, each = base[approach, unsubscription]
        return (self.p * (2 * self.op_r + 9) + 6) / (fixed + each * self.s_r * self.p)


def parameters_of(expression: Expression) -> Parameters:
    """|p|, |op|, S_s and s_p of a filter, exact, in linear time."""
    predicates, operators, conjunctions, tests = _counted(expression)
    return Parameters(
        predicates, operators, _float(conjunctions), _float(tests) / predicates if predicates else 0.0
    )


def conjunction_count(expression: Expression) -> int:
    """S_s, the number of conjunctions of the normal form, in linear time."""
    return _counted(expression)[2]


def _counted(expression: Expression) -> tuple[int, int, int, int]:
    """The numbers of predicates, operators, conjunctions of the normal form, and predicates in these."""
    if not isinstance(expression, And | Or):
        return 1, 0, 1, 1
    parts = [_counted(part) for part in expression.parts]
    predicates, operators = sum(part[0] for part in parts), 1 + sum(part[1] for part in parts)
    if isinstance(expression, Or):
        return predicates, operators, sum(part[2] for part in parts), sum(part[3] for part in parts)
    conjunctions, tests = 1, 0
    for _, _, of_part, in_part in parts:
        conjunctions, tests = conjunctions * of_part, tests * of_part + in_part * conjunctions
    return predicates, operators, conjunctions, tests


def _float(count: int) -> float:
    return float(count) if count < 1 << 1000 else float("inf")


# --- ours -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """Per subscription: bytes, and nanoseconds per event."""

    bytes: float
    ns: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter's costs in both forms; `normal_form` is None if it is over a cap."""

    conjunctions: int
    normal_form: Cost | None
    tree: Cost

    @property
    def is_tree(self) -> bool:
        normal, tree = self.normal_form, self.tree
        return normal is None or tree.bytes * (tree.ns + FLOOR) < normal.bytes * (normal.ns + FLOOR)

    @property
    def reason(self) -> str:
        count = (
            f"{self.conjunctions:,} conjunctions" if self.conjunctions < 1 << 40 else "over 2^40 conjunctions"
        )
        tree = f"the tree {_size(self.tree)}"
        if self.normal_form is None:
            return f"matched as a tree: its normal form of {count} is over the bound, {tree}"
        if self.is_tree:
            return f"matched as a tree: {count} would take {_size(self.normal_form)}, {tree}"
        return f"matched in normal form: {count} take {_size(self.normal_form)}, {tree}"


def _size(cost: Cost) -> str:
    size = f"{cost.bytes / 1024:.1f} KB" if cost.bytes >= 1024 else f"{cost.bytes:.0f} B"
    return f"{size} and {cost.ns:.2g} ns per event"


def normal_form(boxes: Iterable[BoxPlan], kinds: dict[int, Kind], passed: Passed) -> Cost:
    rows = [_row(_columns(box), kinds, passed, range(box.size)) for box in boxes]
    return Cost(sum(row.bytes for row in rows), sum(row.ns for row in rows))


def tree(words: Sequence[int], leaves: BoxPlan, kinds: dict[int, Kind], passed: Passed) -> Cost:
    """The cost of a tree: its words as in `tree_plan.py`, and its leaves as the tests of a box."""
    tested = _columns(leaves)
    parts = [passed(shape, column) for column, shape in tested]
    access = access_rows(words, parts)
    rows = [_row(tested, kinds, passed, row) for row in access.rows]
    looked_at, _, _ = _looked_at(words, 0, parts)
    bounds = sum(16 if shape == Shape.BOTH else 8 for _, shape in tested)
    return Cost(
        TREE + bounds + sum(row.bytes for row in rows),
        sum(row.ns for row in rows) + access.passed * (EVALUATE + LEAF * looked_at),
    )


def _columns(box: BoxPlan) -> list[tuple[int, Shape]]:
    """(column, shape) of each test; -1 for the columns of texts, which are derived."""
    columns = [*box.columns, *[-1] * (box.size - len(box.columns))]
    return list(zip(columns, box.shapes, strict=True))


def _row(
    tested: Sequence[tuple[int, Shape]], kinds: dict[int, Kind], passed: Passed, chosen: Iterable[int]
) -> Cost:
    tests = [tested[number] for number in chosen]
    size = sum(_width(kinds.get(column), shape) for column, shape in tests)
    parts = [passed(shape, column) for column, shape in tests]
    equal = sorted(part for part, (_, shape) in zip(parts, tests, strict=True) if shape == Shape.EQUAL)[
        :HASHED
    ]
    if equal:
        reached = prod(equal)
        return Cost(HASHED_ROW + size, SEARCH / 4 + reached * CHECK)
    return Cost(ROW + size, SEARCH + COMBINE * len(tests) + prod(parts) * RECORD)


def _width(kind: Kind | None, shape: Shape) -> int:
    """Bytes of a test's bounds; integers and strings usually fit in four."""
    width = 8 if kind in (Kind.FLOAT64, Kind.TIMESTAMP) else 1 if kind is Kind.BOOL else 4
    return 2 * width if shape == Shape.BOTH else width


def _looked_at(words: Sequence[int], at: int, passed: Sequence[float]) -> tuple[float, float, int]:
    """For the node at a word: the expected number of leaves visited, its probability, and the next word."""
    word = words[at]
    at += 1
    if word >= 0:
        return 1.0, passed[word], at
    node = -1 - word
    end, is_or = at + (node >> 1), node & 1
    leaves, going = 0.0, 1.0
    while at < end:
        more, part, at = _looked_at(words, at, passed)
        leaves += going * more
        going *= 1 - part if is_or else part
    return leaves, 1 - going if is_or else going, at
