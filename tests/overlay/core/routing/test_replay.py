"""Replays from the ring of recent events: receivers, duplicates, and its bound."""

import weakref
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from core_driven import Driven, sent

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.events.results import Answers, Results
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.reception import KEPT, Recent
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.introspection.inspection import inspect
from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.matching import matching as matching_module
from covey.overlay.core.matching.matching import Matching
from covey.overlay.core.matching.operator_matching import OperatorMatching
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Connect,
    Deliver,
    Disconnect,
    Message,
    Publish,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Update,
)
from covey.overlay.core.routing import ring as ring_module
from covey.overlay.core.routing.ring import MAX_BYTES, NO_SESSIONS, ReplayBytes, Ring, bytes_of_replay

TICK = EventType("Tick", {"x": "int64"})
BELOW = parse("x < $limit", TICK)
SECOND = 1_000_000_000


def batch(first: int, *xs: int, at_s: int) -> EventBatch:
    events = EventBatch.from_pylist(TICK, [{"x": x} for x in xs])
    return events.stamped(publisher="p", first_sequence=first, ingress_ns=at_s * SECOND)


class Bench(Driven):
    """A broker with a publisher `client/p`, a subscriber `client/s`, and a neighbour `broker/n`."""

    def __init__(self, replay_events: int = 1000, routing: str = "parametric") -> None:
        super().__init__("client/p", "client/s", "broker/n", replay_events=replay_events, routing=routing)
        self("client/p", Advertise(1, TICK))
        self("client/s", Subscribe(1, 7, BELOW, {"limit": 5}))
        self("broker/n", Subscribe(1, 1, BELOW, {"limit": 3}))

    def events(self, source: str, message: Message) -> list[tuple[str, bool, list[int]]]:
        """Events by receiver, and whether they are replays."""
        return [
            (to, events.replayed, events.batch.sequences().tolist())
            for to, events in sent(self(source, message), Publish, Deliver)
        ]


def test_a_gapless_update_replays_unsent_events_since_its_call() -> None:
    bench = Bench()
    assert bench.events("client/p", Publish(batch(1, 2, 4, 8, at_s=10))) == [
        ("broker/n", False, [1]),
        ("client/s", False, [1, 2]),
    ]
    bench.events("client/p", Publish(batch(4, 2, 4, 8, at_s=20)))
    assert bench.events("client/s", Update(2, 7, {"limit": 9}, 15 * SECOND)) == [("client/s", True, [6])]
    assert bench.events("client/s", Update(3, 7, {"limit": 10}, 15 * SECOND)) == [], "once is enough"
    assert bench.events("client/s", Update(4, 7, {"limit": 11}, 5 * SECOND)) == [("client/s", True, [3])]
    assert bench.events("broker/n", Update(2, 1, {"limit": 9}, 15 * SECOND)) == [("broker/n", True, [5, 6])]
    assert bench.events("broker/n", Update(3, 1, {"limit": 9}, 5 * SECOND)) == [("broker/n", True, [2, 3])]
    assert bench.events("broker/n", Update(4, 1, {}, SECOND)) == []
    assert bench.events("client/s", Update(5, 7, {"limit": 99})) == [], "an ordinary update replays nothing"


def test_a_gapless_update_is_forwarded_even_where_it_is_covered() -> None:
    bench = Bench()
    bench("broker/n", Advertise(2, TICK))
    bench("client/p", Subscribe(2, 1, BELOW, {"limit": 100}))
    actions = bench("client/s", Update(2, 7, {"limit": 9}, 15 * SECOND))
    forwarded = [message for to, message in sent(actions) if to == "broker/n"]
    assert [(type(m), m.values, m.since_ns) for m in forwarded] == [(Update, {}, 15 * SECOND)]
    assert not sent(actions, Acknowledge), "it waits for the neighbour"


def test_replayed_events_are_forwarded_as_replays_and_not_back() -> None:
    bench = Bench()
    bench("broker/n", Advertise(2, TICK))
    assert bench.events("broker/n", Publish(batch(1, 2, at_s=10), True)) == [("client/s", True, [1])]


def test_events_over_the_bound_are_evicted_and_short_replays_counted() -> None:
    bench = Bench(replay_events=4)
    for moment in range(10):
        bench.events("client/p", Publish(batch(2 * moment, 8, 8, at_s=moment + 1)))
    assert bench.events("client/s", Update(2, 7, {"limit": 9}, 10 * SECOND)) == [("client/s", True, [18, 19])]
    ring = inspect(bench.broker)["types"]["Tick"]["replay"]
    assert 0 < ring.pop("bytes") < 16_000
    assert ring == {"stored": 4, "bound": 4, "replayed": 2, "short": 0}
    assert bench.events("client/s", Update(3, 7, {"limit": 10}, SECOND)) == [("client/s", True, [16, 17])]
    assert inspect(bench.broker)["types"]["Tick"]["replay"]["short"] == 1


def test_records_count_towards_the_ring_bound() -> None:
    """A few events that match a hundred thousand subscriptions take more than ten thousand others."""
    ring = Ring(10_000)
    ids = np.arange(100_000)
    for moment in range(100):
        rows, serials = np.zeros(len(ids), np.int32), np.ones(len(ids), np.int64)
        ring.record(batch(moment, 1, at_s=moment), 9, {}, (rows, serials, ids))
    pairs = 20 * len(ids)
    assert MAX_BYTES - 2 * pairs < ring.events * pairs < MAX_BYTES
    everything = Interest(5, "client/s", 5, parse("x >= 0", TICK), {})
    matching = OperatorMatching(partial(Matching, "naive"), TICK, Evaluator(), reads=False)
    assert len(list(ring.to_session(2, everything, 95 * SECOND, matching))) == 5
    before, events = ring.nbytes, ring.events
    again = Interest(6, "client/s", 6, everything.filter, {})  # what tests the events is there already
    assert len(list(ring.to_session(2, again, 95 * SECOND, matching))) == 5
    assert ring.nbytes - before == 5 * bytes_of_replay(np.arange(1))
    assert ring.events == events
    assert emptied(ring) == 0


def emptied(ring: Ring) -> int:
    """The bytes of a ring after it has dropped all events, oldest first."""
    while ring.events:
        ring.drop_oldest()
    return ring.nbytes


READING = EventType(
    "Reading",
    {
        "x": "int64", "level": "float64", "name": "string", "on": "bool", "at": "timestamp",
        "tags": "list<string>",
    },
)  # fmt: skip
WIDER = EventType("Reading", {"more": "int64", **READING.attributes})
READINGS = [
    {},
    {"x": 2**62 + 1, "level": float("nan"), "name": "", "on": False, "at": "2020-01-01", "tags": []},
    {"x": -1, "level": -0.0, "name": "abc", "on": True, "at": "2020-01-02", "tags": ["a", "b"]},
    {"x": 2**62, "level": float("inf"), "name": "ab\0", "tags": ["ab"]},
    {"x": 7, "level": 0.1, "name": "ab", "on": True},
]
FILTERS = [
    "x < 4611686018427387905", "x != 7", "not (x < 0)", "x in (7, -1)", "x not in (7, -1)", "x > 6.5",
    "level >= 0", "level != 0.1", "not (level < 1)", "level == 0", "level <= 1 or x == 7",
    "not exists(level)",
    'name == "ab"', 'name > "ab"', 'name prefix "ab"', 'name suffix "c"', 'name contains "b"',
    'name not contains "b"', 'not (name suffix "c")', 'name != ""', "exists(name)", "on == true",
    "on != true", 'at > "2020-01-01"', "exists(tags)", "not exists(tags) and level > 0",
    'name contains "b" and (x > 0 or level < 1) and not exists(tags)', "x > 8 and x < 3", "exists(x)",
]  # fmt: skip


def recorded(events: list[EventBatch]) -> Ring:
    ring = Ring(10_000)
    for number, each in enumerate(events):
        first, at_ns = 100 * number, (10 + number) * SECOND
        ring.record(each.stamped(publisher="p", first_sequence=first, ingress_ns=at_ns), 9, {}, NO_SESSIONS)
    return ring


def engine_of(event_type: EventType, interest: Interest) -> OperatorMatching:
    matching = OperatorMatching(partial(Matching, "naive"), event_type, Evaluator(), reads=False)
    matching.put(interest, 3)
    return matching


def replays(ring: Ring, serial: int, interest: Interest) -> list[list[int]]:
    """The sequence numbers replayed to a link and to a session."""
    engine = engine_of(WIDER, interest)
    to_link = [each.sequences().tolist() for each in ring.to_link(serial, 3, interest, 1, engine)]
    assert to_link == [b.sequences().tolist() for b, _ in ring.to_session(serial, interest, 1, engine)]
    return to_link


@pytest.mark.parametrize("text", FILTERS)
def test_a_replay_has_what_the_engine_matches(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes of every kind, absent and NaN too, over wider and narrower schemas."""
    narrow = [EventBatch.from_pylist(READING, READINGS), EventBatch.from_pylist(READING, READINGS[2:3])]
    wide = EventBatch.from_pylist(WIDER, [{**each, "more": 1} for each in READINGS])
    rings = [recorded([*narrow, wide]) for _ in range(2)]
    for serial, event_type in enumerate((READING, WIDER, READING)):
        interest = Interest(5, "client/s", 5, parse(text, event_type), {})
        replayed = replays(rings[0], serial, interest)
        with monkeypatch.context() as patch:
            patch.setattr(matching_module, "_MOST_ALONE", -1)
            assert replays(rings[1], serial, interest) == replayed
    assert emptied(rings[0]) == 0


@pytest.mark.parametrize("batches", [1, 50])
def test_what_replays_compute_is_bounded_and_evicts_no_events(
    batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may update to ever new texts while nothing is published."""
    bound = 2_000 * batches
    monkeypatch.setattr(ring_module, "MAX_MASK_BYTES", bound)
    ring = recorded([EventBatch.from_pylist(READING, READINGS[4:])] * batches)
    size = ring.nbytes
    computed = []
    for number in range(100):
        interest = Interest(5, "client/s", 5, parse(f'name contains "{number}"', READING), {})
        assert not list(ring.to_session(2, interest, 9 * SECOND, engine_of(READING, interest)))
        computed.append(ring.nbytes - size)
    assert bound / 2 < max(computed) <= bound
    assert (ring.events, ring.short) == (batches, 0)
    if batches == 1:
        period = computed.index(0) + 1
        assert computed == (computed[:period] * 100)[:100], "what is beyond the bound is computed anew"
    assert emptied(ring) == 0


def test_replays_keep_no_long_constants_of_filters() -> None:
    """A client may update to a megabyte of text each time."""
    ring = recorded([EventBatch.from_pylist(READING, READINGS)])
    grown = []
    for number, text in enumerate(["b", "c" * 10, "c" * 10_000]):
        interest = Interest(5, "client/s", number, parse("name contains $text", READING), {"text": text})
        before = ring.nbytes
        replayed = list(ring.to_session(2, interest, 1, engine_of(READING, interest)))
        assert [len(events) for events, _ in replayed] == [3] * (number == 0)
        grown.append(ring.nbytes - before)
    assert grown[0] > grown[1] > grown[2] == 0


def test_records_of_replays_are_bounded_while_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = recorded([EventBatch.from_pylist(READING, READINGS)] * 50)
    plain = ring.nbytes
    never = Interest(5, "client/s", 100, parse("x == 99", READING), {})
    assert not list(ring.to_session(2, never, 1, engine_of(READING, never)))
    computed = (ring.nbytes - plain) // ring.events  # of each event, besides what the bound is of
    monkeypatch.setattr(ring_module, "MAX_BYTES", plain + 50_000)
    one_replay = 50 * bytes_of_replay(np.arange(len(READINGS)))
    for number in range(100):
        interest = Interest(5, "client/s", number, parse("x != 0", READING), {})
        list(ring.to_session(2, interest, 1, engine_of(READING, interest)))
        assert ring.nbytes - computed * ring.events <= ring_module.MAX_BYTES + one_replay
    assert 0 < ring.events < 50 * len(READINGS)
    assert emptied(ring) == 0


def record_with_results(ring: Ring, number: int) -> weakref.ref[npt.NDArray[np.bool_]]:
    """Record an event with an operator's results; returns their referent."""
    truths = np.array([True])
    results = Results({number: Answers(np.array([0]), truths)})
    events = batch(number, 1, at_s=10 + number).with_results(results)
    ring.record(events, 9, {}, NO_SESSIONS, results)
    return weakref.ref(truths)


def test_replays_keep_no_results_that_the_ring_has_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(100)
    answers = [record_with_results(ring, number) for number in range(2)]
    interest = Interest(5, "client/s", 5, parse("x > 5", TICK), {})
    assert not list(ring.to_session(2, interest, 1, engine_of(TICK, interest)))
    assert None not in [each() for each in answers]
    monkeypatch.setattr(ring_module, "MAX_RESULT_BYTES", 0)
    answers.append(record_with_results(ring, 2))
    assert [each() for each in answers] == [None] * 3
    assert ring.events == 3
    assert emptied(ring) == 0


def test_evicted_events_and_their_results_are_released() -> None:
    """Also where no operator is called any more."""
    ring = Ring(100)
    answers = [record_with_results(ring, number) for number in range(50)]
    assert None not in [each() for each in answers]
    for number in range(50, 140):
        ring.record(batch(number, 1, at_s=10 + number), 9, {}, NO_SESSIONS)
    assert [each() is None for each in answers] == [True] * 40 + [False] * 10, "those that the ring has"
    assert emptied(ring) == 0


@pytest.mark.parametrize("fold_after", [1, 2, 5, 40])
def test_what_is_folded_is_replayed_as_it_came(fold_after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of several publishers, sources and times, some already sent to links and sessions."""
    draw = np.random.default_rng(fold_after)
    early = Interest(6, "client/s", 6, parse("x < 10", WIDER), {})
    rings: list[Ring] = []
    for fold in (10**9, fold_after):
        monkeypatch.setattr(ring_module, "_FOLDED", fold)
        rings.append(Ring(10_000))
        events_of: list[tuple[str, int]] = []
        draw = np.random.default_rng(fold_after)
        for number in range(100):
            events = EventBatch.from_pylist(READING if number % 30 else WIDER, READINGS[: 1 + number % 3])
            publisher, first = f"p{draw.integers(3)}", int(draw.integers(2**40)) if number % 9 else number
            ingress_ns = (10 + number) * SECOND
            batch = events.stamped(publisher=publisher, first_sequence=first, ingress_ns=ingress_ns)
            if number % 4 == 0 and len(events) > 2:
                batch = batch.filter(np.array([True, False, True]))
            mask = draw.random(len(batch)) < 0.5
            rows = np.flatnonzero(draw.random(len(batch)) < 0.3).astype(np.int32)
            pairs = (rows, draw.integers(1, 3, len(rows)), draw.integers(4, 6, len(rows)))
            rings[-1].record(batch, int(draw.integers(7, 10)), {1: None if mask.all() else mask}, pairs)
            events_of += [(publisher, sequence) for sequence in batch.sequences().tolist()]
            if number == 50:  # what is folded later has records of a replay
                list(rings[-1].to_session(1, early, 1, engine_of(WIDER, early)))

    def described(batch: EventBatch) -> tuple[object, ...]:
        return (
            batch.publisher,
            batch.ingress_ns,
            batch.sequences().tolist(),
            batch.with_schema(WIDER).to_pylist(),
        )

    apart, together = rings
    assert together.nbytes <= {1: 1, 2: 0.7, 5: 0.4, 40: 0.4}[fold_after] * apart.nbytes
    for text in ("x < 10", "x != 0", "exists(level)", "not exists(x)"):
        interest = Interest(5, "client/s", 5, parse(text, WIDER), {})
        for since_ns in (1, 60 * SECOND, 105 * SECOND):
            for serial in (1, 2, 8):
                engine = engine_of(WIDER, interest)
                links = [
                    [repr(described(each)) for each in ring.to_link(serial, 3, interest, since_ns, engine)]
                    for ring in rings
                ]
                assert links[0] == links[1]
                sessions = [
                    [repr(described(each)) for each, _ in ring.to_session(serial, interest, since_ns, engine)]
                    for ring in rings
                ]
                assert sessions[0] == sessions[1]
    apart_counts, together_counts = apart.inspect(), together.inspect()
    assert together_counts.pop("bytes") <= apart_counts.pop("bytes")
    assert apart_counts == together_counts
    for publisher, sequence in events_of:
        found = [ring.find(publisher, sequence) for ring in rings]
        assert None not in found
        assert repr(found[0][:3]) == repr(found[1][:3])
    assert [emptied(ring) for ring in rings] == [0, 0]


def test_the_rings_of_all_types_have_a_common_bound() -> None:
    common = ReplayBytes(200_000)
    rings = [Ring(10_000, common) for _ in range(3)]
    for number in range(1_500):
        rings[number % 7 % 3].record(batch(number, 1, 2, at_s=number), 9, {}, NO_SESSIONS)
        assert common.used == sum(ring.nbytes for ring in rings) <= 200_000
    assert all(ring.events for ring in rings)
    rings[0].close()
    assert common.used == sum(ring.nbytes for ring in rings[1:])
    assert len(common.rings) == 2


@pytest.mark.parametrize("others", [2, 100])
def test_filters_of_any_size_are_tested(others: int) -> None:
    """Filters of many intervals by the engine."""
    bench = Bench()
    listed = parse(f"x in ({', '.join(str(2 * each + 4) for each in range(others))}) and x < $limit", TICK)
    bench("client/s", Subscribe(2, 8, listed, {"limit": 0}))
    bench("broker/n", Subscribe(2, 2, listed, {"limit": 0}))
    bench.events("client/p", Publish(batch(1, 5, 4, 4, 3, at_s=20)))
    update = Update(3, 8, {"limit": 5}, 15 * SECOND)
    assert bench.events("client/s", update) == [("client/s", True, [2, 3])]
    bench.events("client/p", Publish(batch(5, 12, 2 * others + 2, 2 * others + 3, at_s=21)))
    update = Update(3, 2, {"limit": 2 * others + 3}, 15 * SECOND)
    expected = [6] if others == 2 else [5, 6]
    assert bench.events("broker/n", update) == [("broker/n", True, [2, 3]), ("broker/n", True, expected)]


def test_a_replay_to_a_link_has_what_the_updated_filter_matches() -> None:
    """Other filters of the link have replays of their own updates."""
    bench = Bench()
    bench("broker/n", Subscribe(2, 2, parse("x > $low", TICK), {"low": 99}))
    bench.events("client/p", Publish(batch(1, 8, 50, at_s=20)))
    bench("broker/n", Update(3, 2, {"low": 40}))
    assert bench.events("broker/n", Update(4, 1, {"limit": 9}, 15 * SECOND)) == [("broker/n", True, [1])]
    assert bench.events("broker/n", Update(5, 2, {"low": 41}, 15 * SECOND)) == [("broker/n", True, [2])]


def test_a_client_delivers_once_an_event_that_is_delivered_and_replayed() -> None:
    session = ClientSession("s", engine="naive")
    one, _ = session.subscribe(BELOW, {"limit": 5})
    other, _ = session.subscribe(BELOW, {"limit": 50})
    session.update(one, {"limit": 9}, since_ns=1)

    def deliver(first: int, *xs: int, ids: list[int], replayed: bool = False) -> list[tuple[int, list[int]]]:
        offsets = np.arange(len(xs) + 1) * len(ids)
        message = Deliver(
            batch(first, *xs, at_s=1), offsets, np.array(ids * len(xs)), session.epoch, replayed
        )
        return [
            (action.subscription_id, action.batch.sequences().tolist())
            for action in session.receive(message)
            if isinstance(action, DeliverTo)
        ]

    assert deliver(5, 1, 2, ids=[one, other]) == [(one, [5, 6]), (other, [5, 6])]
    assert deliver(3, 1, 2, 3, 4, ids=[one, other], replayed=True) == [(one, [3, 4])]
    assert deliver(3, 1, 2, ids=[one, other], replayed=True) == []
    assert deliver(7, 1, ids=[one]) == [(one, [7])]


class Served:
    """A client of a broker; `routing` is both sides', `delivered` its delivered sequence numbers."""

    def __init__(self, bench: Bench, session: ClientSession) -> None:
        self.bench = bench
        self.session = session
        self.delivered: list[int] = []

    def take(self, actions: list[Action]) -> None:
        for to, message in sent(actions):
            if to == "client/me":
                for action in self.session.receive(message):
                    if isinstance(action, DeliverTo):
                        self.delivered += action.batch.sequences().tolist()

    def say(self, messages: list[Message]) -> None:
        for message in messages:
            self.take(self.bench("client/me", message))

    def publish(self, events: EventBatch) -> None:
        self.take(self.bench("client/p", Publish(events)))


@pytest.mark.parametrize("routing", ["parametric", "static"])
def test_events_delivered_just_before_the_call_are_not_delivered_again(routing: str) -> None:
    me = Served(Bench(routing=routing), ClientSession("me", routing=routing, engine="naive"))
    me.say([Connect()])
    _, messages = me.session.subscribe(BELOW, {"limit": 5})
    me.say(messages)
    me.publish(batch(1, 2, 8, at_s=10))
    me.publish(batch(3, 4, at_s=11))
    assert me.delivered == [1, 3]
    me.say(me.session.update(1, {"limit": 9}, since_ns=11 * SECOND + INGRESS_SPAN_NS // 2))
    assert me.delivered == [1, 3]
    since_ns = 20 * SECOND
    late = me.session.update(1, {"limit": 20}, since_ns=since_ns)
    me.publish(batch(4, 8, 15, 30, at_s=21))
    me.say(late)
    assert me.delivered == [1, 3, 4, 5]


@pytest.mark.parametrize("routing", ["parametric", "static"])
def test_a_gapless_update_replays_after_a_session_restart(routing: str) -> None:
    me = Served(Bench(routing=routing), ClientSession("me", routing=routing, engine="naive"))
    me.say([Connect()])
    _, messages = me.session.subscribe(BELOW, {"limit": 5})
    me.say(messages)
    me.bench("client/me", Disconnect())
    for seconds in (10, 12):
        me.session.update(1, {"limit": seconds}, since_ns=seconds * SECOND)
    me.publish(batch(1, 9, at_s=9))
    me.publish(batch(2, 9, 15, at_s=11))
    me.say([Connect(), *me.session.sync()])
    assert me.delivered == [2]
    assert me.session.settled == me.session.epoch
    assert [type(message) for message in me.session.sync()] == [SyncBegin, Subscribe, SyncEnd], "settled"


def test_the_delivered_events_that_a_subscription_records_are_bounded() -> None:
    recent = Recent()
    assert recent.fresh("p", np.arange(10)).all()
    assert recent.fresh("p", np.array([3, 10, 9])).tolist() == [False, True, False]
    assert recent.fresh("q", np.array([3])).all()
    assert recent.fresh("q", np.array([5, 6, 5, 6, 7])).tolist() == [True, True, False, False, True]
    for start in range(100, 100 + 4 * KEPT, 1000):
        assert recent.fresh("p", np.arange(start, start + 1000)).all()
    assert not recent.fresh("p", np.arange(100 + 4 * KEPT - KEPT // 2, 100 + 4 * KEPT - 2000)).any()
    stop = 100 + 4 * KEPT
    assert recent.unseen("p", np.arange(stop - 2 * KEPT - 1000)).all(), "older ones are forgotten"
    assert recent.unseen("q", np.array([3, 5, 6, 7])).all()
    assert INGRESS_SPAN_NS < SECOND
