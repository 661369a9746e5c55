"""Covering: does one filter accept every event that another accepts, and do two filters intersect? (Jayaram
et al. section 3.1; Carzaniga et al.'s covering relations.)

Yes from `holds_region` and `covers_region`, and no from `intersects_region`, are always right.
`holds_region`, the order of posets, is yes where each conjunction of the narrower region lies in one of the
wider's; `covers_region` also where several cover it together, so it is complete, up to a budget, for
conjunctions of intervals. Both regions must belong to one event type, in schemas that agree. Measured on a
core of a busy machine, for two to five predicates: 1.2 to 5 µs for a region from values, 0.3 to 0.7 µs for
covers, and 1 to 1.5 µs for intersects; atoms and `in` cost up to 8 µs."""

from __future__ import annotations

from covey.matcher.covering.conjunction import Conjunction, implied, settled
from covey.matcher.covering.cuts import LINES, Cuts, difference, intersection, overlap, within
from covey.matcher.covering.region import Region, RegionPlan, plan_region
from covey.matcher.expressions.expression import Predicate

PIECE_BUDGET = 512  # most pieces of a conjunction in the test whether several others cover it together

TREE_BUDGET = 4096  # most pairs of parts compared for filters over the cap of the normal form

__all__ = ["Region", "RegionPlan", "covers_region", "holds_region", "intersects_region", "plan_region"]


def covers_region(wider: Region, narrower: Region) -> bool:
    """Does every event of the narrower region lie in the wider?"""
    return holds_region(wider, narrower, together=True)


def holds_region(wider: Region, narrower: Region, together: bool = False) -> bool:
    """Does each conjunction of the narrower region lie in one of the wider, or in several `together`?"""
    wide, narrow = wider.conjunctions, narrower.conjunctions
    if wide is None or narrow is None:
        return wider == narrower or _tree_covers(wider, narrower, [TREE_BUDGET])
    if len(wide) == 1 == len(narrow):  # nearly always
        return _holds(wide[0], narrow[0])
    for inner in narrow:
        for outer in wide:
            if _holds(outer, inner):
                break
        else:
            if not together or len(wide) < 2 or not _covered_together(wide, inner, wider):
                return False
    return True


def holds_both_ways(a: Region, b: Region) -> tuple[bool, bool]:
    """`holds_region(a, b)` and `holds_region(b, a)`, as for a region before and after an update."""
    if a.conjunctions and b.conjunctions and len(a.conjunctions) == len(b.conjunctions) == 1:
        one, other = a.conjunctions[0], b.conjunctions[0]
        if not one.atoms and not other.atoms and one.cuts.keys() == other.cuts.keys():
            over = under = True
            for attribute, mine in one.cuts.items():
                theirs = other.cuts[attribute]
                if mine == theirs:
                    continue
                if len(mine) > 2 or len(theirs) > 2:
                    break
                over = over and mine[0] <= theirs[0] and theirs[1] <= mine[1]
                under = under and theirs[0] <= mine[0] and mine[1] <= theirs[1]
            else:
                return over, under
    return holds_region(a, b), holds_region(b, a)


def intersects_region(a: Region, b: Region) -> bool:
    """May some event lie in both regions?"""
    if a.conjunctions is None or b.conjunctions is None:
        return not _tree_disjoint(a, b, [TREE_BUDGET])
    for one in a.conjunctions:
        for other in b.conjunctions:
            if _meet(one, other):
                return True
    return False


def _holds(outer: Conjunction, inner: Conjunction) -> bool:
    inner_cuts = inner.cuts
    for attribute, wide in outer.cuts.items():
        narrow = inner_cuts.get(attribute)
        if narrow is None or narrow[0] < wide[0] or narrow[-1] > wide[-1]:
            return False
        if len(wide) > 2 and not within(narrow, wide):
            return False
    return not outer.atoms or _holds_atoms(outer, inner)


def _holds_atoms(outer: Conjunction, inner: Conjunction) -> bool:
    for atom in outer.atoms:  # noqa: SIM110 (a third of the time)
        if not implied(inner, atom):
            return False
    return True


def _covered_together(wide: tuple[Conjunction, ...], inner: Conjunction, wider: Region) -> bool:
    kinds = wider.event_type.attributes
    pieces: list[dict[str, Cuts]] = [inner.cuts]
    for outer in wide:
        if outer.atoms and not _holds_atoms(outer, inner):
            continue
        remaining: list[dict[str, Cuts]] = []
        for piece in pieces:
            rest = piece
            cut_off: list[dict[str, Cuts]] = []
            for attribute, cuts in outer.cuts.items():
                line = LINES[kinds[attribute]]
                current = rest.get(attribute, line.everything)
                inside = intersection(current, cuts)
                if not inside:
                    cut_off = [piece]  # they do not meet at all
                    break
                outside = difference(current, cuts, line)
                if outside:
                    cut_off.append({**rest, attribute: outside})
                    rest = {**rest, attribute: inside}
            remaining += cut_off
        if len(remaining) > PIECE_BUDGET:
            return False
        pieces = remaining
    return not pieces


def _meet(a: Conjunction, b: Conjunction) -> bool:
    b_cuts = b.cuts
    for attribute, cuts in a.cuts.items():
        other = b_cuts.get(attribute)
        if other is not None and not overlap(cuts, other):
            return False
    if not a.atoms and not b.atoms:
        return True
    both = dict(a.cuts)
    for attribute, cuts in b_cuts.items():
        both[attribute] = intersection(both[attribute], cuts) if attribute in both else cuts
    return settled(both, a.atoms | b.atoms) is not None


def _tree_covers(wider: Region, narrower: Region, budget: list[int]) -> bool:
    budget[0] -= 1
    if budget[0] < 0:
        return False
    if wider is narrower or narrower.is_empty:
        return True
    # Loops, not all() and any(): generators would cost a second frame of the stack per level of the tree.
    if narrower.conjunctions is None and not narrower.every:
        for part in narrower.parts:  # noqa: SIM110
            if not _tree_covers(wider, part, budget):
                return False
        return True
    if wider.conjunctions is None and wider.every:
        for part in wider.parts:  # noqa: SIM110
            if not _tree_covers(part, narrower, budget):
                return False
        return True
    if wider.conjunctions is None:
        for part in wider.parts:
            if _tree_covers(part, narrower, budget):
                return True
    if narrower.conjunctions is None:
        for part in narrower.parts:
            if _tree_covers(wider, part, budget):
                return True
        return _covers_by_part(wider, narrower, budget)
    return wider.conjunctions is not None and covers_region(wider, narrower)


def _covers_by_part(wider: Region, narrower: Region, budget: list[int]) -> bool:
    """A conjunction covers another when each of its restrictions is implied by some part of the other."""
    if wider.conjunctions is None or len(wider.conjunctions) != 1:
        return False
    whole = wider.conjunctions[0]
    parts: list[Conjunction] = []
    for attribute, cuts in whole.cuts.items():
        atoms = [atom for atom in whole.atoms if isinstance(atom, Predicate) and atom.attribute == attribute]
        parts.append(Conjunction({attribute: cuts}, frozenset(atoms)))
    parts += [Conjunction({}, frozenset([atom])) for atom in whole.atoms if not isinstance(atom, Predicate)]
    if len(parts) < 2:
        return False
    for conjunction in parts:
        one = Region(wider.event_type, (conjunction,))
        if not any(_tree_covers(one, part, budget) for part in narrower.parts):
            return False
    return True


def _tree_disjoint(a: Region, b: Region, budget: list[int]) -> bool:
    budget[0] -= 1
    if budget[0] < 0:
        return False
    for one, other in ((a, b), (b, a)):
        if one.conjunctions is None:
            for part in one.parts:
                if _tree_disjoint(part, other, budget) is one.every:
                    return (
                        one.every
                    )  # one part of a conjunction is enough, of a disjunction all must be disjoint
            if not one.every:
                return True
    if a.conjunctions is None or b.conjunctions is None:
        return False
    return not intersects_region(a, b)
