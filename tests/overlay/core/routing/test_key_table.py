"""The last events of keys: joined batches, bounds, and views at evictions."""

import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from core_driven import Driven, sent

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.introspection.inspection import inspect
from covey.overlay.core.messages import (
    Advertise,
    Deliver,
    Publish,
    Refuse,
    Subscribe,
    Tick,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.key_columns import NumberedHolders
from covey.overlay.core.routing.key_table import KeyAges, KeyTable
from covey.sim.invariants import check

SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
ALL = parse("x >= $low", SHIP)
S, P, N = "client/s", "client/p", "broker/n"


def batch(first: int, *events: tuple[int | None, int], publisher: str = "p") -> EventBatch:
    rows: list[dict[str, object]] = [{"id": key, "x": x} for key, x in events]
    return EventBatch.from_pylist(SHIP, rows).stamped(publisher=publisher, first_sequence=first)


def content(table: KeyTable) -> dict[int, tuple[str, int]]:
    return {
        row["id"]: (events.publisher, row["x"])
        for events, _ in table.events(table.everything())
        for row in events.to_pylist()
    }


def test_a_table_has_the_last_event_of_each_key_however_batches_come() -> None:
    choose, table, expected = random.Random(3), KeyTable("id"), dict[int, tuple[str, int]]()
    for number in range(1_000):
        publisher = choose.choice("pqr")
        events = [(choose.randrange(300), choose.randrange(99)) for _ in range(choose.choice([1, 1, 2, 40]))]
        table.take(batch(number * 100, *events, (None, 1), publisher=publisher), 1)
        expected.update({key: (publisher, x) for key, x in events})
        if number % 250 == 0:
            gone = choose.randrange(300)
            table.drop(table.rows_of(batch(0, (gone, 0)))[table.rows_of(batch(0, (gone, 0))) >= 0])
            expected.pop(gone, None)
            assert content(table) == expected
    assert content(table) == expected
    assert len(table) == len(expected)
    table.drop(table.everything())
    assert (len(table), table.inspect()["bytes"]) == (0, 0)


def test_single_events_take_little_more_than_together() -> None:
    apart, together = KeyTable("id"), KeyTable("id")
    together.take(batch(0, *[(key, key) for key in range(5_000)]), 1)
    for key in range(5_000):
        apart.take(batch(key, (key, key)), 1)
    assert content(apart) == content(together)
    assert apart.inspect()["bytes"] < 1.1 * together.inspect()["bytes"]


def test_bytes_are_bounded() -> None:
    table = KeyTable("id", max_bytes=100_000)
    for number in range(200):
        table.take(batch(number * 100, *[(number * 50 + i, i) for i in range(50)]), 1)
        evict(table)
    assert table.inspect()["bytes"] <= 100_000
    assert 9_999 in content(table)


def evict(table: KeyTable) -> None:
    while len(excess := table.excess()):
        table.drop(excess)


class Counting(KeyTable):
    joins = 0

    def joined(self, rows: npt.NDArray[np.int64]) -> Iterator[tuple[EventBatch, npt.NDArray[np.int64]]]:
        self.joins += len(rows) == len(self)
        return super().joined(rows)


def test_what_nearly_fills_a_table_is_not_joined_again_at_every_batch() -> None:
    table = Counting("id")
    table.take(batch(0, *[(i, i) for i in range(10_000)]), 1)
    table.max_bytes = table.inspect()["bytes"] * 100 // 99
    for number in range(1, 400):
        table.take(batch(number * 10_000, *[((number * 100 + i) % 10_000, number) for i in range(100)]), 1)
        evict(table)
        assert table.inspect()["bytes"] <= table.max_bytes
    assert 1 < table.joins <= 2 + 2 * 4 * 4, "all of it came four times, and there are two for each quarter"
    assert len(table) >= 7_000
    assert {399 * 100 % 10_000 + i for i in range(100)} <= set(content(table)), "the newest ones"


def test_an_event_that_is_larger_than_the_bound_is_evicted() -> None:
    table = KeyTable("id", max_bytes=10)
    table.take(batch(0, (1, 1)), 1)
    evict(table)
    assert (len(table), table.inspect()["bytes"]) == (0, 0)


def test_the_bits_of_numbers_follow_what_comes_and_goes() -> None:
    choose, holders, bits = random.Random(5), NumberedHolders(), dict[int, int]()
    holders.resize(4)
    for _ in range(600):
        number = choose.randrange(200)
        if number in bits and choose.random() < 0.6:
            holders.discard(number)
            del bits[number]
        else:
            bits[number] = holders.add(number)
        numbers = np.array([choose.randrange(220) for _ in range(20)])
        assert holders.among(numbers).tolist() == [each in bits for each in numbers.tolist()]
        events = np.array([choose.randrange(3) for _ in numbers])
        expected = {(bits[n], e) for n, e in zip(numbers.tolist(), events.tolist(), strict=True) if n in bits}
        divided = holders.divided(holders.of_pairs(3, events, numbers))
        assert {(bits[n], e) for n, own in divided for e in own.tolist()} == expected
    assert max(bits.values()) < 200, "bits are used again"


def test_evicted_keys_leave_views_and_neighbours_and_are_counted() -> None:
    x = Driven(S, P, N)
    x(P, Advertise(1, SHIP))
    x(S, Subscribe(1, 7, ALL, {"low": 0}, for_views=True))
    x(N, Subscribe(1, 1, ALL, {"low": 0}))
    table = x.broker.tables.types["Ship"].keys
    table.max_keys = 4
    x(P, Publish(batch(1, (1, 10), (2, 20), (3, 30), (4, 40))))
    departures = [
        (to, [row["id"] for row in message.batch.to_pylist()])
        for to, message in sent(x(P, Publish(batch(5, (5, 50)))), Publish, Deliver)
        if isinstance(message, (Publish, Deliver)) and message.for_views and not message.replayed
    ]
    assert len(departures) == 2
    ((_, (gone,)), (_, (same,))) = departures
    assert gone == same != 5
    assert {to for to, _ in departures} == {S, N}
    assert set(content(table)) == {1, 2, 3, 4, 5} - {gone}
    assert inspect(x.broker)["types"]["Ship"]["keys"]["evicted"] == 1


def test_an_update_that_follows_is_answered_by_the_difference_any_other_by_all_that_is_inside() -> None:
    x = Driven(S, P)
    x(P, Advertise(1, SHIP))
    x(P, Publish(batch(1, *[(key, key) for key in range(10)])))
    box = parse("x between $low and $high", SHIP)

    def answered(message: Subscribe | Update) -> list[int]:
        replies = [reply for _, reply in sent(x(S, message), Deliver)]
        assert all(isinstance(reply, Deliver) and reply.replayed for reply in replies)
        return [row["id"] for reply in replies for row in reply.batch.to_pylist()]

    def update(epoch: int, low: int, after: int) -> Update:
        return Update(epoch, 7, {"low": low, "high": low + 4}, for_views=True, after_epoch=after)

    assert answered(Subscribe(1, 7, box, {"low": 0, "high": 4}, for_views=True)) == [0, 1, 2, 3, 4]
    assert answered(update(2, 2, after=1)) == [5, 6]
    assert answered(update(3, 0, after=2)) == [0, 1], "what has left is sent again"
    assert answered(update(5, 1, after=4)) == [1, 2, 3, 4, 5], "the update of epoch 4 never came here"
    assert answered(update(6, 1, after=5)) == []
    assert answered(update(7, 1, after=0)) == [1, 2, 3, 4, 5]
    x(P, Publish(batch(11, (3, 3))))
    assert answered(update(8, 3, after=7)) == [6, 7], "it has the new event of key 3"


def test_keys_without_an_event_for_too_long_leave_where_they_are_published() -> None:
    x = Driven(S, P, N, key_max_age_s={"Ship": 16.0})
    second = 10**9

    def departed(now_s: float) -> list[tuple[str, list[int]]]:
        actions = x("", Tick(), now_ns=round(now_s * second))
        messages = sent(actions, Publish, Deliver)
        assert all(m.for_views and not m.replayed for _, m in messages)
        return [(to, [row["id"] for row in m.batch.to_pylist()]) for to, m in messages]

    x(P, Advertise(1, SHIP))
    x(N, Advertise(1, SHIP), Subscribe(2, 1, ALL, {"low": 0}))
    x(S, Subscribe(1, 7, ALL, {"low": 0}, for_views=True))
    assert x.broker.next_timer() is None
    x(P, Publish(batch(1, (1, 10), (2, 20))), now_ns=2 * second)
    x(N, Publish(batch(1, (3, 30), publisher="q")), now_ns=2 * second)
    assert x.broker.next_timer() == 18 * second
    x(P, Publish(batch(3, (2, 21))), now_ns=10 * second)
    assert departed(17) == []
    assert departed(18) == [(N, [1]), (S, [1])]
    assert x.broker.next_timer() == 26 * second
    x(P, Publish(batch(4, (4, 40))), now_ns=26 * second - 1)
    assert departed(26) == [(N, [2]), (S, [2])]
    assert departed(42) == [(N, [4]), (S, [4])]
    assert x.broker.next_timer() is None, "key 3 is its neighbour's to retire"
    table = inspect(x.broker)["types"]["Ship"]["keys"]
    assert (table["keys"], table["aged"], table["evicted"]) == (1, 3, 0)
    x(P, Publish(batch(5, (1, 11))), now_ns=50 * second)
    assert x.broker.next_timer() == 66 * second


@pytest.mark.parametrize("defer", [False, True])
def test_the_tables_of_all_types_have_a_common_bound(defer: bool) -> None:
    types = [EventType(f"T{i}", {"id": "int64", "text": "string"}, key="id") for i in range(3)]
    x = Driven(S, P, N, max_key_bytes=100_000)
    shown: dict[str, set[int]] = {each.name: set() for each in types}
    for i, each in enumerate(types, 1):
        x(P, Advertise(i, each))
        x(S, Subscribe(i, i, parse("id >= 0", each), {}, for_views=True))
    choose, first = random.Random(7), dict.fromkeys(shown, 0)
    for _ in range(120):
        messages = []
        for each in choose.choices(types, [6, 3, 1], k=2):
            rows: list[dict[str, object]] = [
                {"id": choose.randrange(2_000), "text": "x" * choose.randrange(200)} for _ in range(10)
            ]
            events = EventBatch.from_pylist(each, rows).stamped(
                publisher="p", first_sequence=first[each.name]
            )
            first[each.name] += 10
            messages.append(Publish(events))
        actions = x.broker.handle_all(messages, P, 0, defer=defer)
        actions += x.broker.deliver()
        check(x.broker)
        for to, message in sent(actions, Deliver):
            assert to == S
            ids = {row["id"] for row in message.batch.to_pylist()}
            if message.for_views:
                shown[message.batch.event_type.name] -= ids
            else:
                shown[message.batch.event_type.name] |= ids
        tables = {name: x.broker.tables.types[name].keys for name in shown}
        sizes = {name: table.nbytes for name, table in tables.items() if table is not None}
        assert sum(sizes.values()) == x.broker.tables.key_bytes.used <= 100_000
        for name, table in tables.items():
            held = {row["id"] for events, _ in table.events(table.everything()) for row in events.to_pylist()}
            assert held == shown[name], "what was evicted has left the view"
    assert sum(inspect(x.broker)["types"][name]["keys"]["evicted"] for name in shown) > 500
    x(P, *[Unadvertise(4 + i, each.name) for i, each in enumerate(types)])
    x(S, *[Unsubscribe(4 + i, 1 + i) for i in range(3)])
    assert (x.broker.tables.key_bytes.used, x.broker.known_types()) == (0, ())


def test_what_is_no_view_is_refused() -> None:
    plain = EventType("Plain", {"id": "int64"})
    x = Driven(S, P, N)
    x(P, Advertise(1, plain), Advertise(2, SHIP))
    reasons = []
    for source, message in (
        (S, Subscribe(1, 1, parse("id > 3", plain), {}, for_views=True)),
        (N, Subscribe(1, 1, ALL, {"low": 3}, for_views=True)),
        (S, Subscribe(2, 2, ALL, {"low": 3})),
        (S, Update(3, 2, {}, for_views=3)),
    ):
        for _, refusal in sent(x(source, message), Refuse):
            assert refusal.status == "INVALID_ARGUMENT"
            reasons.append(refusal.reason)
    assert reasons == [
        "subscription 1 of client/s: a view of event type Plain without a key: expected one with a key",
        "subscription 1 of broker/n: a view of event type Ship of a neighbour: expected one of a client",
        "update of subscription 2: an update for views: expected one of a view",
    ]


def test_what_was_stored_before_decides_when_keys_are_looked_at() -> None:
    """After a restart the first publisher's keys decided, and older ones of another stayed too long."""
    ages = KeyAges({"Quote": 100})
    for stored_ns, due_ns in ((50, 150), (20, 120), (30, 120)):
        ages.stored("Quote", stored_ns)
        assert ages.next_ns == due_ns
