"""The cases of C and the assumptions of D: the scenario of each run of the evaluation.

A *case* is a load and one of the paper's two matchers, at the paper's sizes: 20 brokers; HTM with 200
publishers, and 120 vehicles, since the paper's cluster has places for 128 subscribers; AT with 5 publishers,
150 subscribers and 200 types; Fig. 9 with 100 publishers. Its *base* assumptions are the paper's: primitives
execute atomically and in order of invocation (section 4.2), and Siena has one poset for everything, so one
lane, first come, first served; EventJava forwards events independently of updates (section 5.6, item 2), so
two lanes. UPD looks its variable up and reorders only against neighbours.

The paper draws 10 to 100 updates per second and edge broker (section 5.4); here a curve has those of `RATES`
that re-subscription keeps up with, and utilisations near one beyond them. Fig. 9 has utilisations alone: at
its 1,000 per second and subscriber a broker would be busy more than ten times over.

A warm-up lasts until the events that fill the windows at the start have drained and changes have reached the
last broker (`_WARM_UP`). If changes wait behind events, a lane takes longer to be steady the nearer it is to
saturation (`settling_s`): the full size waits for that at the highest of the paper's rates (`steady_s`), and
not beyond, where it takes an hour. Changes come evenly, since the number of random ones varies by more than
they leave to events near saturation.

An *assumption* differs from the base in one field. Brokers slowed `cpu_scale` = k times are at rate f as busy
as at full speed at rate k f, which is too high to simulate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from covey.sim.experiments.papers.report import PaperPlan
from covey.sim.scenario.scenario import Scenario, find_system

METRICS = ("throughput", "delay", "spurious")
COVEY = "covey-parametric"
RATES = (10.0, 50.0, 100.0)
"""Of the paper's axis: updates per second and edge broker."""
BEYOND = (0.9, 0.95)
KNEE = 0.9
"""The control utilisation of D."""


@dataclass(frozen=True, slots=True)
class Case:
    """One load with one of the paper's matchers, and the paper's figures and factors by `METRICS`. Those of
    `rhos` up to `paper_rho` are on the paper's axis, none if it is 0."""

    key: str
    title: str
    matcher: str
    scenario: Scenario
    figures: tuple[str, ...]
    claims: tuple[float, ...]
    rhos: tuple[float, ...]
    full_rate: float
    """Updates per second and edge broker, at full speed, at which re-subscription keeps the busiest broker
    busy all the time: from a pilot under the checked-in costs."""
    paper_rho: float = 0.0
    steady_s: float = 0.0
    """The warm-up after which its lane is steady at `paper_rho`, if that is longer than its scenario's."""

    def rate(self, rho: float) -> float:
        """Updates per second and edge broker, at full speed."""
        return rho * self.full_rate

    @property
    def drawn(self) -> tuple[float, ...]:
        return tuple(rho for rho in self.rhos if 0 < rho <= self.paper_rho)

    @property
    def static(self) -> str:
        return f"{self.matcher}-subscribe-first"

    @property
    def parametric(self) -> str:
        return f"{self.matcher}-parametric"

    @property
    def systems(self) -> tuple[str, ...]:
        return self.static, self.parametric, COVEY


@dataclass(frozen=True, slots=True)
class Assumption:
    """A difference from a case's base, for `matchers`. `fields` are of the scenario; `exact` is an UPD that
    searches the whole poset; `costs` names a calibration (`Calibrations`); `offered` is the open loop, with
    this share of the events that brokers without changes can carry; `filters` is the number that costs are
    for, 0 for the actual one."""

    key: str
    title: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    costs: str = "measured"
    offered: float = 0.0
    filters: int = 0
    matchers: tuple[str, ...] = ("siena", "rete")


_FACTORS = ("cpu_scale", "warm_up_s", "duration_s")
"""The fields of assumptions that multiply those of the base."""
BASE = Assumption("base", "as the paper says of the system")
ASSUMPTIONS = (
    Assumption("fifo", "one lane, first come, first served", {"service": "fifo"}),
    Assumption("control-first", "one lane, changes first", {"service": "control-first"}),
    Assumption("two-lanes", "two lanes", {"service": "two-lanes"}),
    Assumption("broker", "one lane, as Covey's broker", {"service": "broker"}),
    Assumption("unmerged", "pending updates not merged", {"merge": False}),
    Assumption("open", "open loop, as many events as brokers can carry", offered=1.0),
    Assumption("exact", "UPD searches the whole poset", exact=True),
    Assumption("filters-3000", "costs at 3,000 filters", costs="filters-3000", filters=3_000),
    Assumption("random", "changes at random times", {"updates": "random"}),
    *(
        Assumption(f"slowed-{n}", f"brokers slowed 1/{n} as much", dict.fromkeys(_FACTORS, 1 / n))
        for n in (10, 100)
    ),
)
_WARM_UP = {"two-lanes": 0.25, "control-first": 1.0, "fifo": 3.0, "broker": 3.0}
"""By service, the factor of a case's warm-up."""
_MEASURED = 0.1
"""The least measured time, as a share of the warm-up."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run: `rho` is the control utilisation of the busiest broker under re-subscription."""

    case: Case
    assumption: Assumption
    system: str
    rho: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.case.key}.{self.assumption.key}.{self.system}.rho-{self.rho:g}.seed-{self.seed}"


@dataclass(frozen=True, slots=True)
class Pilot:
    """A short run before others of a case and a seed: of changes alone, for the rate that makes the busiest
    broker as busy as `rho`; or of events alone, for the number that it can carry."""

    case: Case
    seed: int
    costs: str = "measured"
    events: bool = False

    @property
    def name(self) -> str:
        kind = "events" if self.events else "changes"
        return f"pilot-{kind}.{self.case.key}.{self.costs}.seed-{self.seed}"


@dataclass(frozen=True, slots=True)
class Grid:
    """All systems of all cases over their utilisations (C), and the assumptions of D at the knee, each with
    its number of seeds. Covey's own routing runs at `covey_rhos`, or at all utilisations if empty."""

    cases: tuple[Case, ...]
    seeds: int
    assumptions: tuple[Assumption, ...]
    assumption_seeds: int
    first_seed: int
    covey_rhos: tuple[float, ...] = ()

    def points(self) -> Iterator[Point]:
        """All points, the first seed of everything first."""
        for seed in range(max(self.seeds, self.assumption_seeds)):
            for case in self.cases:
                if seed < self.seeds:
                    for rho in case.rhos:
                        for system in case.systems:
                            if system != COVEY or not self.covey_rhos or rho in self.covey_rhos:
                                yield Point(case, BASE, system, rho, self.first_seed + seed)
                if seed < self.assumption_seeds:
                    for assumption in self.assumed(case):
                        for system in (case.static, case.parametric):
                            yield Point(case, assumption, system, KNEE, self.first_seed + seed)

    def assumed(self, case: Case) -> list[Assumption]:
        service = case.scenario.service
        return [a for a in self.assumptions if case.matcher in a.matchers and a.key != service]


def grid(plan: PaperPlan, most_filters: int = 3_000) -> Grid:
    """The runs at a size: `quick` has only the paper's highest rate and the knee, shorter runs, and none of
    D. Costs are known up to `most_filters`."""
    known = [each for each in ASSUMPTIONS if each.filters <= most_filters]
    brokers = plan.pick(6, 20, 20)
    common = Scenario(
        brokers=brokers,
        delay_ms=10.0,
        event_rate=1000.0,
        updates="even",
        warm_up_s=plan.pick(1.0, 4.0, 10.0),
        duration_s=plan.pick(2.0, 4.0, 12.0),
    )
    highway = common.having(
        load="highway",
        publishers=10 * brokers,
        subscribers=6 * brokers,
        window=1,
        service="fifo",
        cpu_scale=1000.0,
        warm_up_s=plan.pick(1.0, 5.0, 25.0),
    )
    trading = common.having(
        load="trading",
        publishers=5,
        subscribers=plan.pick(30, 150, 150),
        types=plan.pick(20, 200, 200),
        window=4,
        service="two-lanes",
        cpu_scale=200.0,
    )
    market = trading.having(
        load="market", service="fifo", cpu_scale=100.0, warm_up_s=plan.pick(1.0, 4.0, 14.0)
    )
    artificial = trading.having(
        topology="random",
        publishers=plan.pick(10, 100, 100),
        window=1,
        cpu_scale=1000.0,
        warm_up_s=plan.pick(1.0, 15.0, 20.0),
    )

    def case(
        key: str,
        title: str,
        scenario: Scenario,
        figures: str,
        claims: tuple[float, ...],
        full_rate: float,
        steady_s: float = 0.0,
    ) -> Case:
        on_axis = (round(rate / full_rate, 3) for rate in RATES if figures != "9")
        paper = tuple(rho for rho in on_axis if rho <= BEYOND[-1])
        top, beyond = max(paper, default=0.5), tuple(rho for rho in BEYOND if rho > max(paper, default=0))
        return Case(
            key, title, key.partition("-")[2] or "rete", scenario, tuple(figures.split()), claims,
            plan.pick((0.0, KNEE), (top, KNEE), (0.0, *(paper or (0.2, 0.4, 0.6)), *beyond)),
            full_rate, max(paper, default=0.0), steady_s,
        )  # fmt: skip

    rete_highway = highway.having(service="two-lanes")
    cases = (
        case(
            "htm-siena",
            "HTM, the poset matches",
            highway,
            "8a 8b 8c",
            (8.0, 6.0, 6.0),
            129.6,
            plan.pick(0.0, 0.0, 640.0),
        ),
        case("htm-rete", "HTM, Rete matches", rete_highway, "8d 8e 8f", (1.53, 2.0, 2.2), 58.2),
        case("at-siena", "AT, one poset, which matches", market, "8g 8h 8i", (4.4, 3.0, 6.0), 208.7),
        case("at-rete", "AT, Rete matches", trading, "8j 8k 8l", (1.25, 4.4, 3.4), 234.4),
        case("fig9", "artificial load, Rete matches", artificial, "9", (2.25,), 308.0),
    )
    return Grid(
        cases=plan.pick((cases[0], cases[4]), cases, cases),
        seeds=plan.pick(2, 5, 5),
        assumptions=tuple(plan.pick(known[1:2], (), known)),
        assumption_seeds=plan.pick(1, 5, 5),
        first_seed=2010 + 100 * plan.seed,
        covey_rhos=plan.pick((), (KNEE,), BEYOND),
    )


def scenario_of(
    case: Case, assumption: Assumption, system: str, calibrations: Mapping[str, str], seed: int, rho: float
) -> Scenario:
    """The scenario of a system, without its rates; `calibrations` are files by name."""
    base = case.scenario
    fields = {
        name: getattr(base, name) * value if name in _FACTORS else value
        for name, value in assumption.fields.items()
    }
    scenario = find_system(system).applied_to(base).having(**fields)
    local = system == case.parametric and not assumption.exact
    before_s = warm_up_s(case, scenario, rho)
    return scenario.having(
        seed=seed,
        cpu=calibrations[assumption.costs],
        warm_up_s=before_s,
        duration_s=max(scenario.duration_s, _MEASURED * before_s),
        poset="diagram-local" if local else scenario.poset,
        window=0 if assumption.offered else scenario.window,
    )


def warm_up_s(case: Case, scenario: Scenario, rho: float) -> float:
    """The warm-up of a run, by the order in which brokers serve messages."""
    usual_s = scenario.warm_up_s * _WARM_UP[scenario.service]
    return max(usual_s, case.steady_s) if rho == case.paper_rho else usual_s


_PILOT_MESSAGES = 200


def pilot_scenario(pilot: Pilot, calibrations: Mapping[str, str], message_ns: float) -> Scenario:
    """Two hundred changes or events, at a rate that keeps a broker a fifth busy if one takes `message_ns`."""
    case = pilot.case
    costs = Assumption(pilot.costs, "", costs=pilot.costs)
    scenario = scenario_of(case, costs, case.static, calibrations, pilot.seed, 0.0).having(name=pilot.name)
    per_s = 0.2e9 / (message_ns * scenario.cpu_scale)
    return scenario.having(
        window=0,
        warm_up_s=0.0,
        event_rate=round(per_s / scenario.publishers, 6) if pilot.events else 0.0,
        update_rate=0.0 if pilot.events else round(per_s / scenario.subscribers, 6),
        duration_s=round(_PILOT_MESSAGES / per_s, 3),
    )


def rate_for_one(pilot: Mapping[str, Any]) -> float:
    """The update rate of a subscriber that would keep the busiest broker busy, from a pilot of changes."""
    scenario = pilot["scenario"]
    busy_s = pilot["busiest_share"] * scenario["duration_s"]
    per_subscriber: float = pilot["updates"] / busy_s / scenario["subscribers"]
    return per_subscriber


def events_for_one(pilot: Mapping[str, Any]) -> float:
    """The events per second, of all publishers, that would keep the busiest broker busy, from a pilot."""
    per_s: float = pilot["published"] / (pilot["busiest_share"] * pilot["scenario"]["duration_s"])
    return per_s


def pilots_of(points: Iterable[Point]) -> list[Pilot]:
    needed: dict[str, Pilot] = {}
    for point in points:
        pilots = [Pilot(point.case, point.seed, point.assumption.costs)]
        if point.assumption.offered:
            pilots.append(Pilot(point.case, point.seed, events=True))
        needed |= {pilot.name: pilot for pilot in pilots}
    return list(needed.values())


def point_scenario(
    point: Point, calibrations: Mapping[str, str], rate: float, events_per_s: float
) -> Scenario:
    """`rate` is from `rate_for_one`, `events_per_s` from `events_for_one`."""
    scenario = scenario_of(point.case, point.assumption, point.system, calibrations, point.seed, point.rho)
    offered = point.assumption.offered
    slowed = point.assumption.fields.get("cpu_scale", 1.0)
    return scenario.having(
        name=point.name,
        update_rate=round(point.rho * rate / slowed, 6),
        event_rate=round(offered * events_per_s / scenario.publishers, 6) if offered else scenario.event_rate,
    )
