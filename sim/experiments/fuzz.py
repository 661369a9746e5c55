"""Random histories of whole overlays in virtual time, drawn from one seed each and judged by the checkers.

A history: a random tree of brokers, wires with random delays, jitter and loss, links with random limits;
clients that come, go, vanish, move and lose their connection, advertise, subscribe, update, cancel and
publish; links that part and brokers that crash. Now and then all is left to come to rest, and then nothing
owed may be missing, everything said must have settled, and every link must carry what it must carry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.matcher.engine import engine_names
from covey.matcher.errors import CoveyError
from covey.overlay.core.baselines.options import POSET_ENGINE
from covey.overlay.core.merging.mergers import MERGINGS
from covey.overlay.core.moving.motion import Motion, directions
from covey.sim.checkers import Finding, Findings, Judge, Traffic, check_quiet, check_routes
from covey.sim.experiments.processes import workers
from covey.sim.simulator import Simulation, WireOptions
from covey.sim.simulator.client import ClientProcess
from covey.sim.simulator.clock import NS_PER_MS
from covey.sim.simulator.costs import Calibrated, Costs, Free, Model
from covey.sim.simulator.defects import DEFECTS
from covey.sim.topology import Joint, Topology

TYPES = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string"}),
    EventType("U", {"x": "int64", "flag": "bool"}),
)
TEXTS = {
    "T": (
        "x < $a",
        "x < $a",
        "x >= $a",
        "x == $a",
        "x between $a and $b",
        "x >= $a and x < $b",
        "x < $a and y > $b",
        "x < $a + 1 and y > $b and y <= 8",
        's == "p" and x < $a',
        "s == $n and x > $a",
        "x > 2 and x < 5",
        "",
    ),
    "U": ("x < $a", "x > $a and flag == true", "flag == false", "x == 3"),
}
OPERATORS = {
    "T": (
        "x < $a or x > $b",
        "s prefix $n or x == $a",
        's contains "p" and x < $a',
        "x != $a",
        "x in (1, $a, 5)",
    ),
    "U": ("x < $a or flag == true", "not (x == $a)"),
}

CONTENTS = ("x < 3", "x >= 3", "x between 2 and 5")

_RATES = (-40.0, -1.0, -0.1, -0.02, 0.02, 0.1, 1.0, 40.0)
_LIVELOCK_STEPS = 200_000


@dataclass(frozen=True, slots=True)
class Options:
    """What all histories of a fuzzing run have in common.

    With `gapless` half of the updates are without gaps, with `content` most advertisements have
    some; `damping` is that of the brokers. With `motion` half of the values of bounds move by themselves, and
    some pauses are so long that what was announced of them has to be renewed. `operators` adds
    filters that are no conjunctions of intervals, of which `covers` may know less than there is to know.
    `defect` names one of `defects.DEFECTS`.
    """

    routing: str = "parametric"
    resubscribe: str = "subscribe-first"
    engine: str = "naive"
    steps: int = 60
    crashes: bool = True
    gapless: bool = False
    content: bool = False
    damping: float = 0.0
    motion: bool = False
    operators: bool = False
    merging: str = "off"
    merging_budget: int = 3
    defect: str | None = None

    def __post_init__(self) -> None:
        for name, value, expected in (
            ("routing", self.routing, ("parametric", "static")),
            ("resubscribe", self.resubscribe, ("subscribe-first", "unsubscribe-first")),
            ("engine", self.engine, (*engine_names(), POSET_ENGINE)),
            ("merging", self.merging, MERGINGS),
            ("defect", self.defect, (None, *DEFECTS)),
        ):
            if value not in expected:
                known = ", ".join(one for one in expected if one is not None)
                raise FuzzError(f"{name} is {value!r}: expected one of {known}")
        if self.motion and self.routing == "static":
            raise FuzzError("motion is on: expected routing parametric, for others know no values that move")

    def command(self, seed: int) -> str:
        """The command that plays the history of one seed again."""
        words = [f"covey sim fuzz --seed {seed}"]
        default = Options()
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(default, field.name):
                option = field.name.replace("_", "-")
                if isinstance(value, bool):
                    words.append(f"--{'' if value else 'no-'}{option}")
                else:
                    words.append(f"--{option} {value}")
        return " ".join(words)


class FuzzError(CoveyError, ValueError):
    """There is no such option."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one history. `error` is an exception that it ended with, as text."""

    seed: int
    findings: tuple[Finding, ...]
    steps: int
    delivered: int
    owed: int
    fired: int = 0
    error: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.findings or self.error)


class History:
    """One history; `play` gives its outcome."""

    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        self.findings = Findings()
        draw = self._random = random.Random(seed)
        self._delay_ms = draw.choice((0, 1, 10))
        self._defect = DEFECTS[options.defect]() if options.defect else None
        self.simulation = Simulation(
            seed,
            routing=options.routing,
            resubscribe=options.resubscribe,
            engine=options.engine,
            poset="forest",
            merging=options.merging,
            merging_budget=options.merging_budget,
            costs=self._costs(),
            defect=self._defect,
            link={
                "max_frame_bytes": draw.choice((1, 300, 4 << 20)),
                "frames_in_flight": draw.choice((2, 4, 64)),
                "window_bytes": draw.choice((600, 4 << 20)),
            },
            wire=WireOptions(
                delay_ns=self._delay_ms * NS_PER_MS,
                jitter_ns=draw.choice((0, 5, 40)) * NS_PER_MS,
                loss=draw.choice((0.0, 0.0, 0.1)),
            ),
            lease_ns=500 * NS_PER_MS,
            damping=options.damping,
            replay_events=10_000 if options.gapless else 0,
        )
        clock = self.simulation.clock
        lossy = options.routing == "static" and options.resubscribe == "unsubscribe-first"
        self.judge = Judge(self.findings, lambda: clock.now_ns, lossy=lossy)
        self.traffic = Traffic(self.findings, lambda: clock.now_ns)
        self.simulation.watchers += [self.judge, self.traffic]
        self._filters = {
            event_type.name: [
                parse(text, event_type)
                for text in TEXTS[event_type.name] + (OPERATORS[event_type.name] if options.operators else ())
            ]
            for event_type in TYPES
        }
        self._types = TYPES if draw.random() < 0.5 else TYPES[:1]
        self._pauses_ms = (1, 5, 20, 100) + ((20_000, 60_000) if options.motion else ())
        self._bounds = {filter: _bounds(filter) for filters in self._filters.values() for filter in filters}
        """Of each filter the variables that may move."""
        self._made = 0
        self._weights: dict[Callable[[], None], float] = {
            self._come: 4,
            self._leave: 2,
            self._vanish: 1,
            self._move: 3,
            self._cut: 2,
            self._advertise: 8,
            self._unadvertise: 1,
            self._subscribe: 14,
            self._update: 40,
            self._cancel: 5,
            self._publish: 50,
            self._part: 2,
            self._crash: 1 if options.crashes else 0,
            self._rest: 4,
        }

    def _costs(self) -> Costs:
        base_ms = self._random.choice((0, 0, 1, 5))
        return Calibrated({"Publish": Model(base_ns=base_ms * 1e6)}) if base_ms else Free()

    def play(self) -> Outcome:
        """Play it to the end, or to the first finding."""
        error = ""
        try:
            self._play()
        except Exception as wrong:
            error = f"{type(wrong).__name__}: {wrong}"
        return Outcome(
            self.seed,
            tuple(self.findings.first),
            self.simulation.clock.steps,
            self.judge.delivered_events,
            self.judge.owed_events,
            self._defect.fired if self._defect else 0,
            error,
        )

    def _play(self) -> None:
        simulation, draw = self.simulation, self._random
        names = [f"b{i}" for i in range(draw.randint(1, 6))]
        links = tuple(Joint(names[draw.randrange(i)], names[i], self._delay_ms) for i in range(1, len(names)))
        simulation.build(Topology("history", tuple(names), links))
        if self.options.motion:
            simulation.clock.run(NS_PER_MS)  # at 0, what moves would have no beginning
        for _ in range(3):
            self._come()
        whats, weights = list(self._weights), list(self._weights.values())
        for _ in range(self.options.steps):
            draw.choices(whats, weights)[0]()
            if draw.random() < 0.7:
                pause_ns = draw.choice(self._pauses_ms) * NS_PER_MS
                self._run(simulation.clock.now_ns + draw.randrange(pause_ns))
            if self.findings:
                return
        self._rest()

    def _run(self, until_ns: int | None = None) -> None:
        """Let things happen, up to a time or until all is calm, but not for ever, and not on from a
        finding.
        """
        clock = self.simulation.clock
        last = clock.steps + _LIVELOCK_STEPS
        chunk = 1 if until_ns is None else 500
        while not self.findings and not (clock.calm if until_ns is None else clock.idle):
            before = clock.steps
            clock.run(until_ns, chunk)
            if clock.steps - before < chunk:
                return
            if clock.steps > last:
                self.findings.add("livelock", clock.now_ns, f"no rest after {_LIVELOCK_STEPS} steps")

    # --- what may happen ------------------------------------------------------------------------------------

    def _someone(self) -> ClientProcess | None:
        clients = self.simulation.clients
        return self._random.choice(list(clients.values())) if clients else None

    def _some_broker(self) -> str:
        return self._random.choice(list(self.simulation.brokers))

    def _come(self) -> None:
        self._made += 1
        self.simulation.come(f"client/c{self._made}", self._some_broker())

    def _leave(self) -> None:
        client = self._someone()
        if client is not None and not client.moving:
            self.simulation.leave(client.name)

    def _vanish(self) -> None:
        client = self._someone()
        if client is not None and not client.moving and client.port.wire is not None:
            self.simulation.vanish(client.name)

    def _move(self) -> None:
        client = self._someone()
        if client is not None:
            self.simulation.move(client.name, self._some_broker())

    def _cut(self) -> None:
        client = self._someone()
        if client is not None:
            self.simulation.cut(client.name, self._random.randrange(1, 400) * NS_PER_MS)

    def _advertise(self) -> None:
        client = self._someone()
        if client is not None:
            event_type = self._random.choice(self._types)
            contents = (
                [None, *(parse(text, event_type) for text in CONTENTS)] if self.options.content else [None]
            )
            # events under way were published under its promise
            if event_type.name not in client.session.advertised:
                client.advertise(event_type, self._random.choice(contents))

    def _unadvertise(self) -> None:
        client = self._someone()
        if client is not None and client.session.advertised:
            client.unadvertise(self._random.choice(list(client.session.advertised)))

    def _values(self, filter: Filter) -> dict[str, object]:
        draw = self._random
        drawn: dict[str, object] = {
            "a": draw.randint(0, 7),
            "b": draw.choice((0, 2.5, 4, 7)),
            "n": draw.choice("pq"),
        }
        if self.options.motion:
            for name in self._bounds[filter]:
                if draw.random() < 0.5:
                    drawn[name] = Motion(float(draw.randint(0, 7)), draw.choice(_RATES))
        return {name: drawn[name] for name in filter.variables}

    def _subscribe(self) -> None:
        client = self._someone()
        if client is not None:
            filter = self._random.choice(self._filters[self._random.choice(self._types).name])
            client.subscribe(filter, self._values(filter))

    def _some_subscription(self) -> tuple[ClientProcess, int] | None:
        held = [(client, i) for client in self.simulation.clients.values() for i in client.subscriptions]
        return self._random.choice(held) if held else None

    def _update(self) -> None:
        chosen = self._some_subscription()
        if chosen is not None:
            client, subscription_id = chosen
            values = self._values(client.subscriptions[subscription_id])
            values = {name: value for name, value in values.items() if self._random.random() < 0.8}
            gapless = self.options.gapless and self._random.random() < 0.5
            client.update(subscription_id, values, gapless=gapless)

    def _cancel(self) -> None:
        chosen = self._some_subscription()
        if chosen is not None:
            chosen[0].unsubscribe(chosen[1])

    def _publish(self) -> None:
        publishers = [client for client in self.simulation.clients.values() if client.session.advertised]
        if publishers:
            client = self._random.choice(publishers)
            said = self._random.choice(list(client.session.advertised.values()))
            event_type, content = said.event_type, said.filter
            rows = [self._event(event_type) for _ in range(self._random.randint(1, 4))]
            rows = [row for row in rows if content is None or content.matches(row)]
            client.publish(EventBatch.from_pylist(event_type, rows))

    def _event(self, event_type: EventType) -> dict[str, object]:
        draw = self._random
        if event_type.name == "U":
            return {"x": draw.randint(0, 8), "flag": draw.choice((True, False, None))}
        y, s = draw.choice((None, 1.5, 4.0, 7.5, 9.0)), draw.choice(("p", "q", "pq", None))
        return {"x": draw.randint(0, 8), "y": y, "s": s}

    def _part(self) -> None:
        if self.simulation.links:
            a, b = self._random.choice(self.simulation.links)
            self.simulation.part(a, b, self._random.randrange(1, 800) * NS_PER_MS)

    def _crash(self) -> None:
        self.simulation.crash(self._some_broker(), self._random.randrange(1, 500) * NS_PER_MS)

    def _rest(self) -> None:
        """Let everything come to rest, and judge what is there."""
        self._run()
        if self.findings:
            return
        self.judge.quiet()
        self.traffic.quiet()
        check_quiet(self.simulation, self.findings)
        if not self.options.operators:
            check_routes(self.simulation, self.findings)


def _bounds(filter: Filter) -> list[str]:
    """The variables that stand for bounds alone."""
    return [name for name, direction in directions(filter).items() if direction]


def play(seed: int, options: Options) -> Outcome:
    """The outcome of one seed's history."""
    return History(seed, options).play()


def fuzz(seeds: Iterable[int], options: Options, *, jobs: int = 1) -> Iterator[Outcome]:
    """The outcomes of many histories, in the order of their seeds, played by so many processes."""
    if jobs == 1:
        yield from map(partial(play, options=options), seeds)
        return
    with workers(jobs) as pool:
        yield from pool.map(partial(play, options=options), seeds, chunksize=5)
