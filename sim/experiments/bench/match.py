"""`covey bench match`: engines side by side over one workload, in one process, with their answers compared.

- *load*: `add_all`, 262,144 subscriptions at a time, in the order of their ids, including the work that the
  first match completes; batch by batch, with a match after each, if the workload's subscriptions arrive in
  batches.
- *ids*, *ordered*, *counts*, *interfaces*, in events/s: `match` over batches and one of its products;
  repetitions alternate between engines and products, so that interference affects all of them. A slow engine
  matches only the first events per repetition. Subscriptions are on INTERFACES interfaces by turns.
- *ratio*: ids and counts of an engine as multiples of those of the scan in the same run.
- *update*, *of many*: `update` and `update_many` of the variables that the workload updates, including the
  work that they cause in the next match, per subscription.

The ids for a sample of events, before and after the updates, and the numbers of matches must be equal.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher import Engine, EventBatch, Matches, create_engine
from covey.matcher.errors import CoveyError, InputError
from covey.sim.extras import need
from covey.sim.progress import Progress
from covey.sim.reports import number
from covey.sim.reports.colours import styles
from covey.sim.workload import SubscriptionGroup, Subscriptions, Workload

PRODUCTS: dict[str, Callable[[Matches], object]] = {
    "ids": tuple,
    "ordered": Matches.ordered,
    "counts": lambda matches: matches.counts,
    "interfaces": Matches.interfaces,
}
INTERFACES = 16
_SCAN = "scan"
_CHUNK = 262_144
_SINGLE_UPDATES = 2_000
_BULK_UPDATES = 200_000


class DisagreementError(CoveyError):
    """Two engines give different answers."""


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """Engines and sizes of a measurement."""

    engines: tuple[str, ...]
    events: int = 10_000
    batch: int = 1_000
    repetitions: int = 5
    repetition_s: float = 0.5
    sample: int = 100
    load_limit_s: float = 120.0
    threads: int = 1
    seed: int = 0
    updates: bool = True
    products: tuple[str, ...] = tuple(PRODUCTS)
    """The measured products, which include ids."""
    warm_up: int = 0
    """Passes of `cluster` over the events before the measurement, in which it finds its tables."""
    clock: Callable[[], float] = perf_counter
    """Seconds of loading and matching; `process_time` excludes other processes."""


@dataclass(slots=True)
class MatchResult:
    """The measurements of one engine; an engine that did not load has only the first four fields."""

    workload: str
    subscriptions: int
    engine: str
    loaded: int = 0
    rates: dict[str, list[float]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    """Ids and counts relative to the scan; empty without a scan."""
    matches_per_event: float = 0.0
    load_s: float = 0.0
    bytes_per_subscription: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)
    update_us: float = 0.0
    update_many_us: float = 0.0

    def rate(self, product: str = "ids") -> float:
        """Events per second, the median of the repetitions."""
        return median(self.rates[product])

    @property
    def complete(self) -> bool:
        return self.loaded == self.subscriptions

    def as_json(self) -> dict[str, Any]:
        """Stable keys; measurements of an engine that did not load are null."""
        measured = {
            **{
                f"{product}_per_s": round(self.rate(product), 1) if product in self.rates else None
                for product in PRODUCTS
            },
            **{f"{product}_to_scan": self.ratios.get(product) for product in ("ids", "counts")},
            "matches_per_event": round(self.matches_per_event, 3),
            "load_s": round(self.load_s, 4),
            "bytes_per_subscription": round(self.bytes_per_subscription, 1),
            "update_us": round(self.update_us, 3),
            "update_many_us": round(self.update_many_us, 4),
        }
        return {
            "workload": self.workload,
            "subscriptions": self.subscriptions,
            "engine": self.engine,
            **(measured if self.complete else dict.fromkeys(measured)),
        }


def make_engine(text: str, workload: Workload, threads: int) -> Engine:
    """An engine by name, with options after a colon: `search_tree:factoring=0`. `CoveyError` for an unknown
    name or option."""
    name, _, options = text.partition(":")
    settings: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, separator, value = option.partition("=")
        if not separator:
            raise InputError(f"engine {text!r}: option {option!r}, expected option=value")
        try:
            settings[key.strip()] = json.loads(value)
        except ValueError:
            settings[key.strip()] = value
    if threads > 1:
        settings["threads"] = threads
    try:
        return create_engine(name, workload.event_type, **settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"engine {text!r}: {error}") from None


@dataclass(slots=True)
class _Contender:
    engine: Engine
    result: MatchResult
    events: int = 0
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def compare_engines(
    workload: Workload, subscriptions: int, plan: MatchPlan, progress: Progress
) -> list[MatchResult]:
    """The results of a plan's engines over one workload. Raises `DisagreementError` if answers differ."""
    progress("drawing subscriptions", 0.0)
    if workload.event_batch is not None:
        plan = replace(plan, batch=workload.event_batch)
    groups = workload.subscriptions(subscriptions, seed=plan.seed)
    arrivals = [Subscriptions.of(each) for each in workload.arrivals(groups)]
    events = workload.events(plan.events, seed=plan.seed)
    contenders: list[_Contender] = []
    results: list[MatchResult] = []
    for at, name in enumerate(plan.engines):
        progress(f"loading {name}", 0.5 * at / len(plan.engines))
        result = MatchResult(workload.name, subscriptions, name)
        results.append(result)
        engine = make_engine(name, workload, plan.threads)
        _load(engine, arrivals, events, result, plan)
        if result.complete:
            contenders.append(_Contender(engine, result))
    progress("comparing answers", 0.5)
    _compare(contenders, events.slice(0, plan.sample))
    for contender in contenders:
        if not contender.result.engine.startswith("cluster"):
            continue
        progress(f"warming up {contender.result.engine}", 0.5)
        for start in range(0, plan.warm_up * len(events), plan.batch):
            contender.engine.match(events.slice(start % len(events), plan.batch)).ids()
    gc.collect()
    gc.disable()
    try:
        _measure_matching(contenders, events, plan, progress)
        _compare_counts(contenders, events, plan)
        _set_ratios(results)
        moves = _Moves.of(workload, groups, plan.seed)
        for at, contender in enumerate(contenders if plan.updates else []):
            progress(f"updating {contender.result.engine}", 0.9 + 0.1 * at / len(contenders))
            _measure_updates(contender, moves, events)
    finally:
        gc.enable()
    progress("comparing answers", 0.99)
    _compare(contenders, events.slice(0, plan.sample))
    return results


# --- loading -------------------------------------------------------------------------------------


def _load(
    engine: Engine, arrivals: list[Subscriptions], events: EventBatch, result: MatchResult, plan: MatchPlan
) -> None:
    start = plan.clock()
    for subscriptions in arrivals:
        for first in range(0, len(subscriptions), _CHUNK):
            chunk = subscriptions.slice(first, first + _CHUNK)
            engine.add_all(
                chunk.ids, chunk.filters, chunk.values,
                numbers=chunk.numbers, interface=chunk.ids % INTERFACES,
            )  # fmt: skip
            result.loaded += len(chunk)
            if plan.clock() - start > plan.load_limit_s and result.loaded < result.subscriptions:
                return
        engine.match(events.slice(0, 1)).ids()
    result.load_s = plan.clock() - start
    result.memory = engine.memory_bytes()
    result.bytes_per_subscription = sum(result.memory.values()) / max(result.subscriptions, 1)


# --- matching ------------------------------------------------------------------------------------


def _measure_matching(
    contenders: list[_Contender], events: EventBatch, plan: MatchPlan, progress: Progress
) -> None:
    for contender in contenders:
        contender.events = _events_for(contender, events, plan.repetition_s)
    for repetition in range(plan.repetitions):
        done = repetition / plan.repetitions
        for at, contender in enumerate(contenders):
            progress(f"matching {contender.result.engine}", 0.5 + 0.4 * (done + at / 100))
            for product in plan.products:
                rate = _rate(contender, product, events, plan)
                contender.result.rates.setdefault(product, []).append(rate)


def _events_for(contender: _Contender, events: EventBatch, seconds: float) -> int:
    count = 1
    while True:
        start = perf_counter()
        contender.engine.match(events.slice(0, count)).ids()
        took = perf_counter() - start
        if count == len(events) or took > seconds / 8:
            return max(1, min(len(events), int(count * seconds / max(took, 1e-9))))
        count = min(len(events), max(2 * count, int(count * seconds / 16 / max(took, 1e-9))))


def _rate(contender: _Contender, product: str, events: EventBatch, plan: MatchPlan) -> float:
    """Events per second over the engine's share of the events, repeated to fill the time."""
    batches = [
        events.slice(start, min(plan.batch, contender.events - start))
        for start in range(0, contender.events, plan.batch)
    ]
    compute, passes, took = PRODUCTS[product], 0, 0.0
    while passes == 0 or took + took / passes <= plan.repetition_s:
        start = plan.clock()
        for batch in batches:
            compute(contender.engine.match(batch))
        took += plan.clock() - start
        passes += 1
    return passes * contender.events / took


def _set_ratios(results: list[MatchResult]) -> None:
    for scan in results:
        if scan.engine == _SCAN and scan.complete:
            for result in results:
                if result.complete:
                    names = [name for name in ("ids", "counts") if name in scan.rates]
                    result.ratios = {name: round(result.rate(name) / scan.rate(name), 2) for name in names}


def _compare(contenders: list[_Contender], events: EventBatch) -> None:
    expected: list[bytes] = []
    for contender in contenders:
        hashes = []
        for start in range(0, len(events), 10):
            offsets, ids = contender.engine.match(events.slice(start, 10))
            for first, last in pairwise(offsets.tolist()):
                hashes.append(hashlib.blake2b(np.sort(ids[first:last]).tobytes(), digest_size=16).digest())
        expected = expected or hashes
        for event, (actual, reference) in enumerate(zip(hashes, expected, strict=True)):
            if actual != reference:
                raise DisagreementError(
                    f"event {event} of {contender.result.workload} at {contender.result.subscriptions:,}: "
                    f"{contender.result.engine} returns other ids than {contenders[0].result.engine}"
                )


def _compare_counts(contenders: list[_Contender], events: EventBatch, plan: MatchPlan) -> None:
    for contender in contenders:
        contender.counts = np.concatenate(
            [
                contender.engine.match(events.slice(start, min(plan.batch, contender.events - start))).counts
                for start in range(0, contender.events, plan.batch)
            ]
        )
        contender.result.matches_per_event = float(contender.counts.mean())
        first = contenders[0]
        both = min(len(first.counts), len(contender.counts))
        ours, theirs = int(contender.counts[:both].sum()), int(first.counts[:both].sum())
        if ours != theirs:
            raise DisagreementError(
                f"{both:,} events of {first.result.workload} at {first.result.subscriptions:,}: "
                f"{contender.result.engine} has {ours:,} matches, {first.result.engine} {theirs:,}"
            )


# --- updating ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moves:
    """New values, in random order, for the subscriptions with the variables of the first group."""

    ids: npt.NDArray[np.int64]
    values: dict[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, workload: Workload, groups: list[SubscriptionGroup], seed: int) -> _Moves:
        ids: list[npt.NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
        columns: list[dict[str, npt.NDArray[Any]]] = []
        for group in groups:
            new = workload.moves(group, seed=seed)
            if not columns or new.keys() == columns[0].keys():
                ids.append(group.ids)
                columns.append(new)
        every = np.concatenate(ids)
        order = np.random.default_rng(seed).permutation(len(every))[:_BULK_UPDATES]
        names = columns[0] if columns else {}
        values = {name: np.concatenate([column[name] for column in columns])[order] for name in names}
        return cls(every[order], values)


def _measure_updates(contender: _Contender, moves: _Moves, events: EventBatch) -> None:
    engine, one_event = contender.engine, events.slice(0, 1)
    usual = _time(lambda: engine.match(one_event).ids())
    each = min(_SINGLE_UPDATES, len(moves.ids))
    if not each:
        return
    singles = [
        (int(moves.ids[i]), {name: column[i] for name, column in moves.values.items()}) for i in range(each)
    ]
    start = perf_counter()
    for subscription_id, values in singles:
        engine.update(subscription_id, values)
    engine.match(one_event).ids()
    contender.result.update_us = max(perf_counter() - start - usual, 0.0) / each * 1e6
    start = perf_counter()
    engine.update_many(moves.ids, dict(moves.values))
    engine.match(one_event).ids()
    contender.result.update_many_us = max(perf_counter() - start - usual, 0.0) / len(moves.ids) * 1e6


def _time(action: Callable[[], object]) -> float:
    start = perf_counter()
    action()
    return perf_counter() - start


_COLUMNS: tuple[tuple[str, Callable[[MatchResult], float | None]], ...] = (
    ("ids/s", lambda r: r.rate("ids")),
    ("min", lambda r: min(r.rates["ids"])),
    ("max", lambda r: max(r.rates["ids"])),
    ("ordered", lambda r: r.rate("ordered")),
    ("counts", lambda r: r.rate("counts")),
    ("interfaces", lambda r: r.rate("interfaces")),
    ("ids/scan", lambda r: r.ratios.get("ids")),
    ("counts/scan", lambda r: r.ratios.get("counts")),
    ("matches", lambda r: r.matches_per_event),
    ("load s", lambda r: r.load_s),
    ("bytes each", lambda r: r.bytes_per_subscription),
    ("update µs", lambda r: r.update_us),
    ("of many µs", lambda r: r.update_many_us),
)


def table(results: list[MatchResult]) -> tuple[list[str], list[list[str | float | None]]]:
    """Columns and rows, one per engine; an engine that did not load has only its name."""
    rows: list[list[str | float | None]] = [
        [result.engine, *(value(result) for _, value in _COLUMNS)]
        if result.complete
        else [f"{result.engine} (stopped loading at {result.loaded:,})", *(None for _ in _COLUMNS)]
        for result in results
    ]
    return ["engine", *(title for title, _ in _COLUMNS)], rows


def markdown(results: list[MatchResult]) -> str:
    """Throughput of engines by workload for every number of subscriptions, then each table in full."""
    lines: list[str] = []
    workloads = list(dict.fromkeys(result.workload for result in results))
    engines = list(dict.fromkeys(result.engine for result in results))
    for count in dict.fromkeys(result.subscriptions for result in results):
        by_engine = {(r.engine, r.workload): r for r in results if r.subscriptions == count}
        lines += [
            f"Events per second with their ids (median), {count:,} subscriptions:",
            "",
            f"| engine | {' | '.join(workloads)} |",
            f"|---|{'---:|' * len(workloads)}",
        ]
        for engine in engines:
            cells = [_shown_rate(by_engine.get((engine, workload))) for workload in workloads]
            lines.append(f"| `{engine}` | {' | '.join(cells)} |")
        lines.append("")
    for workload in workloads:
        for count in dict.fromkeys(r.subscriptions for r in results if r.workload == workload):
            columns, rows = table([r for r in results if (r.workload, r.subscriptions) == (workload, count)])
            lines += [
                f"{workload}, {count:,} subscriptions:",
                "",
                f"| {' | '.join(columns)} |",
                f"|---|{'---:|' * len(_COLUMNS)}",
                *(f"| `{name}` | {' | '.join(map(number, figures))} |" for name, *figures in rows),
                "",
            ]
    return "\n".join(lines)


def _shown_rate(result: MatchResult | None) -> str:
    if result is None:
        return ""
    return f"{result.rate():,.0f}" if result.complete else f"gave up at {result.loaded:,}"


def draw(results: list[MatchResult], path: Path) -> None:
    """A panel per workload: events per second of each engine over the number of subscriptions. The suffix of
    the file selects the format (.svg, .png, .pdf). Raises `CoveyError` if writing fails."""
    need("--draw", "matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workloads = list(dict.fromkeys(result.workload for result in results))
    engines = list(dict.fromkeys(result.engine for result in results))
    look = styles(engines)
    across = min(3, len(workloads))
    down = -(-len(workloads) // across)
    figure, panels = pyplot.subplots(down, across, figsize=(4.2 * across, 3.4 * down), squeeze=False)
    for panel, workload in zip(panels.flat, workloads, strict=False):
        for engine in engines:
            points = sorted(
                (r.subscriptions, r.rate())
                for r in results
                if (r.workload, r.engine) == (workload, engine) and r.complete
            )
            if points:
                colour = look[engine].colour
                panel.plot(*zip(*points, strict=True), "o-", color=colour, markersize=3, label=engine)
        panel.set(title=workload, xscale="log", yscale="log", xlabel="subscriptions", ylabel="events/s")
        panel.grid(alpha=0.3, which="both")
    for panel in panels.flat[len(workloads) :]:
        panel.axis("off")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(len(labels), 6), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise CoveyError(f"drawing {path}: {error}") from None
    finally:
        pyplot.close(figure)
