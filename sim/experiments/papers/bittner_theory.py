"""Bittner and Hinze 2005, sections 4 and 5: their equations, beside the engines' own accounting. A *turning
point* is the S_s from which the tree takes less than the normal form. Figs. 4 to 6 draw it over |p| by the
inequalities 11 to 14; Table 2 lists the data structures. Here filters of these shapes are loaded, and the
bytes of the same tables are counted (`tables`), so nothing depends on the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covey.matcher.compile.form_model import Parameters
from covey.sim.experiments.papers.estimates import Estimate
from covey.sim.experiments.papers.measuring import memory_of
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan
from covey.sim.experiments.papers.verdicts import Claim, decide, extremes
from covey.sim.progress import Progress, parts
from covey.sim.reports import Bars, Curves
from covey.sim.workload import Boolean, Shape
from covey.sim.workload.boolean import branching

TREE = "noncanonical"
CANONICAL = ("counting", "cluster")
ENGINES = {"counting": "counting", "cluster": "propagation:lookahead=false", TREE: TREE}
"""The paper's algorithms; its cluster approach is Fabret's, with single access predicates."""
_UNCOUNTED = (
    *("predicates", "predicate hash", "predicate order", "strings"),
    *("rows", "id map", "plans, signatures and names"),
)
_FORWARD, _COUNTS, _BACK = "predicate-subscription table", "counts", "subscription-predicate table"
_CELLS = "clusters"
_APART = 1.1
"""Measured bytes are compared only where the equations differ by this factor."""


def parameters(shape: Shape) -> Parameters:
    """The paper's Table 1 for a shape, with 4 bytes for every identifier."""
    return Parameters(shape.predicates, shape.operators, shape.conjunctions, shape.shared)


def theory(shape: Shape, *, unsubscription: bool = True) -> dict[str, float]:
    """Bytes per subscription by the paper's equations 2, 4 and 5, or 1, 3 and 5 without unsubscription."""
    of = parameters(shape)
    return {
        "counting": of.counting(unsubscription=unsubscription),
        "cluster": of.cluster(unsubscription=unsubscription),
        TREE: of.noncanonical(),
    }


def tables(memory: Mapping[str, float]) -> float:
    """Bytes of the tables in the paper's equations: identifiers, counts, trees."""
    return sum(size for part, size in memory.items() if part not in _UNCOUNTED)


def crossing(points: list[tuple[float, float]], level: list[tuple[float, float]]) -> float | None:
    """The least x at which `points` exceed `level`, by linear interpolation; None if they never do."""
    before: tuple[float, float] | None = None
    for (x, y), (_, other) in zip(points, level, strict=True):
        above = y - other
        if above > 0:
            if before is None:
                return x
            return before[0] + (x - before[0]) * -before[1] / (above - before[1])
        before = (x, above)
    return None


@dataclass(frozen=True, slots=True)
class Loaded:
    shape: Shape
    memory: Mapping[str, Mapping[str, float]]

    def tables(self, *, unsubscription: bool) -> dict[str, float]:
        """Bytes by engine; without `unsubscription`, without the canonical ones' tables for it."""
        sizes = {name: tables(parts) for name, parts in self.memory.items()}
        for name in () if unsubscription else CANONICAL:
            sizes[name] -= self.memory[name][_BACK]
        return sizes


def load(plan: PaperPlan, progress: Progress) -> list[Loaded]:
    """Filters over the paper's |p|, S_s and, as near as these allow, s^r; each shape once."""
    count = plan.pick(100, 2_000, 20_000)
    sizes = plan.pick((6, 12), (10, 20, 30, 50), (5, 10, 20, 30, 40, 50))
    conjunctions = plan.pick((1, 2, 4), (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6, 7, 8))
    shapes = [branching(p, n, s_r) for p in sizes for s_r in SHARES for n in conjunctions if n <= p]
    loaded = []
    for inner, shape in parts(progress, [*dict.fromkeys(shapes)]):
        inner("loading", 0.0)
        memory = memory_of(Boolean(shape=shape), count, ENGINES, plan)
        each = {name: {part: size / count for part, size in of.items()} for name, of in memory.items()}
        loaded.append(Loaded(shape, each))
    return loaded


SHARES = (0.3, 0.5, 0.7)
"""The paper draws s^r from 0.3 to 0.7."""


def turning_points(loaded: list[Loaded]) -> list[PaperFinding]:
    """Figs. 4 to 6."""
    worst = (
        "op^r = 1, the worst case of the tree, is more operators than any filter here has, so its turning "
        "points are upper bounds: only filters beyond them are judged, so that it is 'at most'."
    )
    return [
        _turning_points(
            "Fig. 4",
            "turning point over |p|, without fast unsubscription, op^r = 1",
            "Counting needs more conjunctions than cluster before the tree is smaller, where predicates are "
            "few; with 50 predicates both about 4.0 at s^r = 0.7, and more the smaller s^r is.",
            loaded,
            1.0,
            worst,
            unsubscription=False,
        ),
        _turning_points(
            "Fig. 5",
            "turning point over |p|, with fast unsubscription, op^r = 1",
            "About 2.0 for counting and below it for cluster at s^r = 0.7: one `or` suffices.",
            loaded,
            1.0,
            worst,
        ),
        _turning_points(
            "Fig. 6",
            "turning point over |p|, with fast unsubscription, op^r = 0.5",
            "Below 2.0 at s^r = 0.7, and lower than in Fig. 5 everywhere.",
            loaded,
            0.5,
            "Filters on either side of their turning point are judged, by their own op^r.",
        ),
    ]


def _turning_points(
    figure: str,
    title: str,
    claim: str,
    loaded: list[Loaded],
    op_r: float,
    judged: str,
    *,
    unsubscription: bool = True,
) -> PaperFinding:
    drawn: dict[str, list[tuple[float, float]]] = {}
    rows: list[dict[str, Cell]] = []
    for p in dict.fromkeys(each.shape.predicates for each in loaded):
        for s_r in SHARES:
            row: dict[str, Cell] = {"|p|": p, "s^r": s_r}
            here = _crossings([each for each in loaded if each.shape.predicates == p], s_r, unsubscription)
            for name in CANONICAL:
                by_equation = Parameters(p, op_r * p, 1, s_r).turning_point(
                    name, unsubscription=unsubscription
                )
                row |= {f"{name}, paper": round(by_equation, 2), f"{name}, here": here[name]}
                if s_r != SHARES[1]:
                    drawn.setdefault(f"{name}, s^r {s_r:g}", []).append((p, by_equation))
            rows.append(row)
    effects = _on_its_side(loaded, op_r, unsubscription)
    return PaperFinding(
        figure,
        title,
        f"{claim} By inequalities {'12 and 14' if unsubscription else '11 and 13'}.",
        f"At and around the turning points of the equations, so many times the smaller side's bytes: "
        f"{extremes(effects)}, over {len(effects)} filters. {judged} S_s here is interpolated between "
        "filters of this s^r; it is empty where the normal form is smaller at every size.",
        decide(Claim(), [*effects.values()]),
        rows,
        Curves("predicates per subscription, |p|", "S_s from which the tree is smaller", drawn),
    )


def _crossings(loaded: list[Loaded], s_r: float, unsubscription: bool) -> dict[str, Cell]:
    """By engine, the S_s from which the tree is smaller, for filters of one |p|."""
    near = [each for each in loaded if abs(each.shape.shared / each.shape.conjunctions - s_r) < 0.06]
    sizes = [(each.shape.conjunctions, each.tables(unsubscription=unsubscription)) for each in near]
    points = {name: [(float(n), of[name]) for n, of in sizes] for name in ENGINES}
    found: dict[str, Cell] = {}
    for name in CANONICAL:
        x = crossing(points[name], points[TREE]) if len(near) > 1 else None
        found[name] = x and (f"at most {x:g}" if x == points[name][0][0] else round(x, 2))
    return found


def _on_its_side(loaded: list[Loaded], op_r: float, unsubscription: bool) -> dict[str, Estimate | None]:
    """The other side's bytes as a multiple of the smaller side's, where the equations differ clearly."""
    effects: dict[str, Estimate | None] = {}
    for each in loaded:
        shape, here = each.shape, each.tables(unsubscription=unsubscription)
        drawn = Parameters(shape.predicates, op_r * shape.predicates, shape.conjunctions, shape.shared)
        own = theory(shape, unsubscription=unsubscription)
        bound = max(own[TREE], drawn.noncanonical())
        for name in CANONICAL:
            s_r = shape.shared / shape.conjunctions
            place = f"{name}, |p| {shape.predicates}, s^r {s_r:.2f}, S_s {shape.conjunctions}"
            if own[name] > _APART * bound:
                effects[place] = Estimate.exact(here[name] / here[TREE])
            elif op_r < 1 and own[name] * _APART < own[TREE]:
                effects[place] = Estimate.exact(here[TREE] / here[name])
    return effects


def structures(loaded: list[Loaded]) -> PaperFinding:
    """Table 2: the data structures one by one, of the filter with the most predicates and 4 conjunctions."""
    each = max(
        (each for each in loaded if each.shape.conjunctions == 4), key=lambda each: each.shape.predicates
    )
    of, (counting, cluster, tree) = parameters(each.shape), (each.memory[name] for name in ENGINES)
    association = 4 * of.s_p * of.p
    array, table = "fixed and dynamic array", "dynamic table"
    sizes = {
        "counting: hit and count vectors": (array, 2 * of.S_s, counting[_COUNTS]),
        "counting: predicate to subscription": (table, association, counting[_FORWARD]),
        "counting: subscription to predicate": (table, association, counting[_BACK]),
        "tree: hit and minimum count vectors": (array, 2.0, tree[_COUNTS]),
        "tree: predicate to subscription": (table, 4 * of.p, tree[_FORWARD]),
        "tree: subscription trees": ("memory blocks", 5 * of.p + 2 * of.op, tree[_BACK] + tree["trees"]),
        "cluster: clusters": ("lists of fixed arrays", association, cluster[_CELLS]),
        "cluster: for unsubscription": (table, association, cluster[_BACK]),
    }
    effects: dict[str, Estimate | None] = {
        engine: Estimate.exact(
            sum(here for name, (_, _, here) in sizes.items() if name.startswith(engine))
            / sum(paper for name, (_, paper, _) in sizes.items() if name.startswith(engine))
        )
        for engine in ("counting", "tree", "cluster")
    }
    return PaperFinding(
        "Table 2",
        f"the data structures (|p| = {of.p}, S_s = {of.S_s}, s^r = {of.s_r:.2f})",
        "A practical implementation takes more than the equations, for lists, lengths and hash tables "
        "(section 5.3).",
        f"Bytes of an algorithm as multiples of the equation's: {extremes(effects)}. The form of a tree is "
        "kept once for all filters that differ in values alone, clusters omit the access predicate, and ids "
        "of subscriptions are in a table that all engines have, which is not counted.",
        decide(Claim(), [*effects.values()]),
        [
            {"data structure": name, "in the paper": how, "eq. B": round(paper, 1), "here B": round(here, 1)}
            for name, (how, paper, here) in sizes.items()
        ],
        Bars(
            "bytes per subscription",
            [*sizes],
            {
                "paper": [paper for _, paper, _ in sizes.values()],
                "here": [here for *_, here in sizes.values()],
            },
            dots=True,
            log=True,
        ),
    )
