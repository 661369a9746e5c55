"""The guarantees for changing subscriptions, over random schedules with delays, jitter and loss.

Each fails at some seed when its mechanism is switched off, by a seeded defect (`sim/simulator/defects.py`) if
a broker implements it. A seed draws brokers, events and changes; the checkers of `covey sim` judge.
"""

import random
from collections.abc import Callable

import pytest
from simulated import JudgedOverlay

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.sim.checkers import check_quiet
from covey.sim.simulator import Observer, WireOptions
from covey.sim.simulator.clock import NS_PER_MS
from covey.sim.simulator.defects import ClaimNewest, Defect, EarlyAcknowledge, NoReplay, SwapOrder
from covey.sim.simulator.observer import ObservedClient
from covey.sim.topology import Topology, TreeLink

TICK = EventType("Tick", {"x": "int64"})
TOCK = EventType("Tock", {"x": "int64"})
SEEDS = range(4)


class Seen(Observer):
    def __init__(self) -> None:
        self.events: dict[int, set[int]] = {}

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        seen = self.events.setdefault(action.subscription_id, set())
        seen.update(action.batch.sequences().tolist() if len(action.batch) else ())


class Schedule(JudgedOverlay):
    """A random overlay at rest, with a publisher at one end and a subscriber at another."""

    def __init__(self, seed: int, off: bool, defect: type[Defect] | None) -> None:
        self.off = off
        self.random = draw = random.Random(seed)
        super().__init__(
            seed=seed,
            engine="naive",
            defect=defect() if off and defect else None,
            replay_events=1000,
            link={"max_frame_bytes": draw.choice((1, 4 << 20)), "frames_in_flight": draw.choice((2, 1000))},
            wire=WireOptions(jitter_ns=draw.choice((10, 40)) * NS_PER_MS, loss=draw.choice((0.0, 0.1))),
        )
        self.seen = Seen()
        self.simulation.observers.append(self.seen)
        names = [f"b{i}" for i in range(draw.randint(3, 6))]
        links = [TreeLink(names[0], names[1], 5), TreeLink(names[1], names[2], 5)]
        links += [TreeLink(names[draw.randrange(i)], names[i], 5) for i in range(3, len(names))]
        self.simulation.build(Topology("schedule", tuple(names), tuple(links)))
        self.publisher = self.client("p", "b0")
        self.subscriber = self.client("s", "b2")
        self.publisher.advertise(TICK)
        self.run()

    def subscribe(self, text: str, event_type: EventType = TICK, **values: object) -> int:
        subscription = self.subscriber.subscribe(parse(text, event_type), values)
        self.simulation.run()
        return subscription

    def publish(self, *xs: int, event_type: EventType = TICK) -> list[int]:
        batch = self.publisher.publish(EventBatch.from_pylist(event_type, [{"x": x} for x in xs]))
        return batch.sequences().tolist()

    def wait(self, most_ms: int) -> None:
        self.simulation.run(self.clock.now_ns + self.random.randrange(most_ms * NS_PER_MS))

    def rest(self, broken: str = "") -> int:
        """Run to rest; returns the number of violations of one property. Others must hold."""
        self.simulation.run()
        self.judge.quiet()
        check_quiet(self.simulation, self.findings)
        assert self.findings.counts.keys() <= {broken}, self.findings.first
        return self.findings.counts.get(broken, 0)


def only_events_that_match_the_newest_values_are_delivered(schedule: Schedule) -> int:
    """The client matches again after its last change."""
    subscription = schedule.subscribe("x < $limit", limit=5)
    for _ in range(40):
        schedule.subscriber.update(subscription, {"limit": schedule.random.randrange(10)})
        schedule.publish(*(schedule.random.randrange(10) for _ in range(3)))
        schedule.wait(20)
    return schedule.rest("strictness")


def every_event_after_an_awaited_update_is_delivered(schedule: Schedule) -> int:
    """A broker acknowledges a change after its neighbours have; off: at once."""
    subscription, session = schedule.subscribe("x == $a", a=0), schedule.subscriber.session
    for moment in range(1, 20):
        schedule.subscriber.update(subscription, {"a": moment})
        while session.settled < session.epoch:
            schedule.wait(2)
        schedule.publish(moment)
        schedule.wait(60)
    assert schedule.judge.expected_events
    return schedule.rest("coverage")


def every_event_after_the_call_of_a_gapless_update_is_delivered(schedule: Schedule) -> int:
    """Brokers replay the events that passed them since the call."""
    subscription = schedule.subscribe("x == $a", a=0)
    schedule.subscribe("x == $a and x < 5", a=-1)
    for moment in range(1, 20):
        schedule.subscriber.update(subscription, {"a": moment}, gapless=True)
        published = [schedule.publish(moment) for _ in range(2)]
        schedule.wait(5)
        published += [schedule.publish(moment, moment + 1)[:1] for _ in range(3)]
        if moment % 4:
            schedule.simulation.run()
            seen = schedule.seen.events.get(subscription, set())
            assert schedule.off or seen >= {n for each in published for n in each}
    assert schedule.judge.expected_events
    return schedule.rest("coverage")


def events_that_old_and_new_match_are_not_missed(schedule: Schedule) -> int:
    """A wider subscription replaces the slot of a narrow one and ends again; off: USUB precedes SUB."""
    schedule.subscribe("x == $a", a=1)
    sent: list[int] = []
    wide = 0
    for moment in range(60):
        if moment % 2:
            schedule.subscriber.unsubscribe(wide)
        else:
            wide = schedule.subscriber.subscribe(parse("x < $limit", TICK), {"limit": 5})
        for _ in range(4):
            sent += schedule.publish(1)
            schedule.wait(5)
    schedule.rest("coverage")
    return len(set(sent) - schedule.seen.events[1])


def changes_become_visible_in_their_order(schedule: Schedule) -> int:
    """Once an event shows the second of two changes, all later events show the first; off: the changes happen
    in reverse order."""
    unordered = shown = 0
    schedule.publisher.advertise(TOCK)
    a, b = schedule.subscribe("x == $a", a=0), schedule.subscribe("x == $a", TOCK, a=0)
    for moment in range(1, 20):
        for subscription in (b, a) if schedule.off else (a, b):
            schedule.subscriber.update(subscription, {"a": moment})
            schedule.wait(5)
        tocks: list[int] = []
        ticks: list[int] = []
        for _ in range(10):
            tocks += schedule.publish(moment, event_type=TOCK)
            ticks += schedule.publish(moment)
            schedule.wait(5)
        schedule.simulation.run()
        of_b = [tock in schedule.seen.events.get(b, set()) for tock in tocks]
        of_a = [tick in schedule.seen.events.get(a, set()) for tick in ticks]
        shown += sum(of_b)
        unordered += sum(seen and not all(of_a[i:]) for i, seen in enumerate(of_b))
    assert shown
    schedule.rest()
    return unordered


def several_variables_change_at_once(schedule: Schedule) -> int:
    """Alternately only the left or the right side of `x < $a or x > $b` matches 7; off: the variables change
    one after the other."""
    subscription = schedule.subscribe("x < $a or x > $b", a=8, b=9)
    sent: list[int] = []
    for moment in range(40):
        values = {"a": 8, "b": 9} if moment % 2 else {"a": 1, "b": 2}
        for step in [{name: value} for name, value in values.items()] if schedule.off else [values]:
            schedule.subscriber.update(subscription, step)
            sent += schedule.publish(7)
            schedule.wait(4)
    schedule.rest()
    return len(set(sent) - schedule.seen.events[subscription])


Guarantee = tuple[Callable[[Schedule], int], type[Defect] | None]
GUARANTEES: list[Guarantee] = [
    # violations per schedule, and what switches the mechanism off, unless the schedule does
    (only_events_that_match_the_newest_values_are_delivered, ClaimNewest),
    (every_event_after_an_awaited_update_is_delivered, EarlyAcknowledge),
    (every_event_after_the_call_of_a_gapless_update_is_delivered, NoReplay),
    (events_that_old_and_new_match_are_not_missed, SwapOrder),
    (changes_become_visible_in_their_order, None),
    (several_variables_change_at_once, None),
]


@pytest.mark.parametrize("off", [False, True], ids=["kept", "off"])
@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda each: each[0].__name__)
def test_a_guarantee_is_kept(guarantee: Guarantee, off: bool) -> None:
    broken, defect = guarantee
    assert any(broken(Schedule(seed, off, defect)) for seed in SEEDS) == off
