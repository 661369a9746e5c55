"""Mistakes of clients and peers: one clear error or one defined outcome each, and no trace."""

import re

import pytest
from core_driven import Driven, sent

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.errors import SubscriptionError, VariableError
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.introspection.inspection import inspect
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Message,
    Refuse,
    Send,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import Motion

TICK = EventType("Tick", {"x": "int64", "s": "string"})
BELOW = parse("x < $limit", TICK)
PAIR = parse("x < $limit and s == $name", TICK)

WRONG = {
    "unknown variable": ({"limt": 5}, r"\$limt is unknown: x < \$limit and s == \$name has \$limit, \$name"),
    "wrong type": ({"limit": "much"}, r"\$limit: value 'much', expected a number"),
    "bool for a number": ({"limit": True}, r"\$limit: value True"),
    "number for a string": ({"name": 5}, r"\$name: value 5"),
    "NaN": ({"limit": float("nan")}, r"\$limit: value nan"),
    "null": ({"limit": None}, r"\$limit: value None"),
    "beyond 64 bits": ({"limit": 1 << 70}, r"\$limit: value"),
    "a list": ({"limit": [5]}, r"\$limit: value \[5\]"),
    "moving string": ({"name": Motion(1.0, 1.0)}, r"\$name: value 1.0"),
    "one right, one wrong": ({"limit": 7, "name": None}, r"\$name: value None"),
}


class Bench(Driven):
    """A broker between a subscribing client and a publishing neighbour, at rest."""

    def __init__(self, routing: str = "parametric") -> None:
        super().__init__("client/s", "broker/n", routing=routing)
        self("broker/n", Advertise(1, TICK))
        self("client/s", Subscribe(1, 1, PAIR, {"limit": 5, "name": "a"}))
        self.rest()

    def rest(self) -> list[Action]:
        return self("broker/n", Acknowledge(self.broker.tables.acks.newest_sent("broker/n")))

    def state(self) -> object:
        return inspect(self.broker)["types"]

    def refused(self, source: str, message: Message) -> Refuse:
        """The message's only refusal, which changes nothing; its epoch is settled."""
        before = self.state()
        done = self(source, message)
        refusals = [refusal for _, refusal in sent(done, Refuse)]
        assert len(refusals) == 1
        assert {to for to, _ in sent(done)} == {source}, "nothing is sent elsewhere"
        assert done[-1] == Send(source, Acknowledge(message.epoch))
        assert self.state() == before
        return refusals[0]


@pytest.mark.parametrize("routing", ["parametric", "static"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_broker_refuses_invalid_values_and_keeps_the_old_ones(wrong: str, routing: str) -> None:
    values, complaint = WRONG[wrong]
    bench = Bench(routing)
    if wrong == "moving string" and routing == "static":
        complaint = "expected a number"
    refusal = bench.refused("client/s", Update(2, 1, values))
    assert (refusal.status, refusal.epoch, refusal.subscription_id) == ("INVALID_ARGUMENT", 2, 1)
    assert re.search(complaint, refusal.reason), refusal.reason


@pytest.mark.parametrize("wrong", WRONG)
def test_a_client_refuses_invalid_values_before_sending(wrong: str) -> None:
    values, complaint = WRONG[wrong]
    session = ClientSession("s", engine="naive")
    mine, _ = session.subscribe(PAIR, {"limit": 5, "name": "a"})
    epoch = session.epoch
    with pytest.raises(VariableError, match=complaint):
        session.update(mine, values)
    assert (session.values(mine), session.epoch) == ({"limit": 5, "name": "a"}, epoch)


def test_an_update_of_a_cancelled_subscription_is_not_found() -> None:
    session = ClientSession("s", engine="naive")
    mine, _ = session.subscribe(BELOW, {"limit": 5})
    session.unsubscribe(mine)
    for call in (lambda: session.update(mine, {"limit": 6}), lambda: session.unsubscribe(mine)):
        with pytest.raises(SubscriptionError, match="subscription 1: it has ended or was never made"):
            call()
    bench = Bench()
    bench("client/s", Unsubscribe(2, 1))
    bench.rest()
    refusal = bench.refused("client/s", Update(3, 1, {"limit": 6}))
    assert (refusal.status, refusal.reason) == (
        "NOT_FOUND",
        "update of subscription 1: client/s has none of that id; it has ended or was never made",
    )


def test_an_update_that_races_an_unsubscribe_is_settled_and_leaves_no_state() -> None:
    """The client cancels during its update; later messages are refused."""
    session, bench = ClientSession("s", engine="naive"), Bench()
    bench("client/s", Unsubscribe(2, 1))
    session.epoch = 2
    mine, subscribe = session.subscribe(BELOW, {"limit": 5})
    messages = [*subscribe, *session.update(mine, {"limit": 6}), *session.unsubscribe(mine)]
    late = Update(session.epoch + 1, mine, {"limit": 9})
    session.epoch += 1
    answers = [answer for _, answer in sent(bench("client/s", *messages, late))]
    for answer in answers:
        if isinstance(answer, Refuse):
            (action,) = session.receive(answer)
            assert isinstance(action, Refuse)
    for _, answer in sent(bench.rest()):
        session.receive(answer)
    assert session.settled == session.epoch
    assert not bench.broker.tables.registry.live
    assert not list(bench.broker.tables.types["Tick"].outgoing["broker/n"].slots)
    assert not bench.broker.tables.acks.pending()


@pytest.mark.parametrize("source", ["broker/n", "client/s"])
def test_an_update_of_an_unknown_slot_is_refused(source: str) -> None:
    bench = Bench()
    refusal = bench.refused(source, Update(9, 77, {"1": 5}))
    assert refusal.status == "NOT_FOUND"
    assert "has none of that id" in refusal.reason
    before = bench.state()
    done = bench(source, Unsubscribe(10, 77))
    assert [message for _, message in sent(done)] == [Acknowledge(10)], (
        "an unknown subscription needs no removal"
    )
    assert bench.state() == before


def test_replays_without_a_ring_are_harmless() -> None:
    bench = Bench()
    for since_ns in (-1, 1, 1 << 62):
        epoch = bench.broker.tables.peers["client/s"].received + 1
        bench("client/s", Update(epoch, 1, {}, since_ns))
    assert bench.broker.tables.types["Tick"].ring is None


CONTAINS = parse("s contains $text", TICK)


@pytest.mark.parametrize("source", ["broker/n", "client/s"])
def test_subscriptions_over_the_texts_of_an_engine_are_refused(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.overlay.core.matching.matching.MOST_TEXTS", 3)
    x = Driven("client/s", "client/p", "broker/n")
    x("client/p", Advertise(1, TICK))
    for number, text in enumerate("abc", 1):
        x(source, Subscribe(number, number, CONTAINS, {"text": text}))
    state = x.broker.tables.types["Tick"]
    matching = state.links if source == "broker/n" else state.sessions

    def matching_ids() -> list[int]:
        rows = [{"s": "abcd"}] * 20
        _, uids = matching.match(EventPoints(EventBatch.from_pylist(TICK, rows))).ordered()
        return sorted(x.broker.tables.registry.subscription[uids[: len(uids) // 20]].tolist())

    assert matching_ids() == [1, 2, 3]
    reason = "over 3 different constants of contains and not suffix in the subscriptions to Tick"
    wide = parse("s contains 'a' or s not suffix 'd'", TICK)
    for message in (
        Subscribe(4, 4, CONTAINS, {"text": "d"}),
        Subscribe(5, 4, wide, {}),
        Subscribe(6, 1, parse("s not contains $a and s contains $b", TICK), {"a": "d", "b": "e"}),
    ):
        (refusal,) = [m for _, m in sent(x(source, message), Refuse)]
        assert (refusal.status, refusal.subscription_id) == ("RESOURCE_EXHAUSTED", message.subscription_id)
        assert reason in refusal.reason
        assert matching_ids() == [1, 2, 3]
    x(source, Subscribe(7, 4, CONTAINS, {"text": "b"}))  # a constant in use
    assert matching_ids() == [1, 2, 3, 4]
    (refusal,) = [m for _, m in sent(x(source, Update(8, 2, {"text": "e"})), Refuse)]
    assert (refusal.status, reason in refusal.reason) == ("RESOURCE_EXHAUSTED", True)
    x(source, Update(9, 1, {"text": "d"}), Update(10, 3, {"text": "e"}))  # each in place of its old one
    assert matching_ids() == [1, 2, 4]
    x(source, Unsubscribe(11, 3), Subscribe(12, 5, wide, {}))
    assert [m.status for _, m in sent(x(source, Subscribe(13, 6, wide, {})), Refuse)] == [
        "RESOURCE_EXHAUSTED"
    ]
