"""Permissions by content: a policy is part of every filter, after every subscription and update."""

from collections.abc import Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
from core_endpoints import Noted, broker_endpoint, frame_of
from draws import DRAWS, SEED, examples
from hypothesis import assume, given
from hypothesis import strategies as st
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.matcher.expressions.expression import FALSE
from covey.overlay.core.access.guard import policy_of
from covey.overlay.core.access.rights import Action, Permission, Rights, Rule, rights_of
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.core.messages import Advertise, Deliver, Message, Publish, Refuse, Subscribe, Update

QUOTE = EventType("Quote", {"price": "float64", "region": "string"})
READER, PUBLISHER = "client/r", "client/p"


def rights(subject: str, action: Action, *permissions: Permission, **claims: object) -> Rights:
    of_action = {Action.SUBSCRIBE: "subscribe", Action.PUBLISH: "publish"}[action]
    return rights_of(subject, claims, [Rule(**{of_action: permissions})])


class Edge:
    """A broker with a reader and a publisher; either may have rights."""

    def __init__(
        self, event_type: EventType, reader: Rights | None = None, publisher: Rights | None = None
    ) -> None:
        self.event_type = event_type
        self.broker = broker_endpoint("b1", event_types=[event_type])
        self.ends = {READER: Noted(), PUBLISHER: Noted()}
        self.frames = dict.fromkeys(self.ends, 0)
        self.epochs = dict.fromkeys(self.ends, 0)
        self.published = 0
        for interface, held in ((READER, reader), (PUBLISHER, publisher)):
            hello = Hello(7, credit=1 << 40)
            self.broker.accept(ConnectRequest(interface, hello, rights=held), self.ends[interface], 0)
        self.say(PUBLISHER, Advertise(self.epoch(PUBLISHER), event_type))

    def epoch(self, interface: str) -> int:
        self.epochs[interface] += 1
        return self.epochs[interface]

    def say(self, interface: str, *messages: Message) -> list[Message]:
        """What each receives."""
        self.frames[interface] += 1
        frame = frame_of(self.frames[interface], *messages)
        self.broker.receive(interface, self.ends[interface], [frame], 0)
        if self.broker.deferred:
            self.broker.deliver()
        heard: list[Message] = []
        for name, end in self.ends.items():
            while (frame := self.broker.next_frame(name, end)) is not None:
                heard += frame.messages
                answer = Frame[Any](0, frame.sequence, 1 << 40)
                self.broker.receive(name, end, [answer], 0)
        return heard

    def subscribe(self, filter: Filter, values: Mapping[str, Any]) -> list[Refuse]:
        said = self.say(READER, Subscribe(self.epoch(READER), 1, filter, values))
        return [each for each in said if isinstance(each, Refuse)]

    def update(self, values: Mapping[str, Any]) -> list[Refuse]:
        said = self.say(READER, Update(self.epoch(READER), 1, values))
        return [each for each in said if isinstance(each, Refuse)]

    def publish(self, rows: list[dict[str, Any]]) -> tuple[list[int], list[Refuse]]:
        """The events that the reader gets, and the refusals."""
        first, self.published = self.published + 1, self.published + len(rows)
        batch = EventBatch.from_pylist(self.event_type, rows, publisher="p/1", first_sequence=first)
        heard = self.say(PUBLISHER, Publish(batch))
        delivered = [m.batch.sequences().tolist() for m in heard if isinstance(m, Deliver)]
        numbers = [int(number) - first for numbers in delivered for number in numbers]
        return numbers, [each for each in heard if isinstance(each, Refuse)]


@examples(150)
@given(st.data())
def test_no_policy_filter_and_update_leak_an_event(data: st.DataObject) -> None:
    event_type = data.draw(event_types())
    policy, *mine = (data.draw(filters(event_type)) for _ in range(3))
    assume(policy.expression != FALSE)  # which permits nothing
    claims = data.draw(values_of(policy.variables))
    permission = Permission("*", str(policy))
    held = rights("r", Action.SUBSCRIBE, permission, **claims)
    edge = Edge(event_type, reader=held)
    rows = data.draw(st.lists(events(event_type), min_size=1, max_size=6))

    def check(filter: Filter, values: Mapping[str, Any]) -> None:
        expected = [
            i for i, row in enumerate(rows) if policy.matches(row, claims) and filter.matches(row, values)
        ]
        assert edge.publish(rows) == (expected, [])

    for filter in mine:  # the second takes the place of the first
        values = dict(data.draw(values_of(filter.variables)))
        assert edge.subscribe(filter, values) == []
        check(filter, values)
        if filter.variables:
            moved = data.draw(values_of(filter.variables))
            assert edge.update(moved) == []
            check(filter, moved)
        hidden = [name for name in policy.variables if name not in filter.variables]
        for name in hidden:  # the variables of the policy are no variables of the client
            assert [each.status for each in edge.update({name: claims[name]})] == ["INVALID_ARGUMENT"]


REGIONS = ("eu", "us", "é", "")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
TRIPLES_OF_A_POLICY = 40


def random_text(rng: Random, variables: str, depth: int = 2) -> str:
    """A filter over the attributes of `QUOTE`, with variables p, q for prices and r, s for regions, or names
    with the prefix."""
    if depth and rng.random() < 0.55:
        parts = [random_text(rng, variables, depth - 1) for _ in range(rng.randint(1, 3))]
        joined = f"({rng.choice((' and ', ' or ')).join(parts)})"
        return f"not {joined}" if rng.random() < 0.25 else joined
    if rng.random() < 0.5:
        operand = f"${variables}{rng.choice('pq')}" if rng.random() < 0.6 else str(rng.randint(0, 5))
        return f"price {rng.choice(COMPARISONS)} {operand}"
    operand = f"${variables}{rng.choice('rs')}" if rng.random() < 0.6 else f"'{rng.choice(REGIONS)}'"
    return f"region {rng.choice(('==', '!=', '<', 'prefix'))} {operand}"


def random_values(rng: Random, names: Iterable[str]) -> dict[str, Any]:
    return {name: rng.choice(REGIONS) if name[-1] in "rs" else float(rng.randint(0, 5)) for name in names}


@pytest.mark.random
def test_random_triples_of_policy_filter_and_update_leak_no_event() -> None:
    """Delivered are the events that policy and filter match, with the claims and the newest values."""
    rng = Random(SEED)
    triples = delivered = 0
    while triples < DRAWS["policies by content"].count:
        policy = parse(random_text(rng, "claim_"), QUOTE)
        if policy.expression == FALSE:
            continue
        claims = random_values(rng, policy.variables)
        held = rights("r", Action.SUBSCRIBE, Permission("*", str(policy)), **claims)
        edge = Edge(QUOTE, reader=held)
        filter = values = None
        for _ in range(TRIPLES_OF_A_POLICY):
            if filter is None or not filter.variables or rng.random() < 0.2:
                filter = parse(random_text(rng, "", rng.randint(0, 2)), QUOTE)
                values = random_values(rng, filter.variables)
                assert edge.subscribe(filter, values) == []
            else:
                assert values is not None
                moving = rng.sample(filter.variables, rng.randint(1, len(filter.variables)))
                changed = random_values(rng, moving)
                values |= changed
                assert edge.update(changed) == []
            rows: list[dict[str, Any]] = [
                {"price": rng.choice((None, *map(float, range(6)))), "region": rng.choice((None, *REGIONS))}
                for _ in range(6)
            ]
            permitted = [policy.matches(row, claims) for row in rows]
            expected = [i for i, row in enumerate(rows) if permitted[i] and filter.matches(row, values)]
            context = (str(policy), claims, str(filter), values, rows)
            assert edge.publish(rows) == (expected, []), context
            triples += 1
            delivered += len(expected)
    assert delivered


def test_the_policy_is_not_in_what_the_client_is_told() -> None:
    held = rights("r", Action.SUBSCRIBE, Permission("Quote", "region == $tenant"), tenant="secret-eu")
    edge = Edge(QUOTE, reader=held)
    filter = parse("price < $limit", QUOTE)
    refusals = edge.subscribe(filter, {"limit": 5.0, "tenant": "us"})
    assert edge.subscribe(filter, {"limit": 5.0}) == []
    refusals += edge.update({"tenant": "us"}) + edge.update({"limit": "x"})
    assert [each.status for each in refusals] == ["INVALID_ARGUMENT"] * 3
    assert not [each for each in refusals if "region" in each.reason or "secret" in each.reason]
    rows = [{"price": 1.0, "region": region} for region in ("secret-eu", "us", None)]
    assert edge.publish(rows) == ([0], [])
    assert edge.update({"limit": 0.5}) == []
    assert edge.publish(rows) == ([], [])


def test_permissions_of_one_client_count_together() -> None:
    some = Permission("Quote", "region == $tenant")
    for granted, expected in (
        ((some, Permission("Q*", "price > 8")), [0, 2]),
        ((some, Permission("Quote")), [0, 1, 2]),
        ((some, Permission("Other")), [0]),
    ):
        edge = Edge(QUOTE, reader=rights("r", Action.SUBSCRIBE, *granted, tenant="eu"))
        assert edge.subscribe(parse("", QUOTE), {}) == []
        rows = [{"price": p, "region": r} for p, r in ((1.0, "eu"), (2.0, "us"), (9.0, "us"))]
        assert edge.publish(rows) == (expected, [])


@pytest.mark.parametrize(
    ("where", "claims"),
    [
        ("region == $tenant", {}),
        ("region == $tenant", {"tenant": 7}),
        ("region == $tenant", {"tenant": ["eu"]}),
        ("colour == $tenant", {"tenant": "eu"}),
        ("price <<", {}),
        ("matches(region, 'e.*')", {}),
        ("weekday(price)", {}),
    ],
)
def test_a_policy_that_cannot_be_decided_permits_nothing(where: str, claims: dict[str, object]) -> None:
    held = rights("r", Action.SUBSCRIBE, Permission("Quote", where), **claims)
    edge = Edge(QUOTE, reader=held)
    (refusal,) = edge.subscribe(parse("price < $limit", QUOTE), {"limit": 5.0})
    assert (refusal.status, refusal.reason) == (
        "PERMISSION_DENIED",
        "'r' may not subscribe to events of type 'Quote'",
    )
    assert edge.publish([{"price": 1.0, "region": "eu"}]) == ([], [])
    told: list[str] = []
    assert policy_of(held, Action.SUBSCRIBE, QUOTE, told.append) is not None
    assert told[0].startswith(f"policy {where!r} of Quote permits nothing: ")


def test_a_schema_without_the_attribute_of_the_policy_does_not_escape_it() -> None:
    held = rights("r", Action.SUBSCRIBE, Permission("Quote", "region == $tenant"), tenant="eu")
    edge = Edge(QUOTE, reader=held)
    narrow = EventType("Quote", {"price": "float64"})
    assert edge.subscribe(parse("price > 0", narrow), {}) == []
    rows = [{"price": 1.0, "region": region} for region in ("eu", "us")]
    assert edge.publish(rows) == ([0], [])
    other = EventType("Quote", {"region": "int64"})
    (refusal,) = edge.subscribe(parse("", other), {})
    assert refusal.status == "ALREADY_EXISTS"
    assert edge.publish(rows) == ([0], []), "the subscription before it stays"


def test_the_events_of_a_publisher_match_its_policy() -> None:
    held = rights("p", Action.PUBLISH, Permission("Quote", "region == $tenant"), tenant="eu")
    edge = Edge(QUOTE, publisher=held)
    assert edge.subscribe(parse("", QUOTE), {}) == []
    regions = ["eu", "us", None, "eu", "us"]
    delivered, refusals = edge.publish([{"price": 1.0, "region": region} for region in regions])
    assert delivered == [0, 3]
    assert [(each.first_sequence, each.count) for each in refusals] == [(2, 2), (5, 1)]
    assert {each.status for each in refusals} == {"PERMISSION_DENIED"}
    assert "eu" not in refusals[0].reason
    assert edge.publish([{"price": 1.0, "region": "us"}])[0] == []
    assert edge.broker.guard.denials == {"publish": 4}


def test_a_publisher_of_a_type_that_it_may_not_publish_is_not_told_to_hold_it() -> None:
    """A Hold would disclose that the type exists, and has slow readers."""
    edge = Edge(QUOTE, publisher=rights("p", Action.PUBLISH))
    edge.broker.holds.set_full("client/slow", ["Quote"])
    heard = []
    for name in ("Quote", "Nothing"):
        batch = EventBatch.from_pylist(EventType(name, {"x": "int64"}), [{"x": 1}], publisher="p/1")
        (message,) = edge.say(PUBLISHER, Publish(batch))
        heard.append(str(message).replace(name, "T"))
    assert heard[0] == heard[1]
    assert "PERMISSION_DENIED" in heard[0]


def test_a_durable_session_goes_on_with_rights_to_all_that_it_has() -> None:
    """A restart does not restore rights; the session is kept while a type is taken away."""
    edge = Edge(QUOTE)
    connect = partial(edge.broker.accept, connection=Noted(), now_ns=0)
    both = rights("d", Action.SUBSCRIBE, Permission("Quote"), Permission("Other"))
    policy = rights("d", Action.SUBSCRIBE, Permission("Quote", "price > 1"))
    with pytest.raises(ConnectionRefusedError, match="expected permissions to subscribe without policies"):
        connect(ConnectRequest("client/d", Hello(7), durable=True, rights=policy))
    connect(ConnectRequest("client/d", Hello(7), durable=True, rights=both))
    queue = edge.broker.queues["client/d"]
    queue.durable = True  # as with a storage
    edge.broker.core.handle(Subscribe(1, 1, parse("", QUOTE), {}), "client/d", 0)
    for held in (rights("d", Action.SUBSCRIBE, Permission("Q*")), None, both):
        edge.broker.lost("client/d", queue.connection, 0)
        connect(ConnectRequest("client/d", Hello(7), durable=True, rights=held))
        assert edge.broker.queues["client/d"] is queue, held
    edge.broker.lost("client/d", queue.connection, 0)
    other = rights("d", Action.SUBSCRIBE, Permission("Other"))
    with pytest.raises(ConnectionRefusedError, match="'d' may not have all that its durable") as denied:
        connect(ConnectRequest("client/d", Hello(7), durable=True, rights=other))
    assert denied.value.status == "PERMISSION_DENIED"
    assert "Quote" not in str(denied.value)
    assert edge.broker.queues["client/d"] is queue
    connect(ConnectRequest("client/d", Hello(7), rights=other))
    assert edge.broker.queues["client/d"] is not queue
    assert not edge.broker.core.tables.peers["client/d"].subscriptions


def test_a_client_without_a_durable_session_ends_one_that_its_policies_do_not_permit() -> None:
    """Else filters that it adds under a policy would be stored with the policy in them."""
    edge = Edge(QUOTE)
    other = rights("d", Action.SUBSCRIBE, Permission("Other"))
    ends = [Noted(), Noted()]
    edge.broker.accept(ConnectRequest("client/d", Hello(9), durable=True, rights=other), ends[0], 0)
    queue = edge.broker.queues["client/d"]
    queue.durable = True  # as with a storage
    edge.broker.lost("client/d", ends[0], 0)
    policy = rights("d", Action.SUBSCRIBE, Permission("Quote", "price > 1"))
    edge.broker.accept(ConnectRequest("client/d", Hello(9), rights=policy), ends[1], 0)
    assert edge.broker.queues["client/d"] is not queue


def test_other_rights_of_a_durable_session_bring_another_policy_for_its_events() -> None:
    edge = Edge(QUOTE)
    edge.subscribe(parse("", QUOTE), {})
    rule = Rule(publish=(Permission("Quote", "region == $tenant"),))
    for first, tenant in ((1, "east"), (3, "west")):
        connection = Noted()
        held = rights_of("d", {"tenant": tenant}, [rule])
        hello = Hello(9, credit=1 << 40)
        edge.broker.accept(ConnectRequest("client/d", hello, durable=True, rights=held), connection, 0)
        edge.ends["client/d"], edge.frames["client/d"] = connection, 0
        edge.broker.queues["client/d"].durable = True  # as with a storage
        advertise = Advertise(first, QUOTE)
        rows = [{"price": 1.0, "region": region} for region in ("east", "west")]
        batch = EventBatch.from_pylist(QUOTE, rows, publisher="d/1", first_sequence=first)
        heard = edge.say("client/d", advertise, Publish(batch))
        (delivered,) = (each.batch.to_pylist() for each in heard if isinstance(each, Deliver))
        assert [row["region"] for row in delivered] == [tenant]
        edge.broker.lost("client/d", connection, 0)
        edge.broker.queues["client/d"].link.forget_peer()


def test_a_claim_of_a_name_for_a_durable_session_that_rights_refuse_leaves_the_holder_alone() -> None:
    edge = Edge(QUOTE)
    policy = rights("d", Action.SUBSCRIBE, Permission("Quote", "price > 1"))
    holder = Noted()
    edge.broker.accept(ConnectRequest("client/d", Hello(9), rights=policy), holder, 0)
    with pytest.raises(ConnectionRefusedError, match="without policies"):
        edge.broker.accept(ConnectRequest("client/d", Hello(10), durable=True, rights=policy), Noted(), 0)
    assert edge.broker.queues["client/d"].connected
    assert not holder.end


def test_rights_differ_by_the_claims_that_policies_name() -> None:
    rule = Rule(subscribe=(Permission("*", "region == $tenant"),))
    eu, us = ({"tenant": tenant, "jti": tenant} for tenant in ("eu", "us"))
    assert rights_of("r", eu, [rule]) != rights_of("r", us, [rule])
    assert rights_of("r", eu, [rule]) == rights_of("r", {**eu, "jti": "2"}, [rule])
    assert rights_of("r", eu, [rule]).claims == {"tenant": "eu"}
