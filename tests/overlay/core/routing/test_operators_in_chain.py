"""Named operators in the overlay: which brokers evaluate, which results travel, which events stay
undecided."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from core_driven import Driven, sent
from core_network import Network

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.runner import Compute, Outcome, run_at_once
from covey.matcher.events.event_type import Kind
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register, unregister
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.introspection.explanations import explain, follow
from covey.overlay.core.matching import interest_matching
from covey.overlay.core.messages import Advertise, Deliver, Notice, Publish, Subscribe, Update
from covey.overlay.core.routing import ring

TRUCK = EventType("Truck", {"at": "float64", "load": "int64", "plate": "string"})
NEAR: list[tuple[float, float]] = []
"""Centre and event of each answer of t_near."""
CHAIN = [f"broker/b{i}" for i in range(1, 6)]


@pytest.fixture(autouse=True)
def asked() -> Iterator[list[tuple[str, Any, int]]]:
    """The calls of this process's operators: name, first constant, events."""
    calls: list[tuple[str, Any, int]] = []

    def near(at: pa.Array, center: float, radius: float) -> np.ndarray:
        calls.append(("t_near", center, len(at)))
        NEAR.extend([(center, value) for value in at.to_pylist()])
        return np.abs(at.to_numpy() - center) <= radius

    def digits(load: pa.Array) -> pa.Array:
        calls.append(("t_digits", None, len(load)))
        return pa.array([[int(d) for d in str(n)] for n in load.to_pylist()], pa.list_(pa.int64()))

    def rises(seen: list[float], at: pa.Array) -> np.ndarray:
        calls.append(("t_rises", None, len(at)))
        answers = []
        for value in at.to_pylist():
            answers.append(bool(seen) and value > seen[-1])
            seen.append(value)
        return np.array(answers, np.bool_)

    number, count = Parameter("x", NUMBERS), Parameter("n", frozenset({Kind.INT64}), Takes.FREE)
    operators = [
        NamedOperator("t_near", (number, number, number), near, cost_us=100.0),
        NamedOperator("t_digits", (Parameter("x", frozenset({Kind.INT64})), count), digits, cost_us=100.0),
        NamedOperator("t_rises", (number,), rises, state=list, cost_us=100.0),
    ]
    for operator in operators:
        register(operator)
    yield calls
    for operator in operators:
        unregister(operator.name)


def missing(*names: str) -> Evaluator:
    def run(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
        if operator.name in names:
            return Outcome([], 0, reason="is unknown here")
        return run_at_once(operator, key, events, compute)

    return Evaluator(run=run)


def chain(options: Callable[[str], dict[str, Any]] = lambda _: {}, **more: Any) -> Network:
    """Five brokers in a chain, a publisher at the first."""
    network = Network(options=options, **more)
    for name in CHAIN:
        network.broker(name)
    for a, b in pairwise(CHAIN):
        network.link(a, b)
    network.client("client/p", CHAIN[0], ClientSession("p", engine="naive"))
    network.advertise("client/p", TRUCK)
    network.run()
    return network


def reader(network: Network, name: str, broker: str, text: str, values: dict[str, object]) -> int:
    if f"client/{name}" not in network.clients:
        session = ClientSession(name, engine="naive", routing=network.routing)
        network.client(f"client/{name}", broker, session)
    subscription_id = network.subscribe(f"client/{name}", parse(text, TRUCK), values)
    network.run()
    return subscription_id


def publish(network: Network, *at: float, load: int = 0) -> None:
    network.publish("client/p", TRUCK, [{"at": a, "load": load, "plate": "x"} for a in at])
    network.run()


def delivered(network: Network, name: str) -> list[float]:
    return [at for _, batch in network.clients[f"client/{name}"].delivered for at in batch.values("at")]


def test_a_call_is_asked_once_per_event_in_the_whole_overlay() -> None:
    network = chain()
    for i, broker in enumerate(CHAIN):
        reader(network, f"c{i}", broker, "t_near(at, $a, 2) and load > $l", {"a": 10, "l": i})
        reader(network, f"d{i}", broker, "t_near(at, $a, 2) or load > 90", {"a": 10 * i})
    NEAR.clear()
    publish(network, 1, 9, 11, 20, 30, 41, load=50)
    assert len(NEAR) == len(set(NEAR))
    assert {center for center, _ in NEAR} == {0, 10, 20, 30, 40}
    assert delivered(network, "c4") == [9, 11]
    assert [delivered(network, f"d{i}") for i in range(5)] == [[1], [9, 11], [20], [30], [41]]
    accounts = [network.brokers[name].tables.evaluator.accounts for name in CHAIN]
    assert sum(each["t_near"].events for each in accounts) == len(NEAR)
    assert all(each["t_near"].reused for each in accounts[1:])


def test_without_shared_results_every_broker_asks(asked: list[tuple[str, Any, int]]) -> None:
    network = chain(lambda _: {"share_results": False})
    reader(network, "c", CHAIN[4], "t_near(at, $a, 2)", {"a": 10})
    asked.clear()
    publish(network, 9, 11, 20)
    assert [events for _, _, events in asked] == [3, 2, 2, 2, 2]


def test_at_the_edge_alone_events_travel_unasked(asked: list[tuple[str, Any, int]]) -> None:
    pass_on = Evaluator(run=lambda operator, key, events, compute: Outcome([], 0))
    network = chain(lambda _: {"link_evaluator": pass_on})
    reader(network, "c", CHAIN[4], "t_near(at, $a, 2)", {"a": 10})
    asked.clear()
    publish(network, 9, 11, 20)
    assert [events for _, _, events in asked] == [3]
    assert delivered(network, "c") == [9, 11]
    assert network.brokers[CHAIN[4]].tables.peers[CHAIN[3]].counters.events_received == 3


def test_a_broker_without_an_operator_passes_on_and_the_next_one_asks(
    asked: list[tuple[str, Any, int]],
) -> None:
    notices: list[Notice] = []

    def note(source: str, target: str, message: object) -> None:
        if isinstance(message, Notice) and target == "client/c":
            notices.append(message)

    network = chain(lambda name: {"evaluator": missing("t_near")} if name in CHAIN[:2] else {}, trace=note)
    reader(network, "c", CHAIN[4], "t_near(at, $a, 2) and load < 5", {"a": 10})
    reader(network, "d", CHAIN[1], "t_near(at, $a, 2)", {"a": 10})
    notices.clear()
    asked.clear()
    publish(network, 9, 11, 20)
    peers = [(network.brokers[name].tables.peers, before) for before, name in pairwise(CHAIN)]
    assert [each[before].counters.events_received for each, before in peers] == [3, 3, 2, 2]
    assert [events for _, _, events in asked] == [3, 3]  # the client d, and b3
    assert delivered(network, "c") == delivered(network, "d") == [9, 11]
    assert {notice.broker for notice in notices} == {"b1", "b2"}
    accounts = network.brokers[CHAIN[0]].tables.evaluator.accounts["t_near"]
    assert (accounts.events, accounts.undecided) == (0, 3)


def test_results_of_calls_with_solutions_travel(asked: list[tuple[str, Any, int]]) -> None:
    network = chain()
    reader(network, "c", CHAIN[4], "t_digits(load, ?n) and ?n > $least", {"least": 6})
    reader(network, "d", CHAIN[2], "t_digits(load, ?n) and ?n < $most", {"most": 3})
    asked.clear()
    publish(network, 1, 2, load=47)
    publish(network, 3, load=12)
    assert [name for name, _, _ in asked] == ["t_digits", "t_digits"]
    assert (delivered(network, "c"), delivered(network, "d")) == ([1, 2], [3])


@pytest.mark.parametrize("routing", ["parametric", "static"])
def test_a_moved_centre_is_one_update_along_the_slots(routing: str) -> None:
    kinds: list[str] = []
    network = chain(routing=routing, trace=lambda *sent: kinds.append(type(sent[2]).__name__))
    moving = reader(network, "c", CHAIN[4], "t_near(at, $a, 2)", {"a": 10})
    publish(network, 10, 20)
    kinds.clear()
    network.update("client/c", moving, {"a": 20})
    network.run()
    if routing == "parametric":
        assert [kind for kind in kinds if kind != "Acknowledge"] == ["Update"] * 5
    publish(network, 10, 20)
    assert delivered(network, "c") == [10, 20]


def test_an_event_that_overtakes_an_update_is_decided_by_the_client() -> None:
    network = chain()
    moving = reader(network, "c", CHAIN[4], "t_near(at, $a, 2)", {"a": 10})
    network.publish("client/p", TRUCK, [{"at": 10.0}, {"at": 11.5}])
    network.run(steps=5)
    network.update("client/c", moving, {"a": 13})
    network.run()
    assert delivered(network, "c") == [11.5]


def test_a_client_reuses_what_brokers_have_asked(asked: list[tuple[str, Any, int]]) -> None:
    """One of its calls is undecided at its broker: it evaluates again, that one alone."""
    network = chain(lambda name: {"evaluator": missing("t_digits")})
    reader(network, "c", CHAIN[4], "t_near(at, $a, 2)", {"a": 10})
    reader(network, "c", CHAIN[4], "t_digits(load, ?n) and ?n == 7", {})
    asked.clear()
    publish(network, 9, 20, load=7)
    assert asked == [("t_near", 10.0, 2), ("t_digits", None, 2)]
    assert delivered(network, "c") == [9, 9, 20]


# --- operators with state -------------------------------------------------------------------------


def test_only_the_reader_asks_an_operator_with_state_once_per_event(
    asked: list[tuple[str, Any, int]],
) -> None:
    network = chain()
    reader(network, "c", CHAIN[4], "t_rises(at) and load < 5", {})
    other = reader(network, "c", CHAIN[4], "load > $l", {"l": 7})
    publish(network, 1, 3, 2)
    publish(network, 9, load=8)
    network.update("client/c", other, {"l": 6})
    network.run()
    publish(network, 4)
    assert asked == [("t_rises", None, 3), ("t_rises", None, 1)]
    assert delivered(network, "c") == [3, 9, 4]
    accounts = [network.brokers[name].tables.evaluator.accounts for name in CHAIN]
    assert not any(each["t_rises"].events for each in accounts if "t_rises" in each)


def test_state_takes_no_step_for_events_that_come_again_or_are_read_again() -> None:
    session = ClientSession("c", engine="naive")
    rising, _ = session.subscribe(parse("t_rises(at)", TRUCK))
    other, _ = session.subscribe(parse("load > $l", TRUCK), {"l": 3})

    def deliver(first: int, *at: float) -> Deliver:
        events = EventBatch.from_pylist(TRUCK, [{"at": a, "load": 5} for a in at], publisher="p")
        events = events.stamped(first_sequence=first)
        return Deliver(events, np.arange(len(at) + 1), np.full(len(at), rising), 0)

    def got(matches: Any) -> list[float]:
        values = matches.batch.values("at")
        return [values[row] for row, i in zip(matches.rows, matches.ids, strict=True) if i == rising]

    waiting = session.matches(deliver(1, 1, 3, 2))
    assert got(waiting) == [3]
    again = session.matches(deliver(2, 3, 2, 5))  # after a resynchronisation
    assert got(again) == [5]
    session.update(other, {"l": 4})
    assert waiting is not None
    assert got(session.strict(waiting)) == [3]
    assert session.strict_reader(other)(waiting.batch, waiting.epoch) is None
    assert got(session.matches(deliver(5, 6, 4, 4.5))) == [6, 4.5]


def test_a_replay_for_one_subscription_takes_no_step_for_another() -> None:
    session = ClientSession("c", engine="naive")
    rising, _ = session.subscribe(parse("t_rises(at)", TRUCK))
    moving, _ = session.subscribe(parse("load > $l", TRUCK), {"l": 3})
    session.update(moving, {"l": 1}, since_ns=1)
    events = EventBatch.from_pylist(TRUCK, [{"at": 9.0, "load": 2}], publisher="p", first_sequence=1)
    live = EventBatch.from_pylist(TRUCK, [{"at": 10.0}, {"at": 20.0}], publisher="p", first_sequence=2)
    replayed = session.matches(Deliver(events, np.array([0, 1]), np.array([moving]), 0, True))
    assert replayed is not None
    session.update(moving, {"l": 0})  # while they wait
    assert session.strict(replayed).ids.tolist() == [moving]
    (one,) = session.receive(Deliver(live, np.array([0, 1, 2]), np.array([rising, rising]), 0))
    assert one.batch.values("at") == [20.0]


# --- bounds and faults ----------------------------------------------------------------------------


def test_results_over_the_bytes_of_a_batch_stay_behind_and_are_counted(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, Any, int]]
) -> None:
    monkeypatch.setattr(interest_matching, "MAX_RESULT_BYTES", 60)
    network = chain()
    reader(network, "c", CHAIN[1], "t_near(at, 10, 2) or t_near(at, 20, 2) or t_near(at, 30, 2)", {})
    asked.clear()
    publish(network, 10, 20, 30)
    assert delivered(network, "c") == [10, 20, 30]
    assert network.brokers[CHAIN[0]].tables.results.left_out > 0
    assert sum(events for _, _, events in asked) > 6


def test_a_message_keeps_its_bytes_while_its_batch_is_evaluated() -> None:
    """Both ends of a link count them, and the message may wait in a queue meanwhile."""
    x = Driven("client/p", "broker/n", "broker/m", "client/c")
    x("client/p", Advertise(1, TRUCK))
    near = parse("t_near(at, $a, 2)", TRUCK)
    x("broker/n", Subscribe(1, 1, near, {"a": 10}))
    x("client/c", Subscribe(1, 1, near, {"a": 11}))
    incoming = Publish(EventBatch.from_pylist(TRUCK, [{"at": 10.0}, {"at": 9.0}], publisher="p"))
    size = incoming.batch.nbytes
    (actions,) = (x("client/p", incoming),)
    ((_, publish),) = sent(actions, Publish)
    ((_, deliver),) = sent(actions, Deliver)
    assert incoming.batch.nbytes == size
    assert incoming.batch.results is None
    assert publish.batch.results is not None
    assert len(publish.batch.results) == 2  # of the session's call as well: it is decided first
    assert deliver.batch.results is None


def test_what_is_replayed_is_decided_and_asked_once(asked: list[tuple[str, Any, int]]) -> None:
    x = Driven("client/p", "broker/n", "client/c", replay_events=100)
    x("client/p", Advertise(1, TRUCK))
    near = parse("t_near(at, $a, 2)", TRUCK)
    x("broker/n", Subscribe(1, 1, near, {"a": 10}))
    x("client/c", Subscribe(1, 1, near, {"a": 10}))
    events = EventBatch.from_pylist(TRUCK, [{"at": a} for a in (10.0, 20.0, 21.0, 30.0)], publisher="p")
    x("client/p", Publish(events.stamped(ingress_ns=5)))
    asked.clear()
    for source in ("broker/n", "client/c"):
        actions = x(source, Update(2, 1, {"a": 20}, 1))
        ((_, again),) = sent(actions, Publish, Deliver)
        assert again.replayed
        assert again.batch.values("at") == [20.0, 21.0]
    assert asked == [("t_near", 20.0, 4)]


def test_results_of_stored_events_are_bounded_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, Any, int]]
) -> None:
    monkeypatch.setattr(ring, "MAX_RESULT_BYTES", 2_000)
    x = Driven("client/p", "client/c", "broker/n", replay_events=100)
    x("client/p", Advertise(1, TRUCK))
    near = parse("t_near(at, $a, 1)", TRUCK)
    for source in ("client/c", "broker/n"):
        x(source, Subscribe(1, 1, near, {"a": 0}))
    for number in range(5):
        events = EventBatch.from_pylist(TRUCK, [{"at": 9.0 * number}, {"at": 300.0 * number}], publisher="p")
        x("client/p", Publish(events.stamped(ingress_ns=5, first_sequence=2 * number + 1)))
    stored = x.broker.tables.types["Truck"].ring
    assert stored is not None
    replayed: list[float] = []
    for epoch in range(2, 42):
        for source in ("client/c", "broker/n"):
            actions = x(source, Update(epoch, 1, {"a": epoch}, 1))
            for _, message in sent(actions, Deliver, Publish):
                replayed += message.batch.values("at")
        found = [stored.find("p", number) for number in range(1, 11, 2)]
        assert None not in found
        assert sum(len(answers) for *_, answers in found) <= 4, "each takes about half a KiB"
    assert replayed == [at for at in (9.0, 18.0, 27.0, 36.0) for _ in range(2)]


def test_what_no_reader_decides_is_dropped_counted_and_told() -> None:
    session = ClientSession("c", engine="naive", evaluator=missing("t_near"))
    near, _ = session.subscribe(parse("t_near(at, $a, 2)", TRUCK), {"a": 10})
    events = EventBatch.from_pylist(TRUCK, [{"at": 10.0}, {"at": 9.0}], publisher="p")
    (action,) = session.receive(Deliver(events, np.array([0, 1, 2]), np.array([near, near]), 0))
    assert (len(action.batch), action.spurious) == (0, 2)
    assert session.evaluator.accounts["t_near"].undecided == 2
    assert session.take_notices() == [Notice("t_near", "", "is unknown here", 2, (near,))]
    assert session.take_notices() == []


# --- explanations ---------------------------------------------------------------------------------


def test_explain_shows_the_truth_of_every_call_and_who_has_no_answer() -> None:
    x = Driven("client/c", "client/p", evaluator=missing("t_digits"))
    x("client/p", Advertise(1, TRUCK))
    texts = {
        1: "t_near(at, $a, 2) and load < 5",
        2: "t_near(at, $a, 2) and t_digits(load, ?n) and ?n > 3",
        3: "t_near(at, $a, 2) and t_rises(at)",
    }
    for number, text in texts.items():
        x("client/c", Subscribe(number, number, parse(text, TRUCK), {"a": 10}))

    def explained(number: int, at: float, load: int) -> tuple[bool, bool, list[str], list[str]]:
        step = explain(x.broker, "client/c", number, {"at": at, "load": load, "extra": 1}, 0)
        return step["matches"], step["undecided"], step["failing"], step["calls"]

    near, far = "t_near(at, 10, 2) is true", "t_near(at, 10, 2) is false"
    assert explained(1, 9, 4) == (True, False, [], [near])
    assert explained(1, 9, 7) == (False, False, ["load < 5: the event has load 7", near], [near])
    assert explained(1, 90, 4) == (False, False, [far], [far])
    matches, undecided, failing, calls = explained(2, 9, 4)
    assert (matches, undecided, failing) == (True, True, [])
    assert calls[-1] == "operator t_digits at x is unknown here"
    matches, undecided, _, calls = explained(3, 9, 4)
    assert (matches, undecided) == (True, True)
    assert calls[-1] == "operator t_rises has state: the client evaluates it"
    assert x.broker.tables.evaluator.accounts == {}


def test_explain_shows_the_solutions_that_constraints_refuse() -> None:
    x = Driven("client/c", "client/p")
    x("client/p", Advertise(1, TRUCK))
    text = "t_digits(load, ?n) and t_digits(load, ?m) and ?n > $least + ?m"
    x("client/c", Subscribe(1, 1, parse(text, TRUCK), {"least": 2}))
    step = explain(x.broker, "client/c", 1, {"load": 345}, 0)
    assert not step["matches"]
    assert sorted(step["failing"]) == ["t_digits(load, ?m) binds 3, 4, 5", "t_digits(load, ?n) binds 3, 4, 5"]


def test_follow_shows_which_answers_came_and_which_were_asked_for() -> None:
    network = chain(lambda _: {"replay_events": 10})
    reader(network, "c", CHAIN[1], "t_near(at, 10, 2)", {})
    reader(network, "d", CHAIN[1], "t_near(at, $a, 3) and load < $l", {"a": 11, "l": 1})
    batch = network.publish("client/p", TRUCK, [{"at": 9.0, "load": 0}])
    network.run()
    steps = [follow(network.brokers[name], "Truck", batch.publisher, 1) for name in CHAIN[:2]]
    assert steps[0]["calls"] == {"t_near(at, 10.0, 2.0)": "true, asked here"}
    assert steps[1]["calls"] == {
        "t_near(at, 10.0, 2.0)": "true, received",
        "t_near(at, 11.0, 3.0)": "true, asked here",
    }
