"""Conjunctions: intervals per attribute, and atoms for everything else. Regions consist of them.

An *atom* has no cut points: the predicates `suffix` and `contains`, predicates with a variable without a
value, and calls (`call_atoms.py`). A predicate's atom is implied by itself, a longer text, or a single string
that satisfies it; nothing else is tried. Invariant of `settled` conjunctions: every attribute of an atom has
cuts without absence, and no atom is left that cuts of single strings decide."""

from __future__ import annotations

from covey.matcher.covering.call_atoms import CallAtom, Joint, Whole, implies_call, implies_joint
from covey.matcher.covering.cuts import Cut, Cuts, only_string
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.expression import Constant, Predicate
from covey.matcher.expressions.operators import OPAQUE, SPECS, Operator

Atom = Predicate | CallAtom | Joint | Whole

_NO_ATOMS: frozenset[Atom] = frozenset()

FEW_ATOMS = 64  # above, each is compared only with its equals: pairs would cost too much


class Conjunction:
    """`cuts[attribute]` contains the attribute's value, and every atom is true. Immutable."""

    __slots__ = ("atoms", "cuts")

    def __init__(self, cuts: dict[str, Cuts], atoms: frozenset[Atom] = _NO_ATOMS) -> None:
        self.cuts = cuts
        self.atoms = atoms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conjunction) and self.cuts == other.cuts and self.atoms == other.atoms

    def __hash__(self) -> int:
        return hash((frozenset(self.cuts.items()), self.atoms))


def settled(cuts: dict[str, Cuts], atoms: frozenset[Atom]) -> Conjunction | None:
    """The conjunction of cuts and atoms, as far as possible as cuts alone; None when it is empty."""
    cuts = dict(cuts)
    kept: list[Predicate] = []
    calls: list[CallAtom] = []
    others: list[Atom] = []
    for atom in atoms:
        if not isinstance(atom, Predicate):
            if isinstance(atom, CallAtom):
                calls.append(atom)
            else:
                others.append(atom)
            continue
        text = text_of(atom)
        if text is None:
            kept.append(atom)
            continue
        strings = passing(cuts[atom.attribute], atom, text)
        if strings == ():
            return None
        if strings is not None:
            cuts[atom.attribute] = strings
        elif text:
            kept.append(atom)
        elif SPECS[atom.operator].outside:
            return None  # every string ends with the empty one, and contains it
    kept_atoms: frozenset[Atom] = frozenset(kept)
    for atom in kept:
        negated = atom.negated()
        if negated in kept_atoms or (
            len(kept) <= FEW_ATOMS and any(implies(other, negated) for other in kept)
        ):
            return None
    if len(kept) < len(atoms):
        if len(calls) > 1 and _contradict(calls):
            return None
        kept_atoms = frozenset((*kept, *calls, *others))
    return Conjunction(cuts, kept_atoms)


def _contradict(calls: list[CallAtom]) -> bool:
    refuted = [call.negated() for call in calls if not call.expected]
    if not refuted or len(calls) > FEW_ATOMS:
        return False
    return any(implies_call(call, other) for call in calls if call.expected for other in refuted)


def implied(inner: Conjunction, atom: Atom) -> bool:
    """Is an atom true wherever a conjunction is? False if a simple comparison does not show it."""
    if isinstance(atom, Predicate):
        return atom in inner.atoms or _implied_predicate(inner, atom)
    if isinstance(atom, CallAtom):
        if len(inner.atoms) > FEW_ATOMS:
            return atom in inner.atoms and implies_call(atom, atom)
        return any(isinstance(other, CallAtom) and implies_call(other, atom) for other in inner.atoms)
    if isinstance(atom, Joint):
        return implies_joint([other for other in inner.atoms if isinstance(other, Joint)], atom)
    return not atom.is_stateful and atom in inner.atoms


def _implied_predicate(inner: Conjunction, atom: Predicate) -> bool:
    text = text_of(atom)
    if text == "" and not SPECS[atom.operator].outside:
        return atom.attribute in inner.cuts
    cuts = inner.cuts.get(atom.attribute)
    if text is not None and cuts is not None and passing(cuts, atom, text) == cuts:
        return True
    if len(inner.atoms) > FEW_ATOMS:
        return False
    return any(isinstance(other, Predicate) and implies(other, atom) for other in inner.atoms)


def text_of(atom: Predicate) -> str | None:
    """The constant of a suffix or contains atom; None for other atoms."""
    if atom.operator in OPAQUE:
        operand = atom.operands[0]
        if isinstance(operand, Constant) and isinstance(operand.value, str):
            return operand.value
    return None


def passing(cuts: Cuts, atom: Predicate, text: str) -> Cuts | None:
    """The cuts of the strings that pass the atom; None if the cuts contain more than single strings."""
    passed: list[Cut] = []
    for i in range(0, len(cuts), 2):
        string = only_string(cuts, i)
        if string is None:
            return None
        if passes(atom.operator, string, [text]):
            passed += (cuts[i], cuts[i + 1])
    return tuple(passed)


def implies(a: Predicate, b: Predicate) -> bool:
    """Is atom b true wherever atom a is? False if a simple comparison does not show it."""
    if a == b:
        return True
    if a.attribute != b.attribute:
        return False
    s, t = text_of(a), text_of(b)
    if s is None or t is None:
        return a.operands == b.operands and b.operator in SPECS[a.operator].weaker
    outside = SPECS[a.operator].outside
    if outside is not SPECS[b.operator].outside:
        return False
    if outside:
        return _text_implies(b.operator.complement, t, a.operator.complement, s)
    return _text_implies(a.operator, s, b.operator, t)


def _text_implies(a: Operator, s: str, b: Operator, t: str) -> bool:
    return (a is b or b in SPECS[a].weaker) and passes(b, s, [t])
