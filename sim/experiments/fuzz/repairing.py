"""Random histories of overlays whose links move: brokers die and come back or do not, join and leave,
networks split.

Links move around brokers that are dead or unreachable for longer than a second. Some pairs of brokers are far
apart, so that an event may arrive twice, over paths of unequal length. At rest brokers may still be dead and
parts still apart. Ten seconds after the last fault each upward link must be where the rule has it, computed
here from who reaches whom, and every link must carry the interest of the clients on its sides; events must
then reach all subscribers there.
"""

from __future__ import annotations

from itertools import combinations

from covey.sim.checkers import check_quiet, check_routes
from covey.sim.experiments.fuzz.history import FuzzHistory
from covey.sim.experiments.fuzz.options import FuzzOptions
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.topology import Topology

REPAIR_AFTER_NS = NS_PER_S
SETTLED_NS = 10 * NS_PER_S
_CALM_STEPS = 20
_MOST_BROKERS = 9
_RELOAD_NS = NS_PER_S
"""The longest time until a broker reads a changed file."""
_FAULTS_NS = 4 * NS_PER_S


class RepairHistory(FuzzHistory):
    """One history; `play` returns its outcome."""

    def __init__(self, seed: int, options: FuzzOptions) -> None:
        super().__init__(seed, options, repair_after_ns=REPAIR_AFTER_NS, reaches=self._same_part)
        self._pauses_ms = (1, 5, 20, 100, 1_500, 3_000)
        self._brokers = 3, 7
        self._calm = dict(self._weights)
        for fault in (self._partition, self._crash, self._rest):
            del self._calm[fault]
        self._weights |= {self._split: 4, self._heal: 4, self._partition: 4, self._rest: 8}
        self._weights |= dict.fromkeys((self._die, self._revive), 4 if options.crashes else 0)
        self._weights |= {self._join_broker: 2, self._leave_broker: 2}
        self._parts: dict[str, int] = {}
        """By broker, the part of the network where it is; 0 by default."""
        self._lost_pairs: dict[tuple[str, str], None] = {}
        self._roots: dict[str, str] = {}

    def _build(self, topology: Topology) -> None:
        super()._build(topology)
        moving = self.simulation.moving
        assert moving is not None
        for pair in combinations(self.simulation.brokers, 2):
            if self._random.random() < 0.3:
                moving.delays_ns[frozenset(pair)] = self._random.choice((60, 300)) * NS_PER_MS
        self._note_trees()

    def _some_broker(self) -> str:
        brokers = self.simulation.brokers
        alive = [name for name, broker in brokers.items() if broker.alive]
        return self._random.choice(alive or list(brokers))

    # --- faults ---------------------------------------------------------------------------------------------

    def _partition(self) -> None:
        brokers = list(self.simulation.brokers)
        if len(brokers) > 1:
            a, b = self._random.sample(brokers, 2)
            links = self.simulation.links
            pair = self._random.choice(links) if links and self._random.random() < 0.7 else (a, b)
            self._lost_pairs[pair] = None
            self._keep_apart()
            down_ns = self._random.choice((400, 3_000)) * NS_PER_MS
            self.simulation.clock.after(self._random.randrange(1, down_ns), self._find_again, pair)

    def _find_again(self, pair: tuple[str, str]) -> None:
        self._lost_pairs.pop(pair, None)
        self._keep_apart()

    def _split(self) -> None:
        self._parts = {name: self._random.randrange(3) for name in self.simulation.brokers}
        self._keep_apart()

    def _heal(self) -> None:
        self._parts = {}
        self._keep_apart()

    def _keep_apart(self) -> None:
        moving = self.simulation.moving
        assert moving is not None
        parts = self._parts
        split = [
            (a, b) for a, b in combinations(self.simulation.brokers, 2) if parts.get(a, 0) != parts.get(b, 0)
        ]
        moving.keep_apart([*split, *self._lost_pairs])

    def _crash(self) -> None:
        down_ms = self._random.choice((500, 4_000))
        self.simulation.crash(self._some_broker(), self._random.randrange(1, down_ms) * NS_PER_MS)

    def _die(self) -> None:
        """A broker crashes, and stays dead until it is started again, if ever."""
        name = self._some_broker()
        if self._others_run(name):
            self.simulation.crash(name, 0)

    def _others_run(self, name: str) -> bool:
        moving, brokers = self.simulation.moving, self.simulation.brokers
        assert moving is not None
        others = [brokers[f"broker/{each}"] for each in moving.rule.order if f"broker/{each}" != name]
        return any(broker.alive for broker in others)

    def _revive(self) -> None:
        dead = [name for name, broker in self.simulation.brokers.items() if not broker.alive]
        if dead:
            self.simulation.restart(self._random.choice(dead))

    # --- brokers that join and leave ------------------------------------------------------------------------

    def _join_broker(self) -> None:
        moving, brokers = self.simulation.moving, self.simulation.brokers
        assert moving is not None
        if len(moving.rule.order) < _MOST_BROKERS:
            to = self._random.choice(moving.rule.order)
            self.simulation.join_broker(f"broker/b{len(brokers)}", f"broker/{to}")
            self._reload()

    def _leave_broker(self) -> None:
        """A broker leaves, whether it runs or not."""
        moving = self.simulation.moving
        assert moving is not None
        name = f"broker/{self._random.choice(moving.rule.order)}"
        if self._others_run(name):
            self.simulation.leave_broker(name, self._reload)

    def _reload(self) -> None:
        for name in self.simulation.brokers:
            self.simulation.clock.after(self._random.randrange(_RELOAD_NS), self.simulation.reload, name)

    # --- rest -----------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """No new faults; let everything come to rest, and check."""
        simulation = self.simulation
        if self._random.random() < 0.5:
            self._heal()
        if self._random.random() < 0.5:
            for name in simulation.brokers:
                simulation.restart(name)
        for name, broker in simulation.brokers.items():
            if not broker.alive:
                simulation.abandon(name)
        self._publish_until(simulation.clock.now_ns + _FAULTS_NS)
        for name, broker in simulation.brokers.items():
            if not broker.alive:
                simulation.abandon(name)
        self._publish_until(simulation.clock.now_ns + SETTLED_NS)
        self._run()
        if self.findings:
            return
        self.judge.quiet()
        self.traffic.quiet()
        self._check_links()
        check_quiet(simulation, self.findings)
        check_routes(simulation, self.findings)
        self._note_trees()
        self._play_calmly()

    def _publish_until(self, until_ns: int) -> None:
        clock = self.simulation.clock
        while clock.now_ns < until_ns and not self.findings:
            self._publish()
            self._run(min(until_ns, clock.now_ns + 1 + self._random.randrange(400) * NS_PER_MS))

    def _play_calmly(self) -> None:
        """No new faults: every expected event must arrive."""
        actions, weights = list(self._calm), list(self._calm.values())
        for _ in range(_CALM_STEPS):
            self._random.choices(actions, weights)[0]()
            self._run(self.simulation.clock.now_ns + self._random.randrange(100) * NS_PER_MS)
            if self.findings:
                return
        self._run()
        if not self.findings:
            self.judge.quiet()
            self.traffic.quiet()

    def _check_links(self) -> None:
        """Each upward link is to the first candidate that its broker reaches."""
        uplinks = {lower: upper for upper, lower in self.simulation.links}
        for name, broker in self.simulation.brokers.items():
            expected, now_ns = self._expected_uplink(name), self.simulation.clock.now_ns
            if broker.alive and uplinks.get(name) != expected:
                sentence = f"{name} is linked to {uplinks.get(name)}: expected {expected}"
                self.findings.add("repair", now_ns, sentence)

    def _expected_uplink(self, name: str) -> str | None:
        moving = self.simulation.moving
        assert moving is not None
        candidates = [f"broker/{each}" for each in moving.rule.candidates(name.removeprefix("broker/"))]
        return next((each for each in candidates if moving.reach(name, each)), None)

    def _note_trees(self) -> None:
        uplinks = {lower: upper for upper, lower in self.simulation.links}
        for name in self.simulation.brokers:
            root, steps = name, 0
            while root in uplinks and steps <= len(uplinks):
                root, steps = uplinks[root], steps + 1
            self._roots[name] = root

    def _same_part(self, publisher: str, subscriber: str) -> bool:
        clients = self.simulation.clients
        here, there = (clients[name].broker for name in (publisher, subscriber))
        return self._roots.get(here) == self._roots.get(there)
