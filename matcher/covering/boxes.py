"""Boxes: the disjunctive normal form of a filter, with at most one test per attribute in a conjunction.

Engines compile boxes. A filter matches an event exactly when all parts of one of its boxes hold. Boxes that
are empty for all values of variables are omitted; `()` matches nothing, `((),)` everything. The form can be
exponentially longer than the filter: over the cap there are no boxes, and engines match the tree itself
(Bittner and Hinze 2005)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import nan

from covey.matcher.covering.cuts import LINES, Cut
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.expression import (
    And,
    Constant,
    Expression,
    Leaf,
    Operand,
    Or,
    Predicate,
    Scalar,
    leaves,
)
from covey.matcher.expressions.operators import SPECS, Interval, Operator, Syntax, prefix_span

# --- parts of predicates --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of an interval, excluded if `strict`; if `past`, the least string above all beginning with the
    operand."""

    operand: Operand
    strict: bool
    past: bool = False


@dataclass(frozen=True, slots=True)
class Test:
    """`lower <= attribute <= upper` in the order of the attribute's kind; all bounds must hold.

    Equality is the same bound, not strict, on both sides. A side without bounds includes infinity, but NaN
    lies in no interval. Without bounds the test is `exists`, which NaN passes; with `nan` it is "exactly
    NaN"."""

    __test__ = False  # not for pytest

    attribute: str
    lower: tuple[Bound, ...] = ()
    upper: tuple[Bound, ...] = ()
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """`not exists(attribute)`."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Members:
    """The constants of a long list, each once."""

    value: tuple[Scalar, ...]


PartOperand = Operand | Members


@dataclass(frozen=True, slots=True)
class Text:
    """The attribute is present, and `attribute operator operand` is `expected`; the operator is SUFFIX or
    CONTAINS, on a string, or IN, whose operand is `Members`."""

    attribute: str
    operator: Operator
    operand: PartOperand
    expected: bool

    def decides(self, value: Scalar) -> bool | None:
        """Whether a value passes; None if the operand is a variable."""
        if isinstance(self.operand, Members):
            return (value in self.operand.value) is self.expected
        if not isinstance(self.operand, Constant):
            return None
        return passes(self.operator, value, [self.operand.value]) is self.expected


Part = Test | Absent | Text

Alternatives = list[tuple[Part, ...]]


def members_of(predicate: Predicate, most: int) -> Members | None:
    """The constants of an `in` or `not in`, if there are more than `most` and no variables."""
    if SPECS[predicate.operator].syntax is not Syntax.LIST or len(predicate.operands) <= most:
        return None
    constants = [operand.value for operand in predicate.operands if isinstance(operand, Constant)]
    if len(constants) < len(predicate.operands):
        return None
    return Members(tuple(dict.fromkeys(constants)))


def requirements(predicate: Predicate, kind: Kind) -> list[Alternatives]:
    """The predicate holds where each requirement has an alternative that holds. A test has at most one bound
    a side."""
    attribute, operands, spec = predicate.attribute, predicate.operands, SPECS[predicate.operator]
    if spec.presence is not None:
        return [[(Test(attribute) if spec.presence else Absent(attribute),)]]
    if spec.outside:
        unlike = [_unlike(attribute, kind, spec.complement, operand) for operand in dict.fromkeys(operands)]
        return unlike or [[(Test(attribute),)]]
    if spec.span is not None:
        (operand,) = operands
        return [[(Test(attribute, (Bound(operand, False),), (Bound(operand, True, past=True),)),)]]
    if spec.is_text:
        return [[(Text(attribute, predicate.operator, operands[0], True),)]]
    groups = [operands] if spec.operand_count else [(operand,) for operand in dict.fromkeys(operands)]
    return [[_within(attribute, each, group) for group in groups for each in spec.intervals]]


def _unlike(attribute: str, kind: Kind, operator: Operator, operand: Operand) -> Alternatives:
    """The values that are present and fail an operator: a point, a prefix, or a text."""
    if SPECS[operator].is_text:
        return [(Text(attribute, operator, operand, False),)]
    above = Bound(operand, True) if SPECS[operator].is_point else Bound(operand, False, past=True)
    either: Alternatives = [(Test(attribute, (), (Bound(operand, True),)),), (Test(attribute, (above,), ()),)]
    return [*either, (Test(attribute, nan=True),)] if kind is Kind.FLOAT64 else either


def _within(attribute: str, interval: Interval, operands: tuple[Operand, ...]) -> tuple[Part, ...]:
    low, high = interval
    lower = () if low is None else (Bound(operands[low.operand], low.after),)
    upper = () if high is None else (Bound(operands[high.operand], not high.after),)
    return (Test(attribute, lower, upper),)


# --- normal forms ---------------------------------------------------------------------------------


CONJUNCTION_CAP = 64  # of a normal form

PREDICATE_CAP = 4096  # predicates of a normal form; operands count as predicates


Box = tuple[Part, ...]
Forms = tuple[tuple[Leaf, ...], ...]


def conjunctions(expression: Expression, cache: dict[int, Forms | None] | None = None) -> Forms | None:
    """The disjunctive normal form over the leaves; None over a cap. `cache` has the forms of sub-expressions
    by `id`, for callers that need several."""
    if not isinstance(expression, (And, Or)):
        return ((expression,),)
    cache = {} if cache is None else cache
    if id(expression) in cache:
        return cache[id(expression)]
    cache[id(expression)] = None
    product = isinstance(expression, And)
    forms: list[tuple[Leaf, ...]] = [()] if product else []
    single: list[Leaf] = []
    for part in expression.parts:
        if product and not isinstance(part, (And, Or)):
            single.append(part)
            continue
        inner = conjunctions(part, cache)
        if inner is None or _too_long(inner):
            return None
        forms = [before + after for before in forms for after in inner] if product else [*forms, *inner]
        if len(forms) > CONJUNCTION_CAP or _too_long(forms):
            return None
    joined = tuple([tuple(single) + others for others in forms])
    cache[id(expression)] = joined
    return joined


def _too_long(forms: Iterable[tuple[Leaf, ...]]) -> bool:
    lengths = [len(form) for form in forms]
    return len(lengths) > 1 and sum(lengths) > PREDICATE_CAP


def _size(expression: Expression) -> int:
    predicates = [leaf for leaf in leaves(expression) if isinstance(leaf, Predicate)]
    return sum([2 if members_of(p, CONJUNCTION_CAP) else 1 + len(p.operands) for p in predicates])


def boxes_of(event_type: EventType, expression: Expression) -> tuple[Box, ...] | None:
    """The boxes of a checked expression, or None over a cap. Lists of more constants than the cap are sets;
    if there are still too many boxes, all lists of constants are."""
    if _size(expression) > PREDICATE_CAP:
        return None
    boxes = _boxes_of(event_type, expression, CONJUNCTION_CAP)
    return _boxes_of(event_type, expression, 1) if boxes is None else boxes


def _boxes_of(event_type: EventType, expression: Expression, longest: int) -> tuple[Box, ...] | None:
    forms = conjunctions(expression)
    if forms is None:
        return None
    boxes: dict[Box, None] = {}
    for form in forms:
        form_boxes = _boxes(event_type, form, longest)
        if form_boxes is None:
            return None
        if len(forms) == 1 and len(form_boxes) == 1:
            return (form_boxes[0],)
        boxes.update(dict.fromkeys(form_boxes))
        if len(boxes) > CONJUNCTION_CAP:
            return None
    return tuple(boxes)


def _boxes(event_type: EventType, form: Iterable[Leaf], longest: int) -> list[Box] | None:
    open_boxes: list[_BoxBuilder] = [_BoxBuilder(event_type)]
    # Predicates with one alternative first: they show contradictions before boxes multiply.
    kinds = event_type.attributes
    predicates = [leaf for leaf in form if isinstance(leaf, Predicate)]  # all leaves of a gate
    choices = [_alternatives(predicate, kinds[predicate.attribute], longest) for predicate in predicates]
    for choice in sorted(choices, key=len):
        grown: list[_BoxBuilder] = []
        for i, alternative in enumerate(choice):
            last = i == len(choice) - 1
            for box in open_boxes:
                extended = box if last else box.copy()
                if extended.add(alternative):
                    grown.append(extended)
            if len(grown) > CONJUNCTION_CAP:
                return None
        open_boxes = grown
    return [box.done() for box in open_boxes]


def _alternatives(predicate: Predicate, kind: Kind, longest: int) -> list[tuple[Part, ...]]:
    spec = SPECS[predicate.operator]
    members = members_of(predicate, longest)
    if members is not None:
        return [(Text(predicate.attribute, Operator.IN, members, not spec.outside),)]
    if spec.outside and SPECS[spec.complement].is_point:
        return _gaps(predicate.attribute, kind, tuple(dict.fromkeys(predicate.operands)))
    (alternatives,) = requirements(predicate, kind)
    return alternatives


def _gaps(attribute: str, kind: Kind, operands: tuple[Operand, ...]) -> list[tuple[Part, ...]]:
    """The values unlike all operands: the gaps between constants, and both sides of every variable."""
    if not operands:
        return [(Test(attribute),)]
    constants = [operand for operand in operands if isinstance(operand, Constant)]
    line = LINES[kind]  # of 0.5 and 1, on integers, both cut before 1
    constants.sort(key=lambda constant: (line.before(constant.value), line.after(constant.value)))
    ends: list[Operand | None] = [None, *constants, None]
    gaps = [
        Test(
            attribute,
            () if low is None else (Bound(low, True),),
            () if high is None else (Bound(high, True),),
        )
        for low, high in pairwise(ends)
        if low is not None or high is not None
    ]
    for operand in operands:
        if not isinstance(operand, Constant):
            bound = (Bound(operand, True),)
            gaps = [
                Test(attribute, low, high)
                for gap in gaps or [Test(attribute)]
                for low, high in ((gap.lower, gap.upper + bound), (gap.lower + bound, gap.upper))
            ]
            if len(gaps) > CONJUNCTION_CAP:
                break  # over the cap whatever follows
    if kind is Kind.FLOAT64:
        gaps.append(Test(attribute, nan=True))
    return [(gap,) for gap in gaps]


class _BoxBuilder:
    __slots__ = ("absent", "event_type", "tests", "texts")

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self.tests: dict[str, Test] = {}
        self.texts: dict[str, dict[Text, None]] = {}
        self.absent: dict[str, None] = {}

    def copy(self) -> _BoxBuilder:
        builder = _BoxBuilder(self.event_type)
        builder.tests = dict(self.tests)
        builder.texts = {attribute: dict(texts) for attribute, texts in self.texts.items()}
        builder.absent = dict(self.absent)
        return builder

    def add(self, parts: tuple[Part, ...]) -> bool:
        return all(self._add(part) for part in parts)

    def _add(self, part: Part) -> bool:
        attribute = part.attribute
        if isinstance(part, Absent):
            self.absent[attribute] = None
            return attribute not in self.tests and attribute not in self.texts
        if attribute in self.absent:
            return False
        if isinstance(part, Text):
            texts = self.texts.setdefault(attribute, {})
            texts[part] = None
            if Text(attribute, part.operator, part.operand, not part.expected) in texts:
                return False
        else:
            test = self.tests.get(attribute)
            joined: Test | None = part
            if test is not None or not _is_open(part):
                joined = _joined(test or part, part, self.event_type.attributes[attribute])
            if joined is None:
                return False
            self.tests[attribute] = joined
        return self._settle_texts(attribute)

    def _settle_texts(self, attribute: str) -> bool:
        test, texts = self.tests.get(attribute), self.texts.get(attribute)
        if test is None or texts is None:
            return True
        equal = [bound.operand for bound in test.lower if bound in test.upper and not bound.strict]
        known = [operand.value for operand in equal if isinstance(operand, Constant)]
        if test.nan:
            known = [nan]
        elif not test.lower and not test.upper:
            del self.tests[attribute]  # a text requires presence itself
            return True
        if not known:
            return True
        for text in list(texts):
            decision = text.decides(known[0])
            if decision is False:
                return False
            if decision:
                del texts[text]
        if not texts:
            del self.texts[attribute]
        return True

    def done(self) -> Box:
        parts: list[Part] = []
        for attribute in sorted({**self.tests, **self.texts, **self.absent}, key=self.event_type.index):
            if attribute in self.tests:
                parts.append(self.tests[attribute])
            if attribute in self.absent:
                parts.append(Absent(attribute))
            parts.extend(self.texts.get(attribute, ()))
        return tuple(parts)


def _is_open(test: Test) -> bool:
    if test.nan or len(test.lower) > 1 or len(test.upper) > 1:
        return False
    return not any(isinstance(bound.operand, Constant) for bound in (*test.lower, *test.upper))


def _joined(a: Test, b: Test, kind: Kind) -> Test | None:
    if not (a.lower or a.upper or a.nan):
        return b
    if not (b.lower or b.upper or b.nan):
        return a
    if a.nan or b.nan:
        return a if a.nan and b.nan else None
    lower, low = _tightest(a.lower, b.lower, kind, True)
    upper, high = _tightest(a.upper, b.upper, kind, False)
    return Test(a.attribute, lower, upper) if low < high else None


def _tightest(
    a: tuple[Bound, ...], b: tuple[Bound, ...], kind: Kind, lower: bool
) -> tuple[tuple[Bound, ...], Cut]:
    """The bounds of both, with only the tightest of the constants; and its cut."""
    line = LINES[kind]
    kept: dict[Bound, None] = {}
    best: Bound | None = None
    cut = line.low if lower else line.top
    for bound in (*a, *b):
        operand = bound.operand
        if not isinstance(operand, Constant):
            kept[bound] = None
            continue
        value = operand.value if not bound.past else prefix_span(str(operand.value))[1]
        if value is None:
            here = line.top
        else:
            here = line.after(value) if bound.strict is lower else line.before(value)
        if best is None or (here > cut if lower else here < cut):
            best, cut = bound, here
    return tuple(kept) if best is None else (best, *kept), cut
