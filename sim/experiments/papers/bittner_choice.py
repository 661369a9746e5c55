"""The choice between normal form and tree, by the model, against both forms and a cap of conjunctions."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from covey.sim.experiments.bench.match import MatchResult
from covey.sim.experiments.papers.measuring import measure, ms_per_event
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan, Verdict
from covey.sim.progress import Progress, part
from covey.sim.reports import Bars
from covey.sim.workload import Boolean
from covey.sim.workload.boolean import branching, pairs

FORMS = {"cap": "cluster:forms=normal", "tree": "trees", "chosen": "cluster"}
"""Normal form up to a cap of 64 conjunctions, trees alone, and what the model chooses."""


def choice(plan: PaperPlan, progress: Progress) -> PaperFinding:
    """Memory and time of the production engine over the paper's range of filters, by form."""
    count, p = plan.pick(300, 10_000, 100_000), plan.pick(6, 12, 30)
    shapes = [
        *[branching(p, n, 0.3) for n in plan.pick((3,), (2, 4, 6), (2, 4, 6, 10))],
        *[branching(p, n, 0.7) for n in plan.pick((3,), (2, 4, 6), (2, 4, 6, 10))],
        *[pairs(p, k) for k in plan.pick((2,), (2, 4, 6), (2, 4, 6, 7))],
    ]
    rows: list[dict[str, Cell]] = []
    loads = [(shape, share) for share in (0.02, 0.3) for shape in shapes]
    for at, (shape, share) in enumerate(loads):
        workload = Boolean(shape=shape, fulfilled=share)
        inner = part(progress, at / len(loads), (at + 1) / len(loads))
        results = measure(workload, count, FORMS, plan, inner)
        if len(results) == len(FORMS):
            shared = round(shape.shared / shape.conjunctions, 2)
            described: dict[str, Cell] = {"p_e / |s||p|": share, "S_s": shape.conjunctions, "s^r": shared}
            rows.append(described | _row(results))
    mean = {name: exp(sum(log(_product(row, name)) for row in rows) / len(rows)) for name in FORMS}
    worst = {name: max(_product(row, name) for row in rows) for name in FORMS}
    words = ", ".join(f"{name} {mean[name]:.2f} ({worst[name]:.1f} at worst)" for name in FORMS)
    return PaperFinding(
        "Sect. 4, 6.2",
        f"normal form or tree, chosen by the model (|p| = {p}, {count:,} subscriptions)",
        "The paper recommends the tree wherever a filter has an `or`, by memory; time favours either. That a "
        "model can choose per filter is ours.",
        "Bytes times nanoseconds as multiples of those of the better form, in the geometric mean: "
        f"{words}. `cap` is the normal form for up to 64 conjunctions, else the tree. The model assumes "
        "what part of the events passes a range, so it errs where the forms are close.",
        Verdict.of(
            mean["chosen"] <= 1.02 * min(mean["cap"], mean["tree"]),
            mean["chosen"] < max(mean["cap"], mean["tree"]),
        ),
        rows,
        Bars(
            "bytes times ns, as a multiple of the better form",
            [f"S_s {row['S_s']}, s^r {row['s^r']}, {row['p_e / |s||p|']}" for row in rows],
            {name: [_product(row, name) for row in rows] for name in FORMS},
            dots=True,
            log=True,
        ),
    )


def _row(results: Mapping[str, MatchResult]) -> dict[str, Cell]:
    sizes: dict[str, Cell] = {f"{name} B": round(results[name].bytes_per_subscription) for name in FORMS}
    times: dict[str, Cell] = {f"{name} us": round(1e3 * ms_per_event(results[name]), 2) for name in FORMS}
    form = "tree" if results["chosen"].memory.get("trees", 0) else "normal form"
    return {"chosen": form, **sizes, **times}


def _product(row: Mapping[str, Cell], name: str) -> float:
    """Bytes times time of a form, as a multiple of the better one's."""
    products = {each: float(row[f"{each} B"] or 1) * float(row[f"{each} us"] or 1) for each in FORMS}
    return products[name] / min(products["cap"], products["tree"])
