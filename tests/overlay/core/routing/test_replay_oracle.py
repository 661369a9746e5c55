"""Replays of gapless updates against the filters themselves, over random types, filters, events and
histories. The same history runs at two brokers, one of which replays by the engine alone. Each link has one
subscription, so the engine's answer is that of the changed filter."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from core_driven import Driven, sent
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventBatch, EventType
from covey.matcher.filters.filter import Filter
from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.messages import Advertise, Deliver, Message, Publish, Subscribe, Update
from covey.overlay.core.routing import ring

PUBLISHER = "client/p"
RECEIVERS = ("client/s", "client/t", "broker/m", "broker/n")
SECOND = 1_000_000_000
STEPS = ["update"] * 6 + ["publish"] * 2 + ["widen"]

Arrivals = Counter[tuple[str, int, bool, int]]
"""How often (receiver, subscription or 0 for a link, replayed, sequence number)."""


@dataclass
class Subscription:
    """The oracle's state of one subscription; a link's share `sent`, since an event crosses it once."""

    receiver: str
    number: int
    filter: Filter
    values: dict[str, Any]
    sent: set[int] = field(default_factory=set)

    @property
    def slot(self) -> int:
        return self.number if self.receiver.startswith("client/") else 0


class Oracle:
    """Events as mappings, and `Filter.matches`: no regions, no ring."""

    def __init__(self) -> None:
        self.subscriptions: dict[tuple[str, int], Subscription] = {}
        self.events: list[tuple[int, int, dict[str, Any]]] = []

    def publish(self, first: int, rows: list[dict[str, Any]], at_ns: int) -> Arrivals:
        arrivals: Arrivals = Counter()
        for sequence, row in enumerate(rows, first):
            self.events.append((sequence, at_ns, row))
            for each in self.subscriptions.values():
                if each.filter.matches(row, each.values):
                    each.sent.add(sequence)
                    arrivals[each.receiver, each.slot, False, sequence] += 1
        return arrivals

    def update(self, key: tuple[str, int], values: dict[str, Any], since_ns: int) -> Arrivals:
        subscription = self.subscriptions[key]
        subscription.values = {**subscription.values, **values}
        arrivals: Arrivals = Counter()
        for sequence, at_ns, row in self.events:
            recent = since_ns and at_ns >= since_ns - INGRESS_SPAN_NS
            if not recent or sequence in subscription.sent:
                continue
            if subscription.filter.matches(row, subscription.values):
                subscription.sent.add(sequence)
                arrivals[subscription.receiver, subscription.slot, True, sequence] += 1
        return arrivals


class Replaying:
    """A broker whose replays take one path."""

    def __init__(self, engine: str, routing: str, *, by_engine: bool) -> None:
        self.by_engine = by_engine
        self.driven = Driven(PUBLISHER, *RECEIVERS, engine=engine, routing=routing, replay_events=1_000)

    def __call__(self, source: str, message: Message) -> Arrivals:
        if not self.by_engine:
            return self._arrivals(source, message)
        with patch.object(ring, "region_alone", return_value=None):
            return self._arrivals(source, message)

    def _arrivals(self, source: str, message: Message) -> Arrivals:
        arrivals: Arrivals = Counter()
        for to, each in sent(self.driven(source, message), Publish, Deliver):
            sequences = each.batch.sequences().tolist()
            if isinstance(each, Publish):
                arrivals.update((to, 0, each.replayed, sequence) for sequence in sequences)
                continue
            assert isinstance(each, Deliver)
            for row, sequence in enumerate(sequences):
                ids = each.ids[each.offsets[row] : each.offsets[row + 1]].tolist()
                arrivals.update((to, number, each.replayed, sequence) for number in ids)
        return arrivals


@pytest.mark.parametrize("routing", ["parametric", "static"])
@given(data=st.data())
@examples(60)
def test_replays_have_what_the_changed_filter_matches(routing: str, data: st.DataObject) -> None:
    wide = data.draw(event_types())
    names = data.draw(st.lists(st.sampled_from(wide.names), min_size=1, unique=True))
    narrow = EventType("T", {name: wide.attributes[name] for name in names})
    engine = data.draw(st.sampled_from(["naive", "cluster"]))
    brokers = [Replaying(engine, routing, by_engine=by_engine) for by_engine in (False, True)]
    oracle = Oracle()
    epochs: Counter[str] = Counter()
    schemas = [narrow]
    first, now_ns = 1, 100 * SECOND

    def tell(source: str, message: Message, expected: Arrivals) -> None:
        for broker in brokers:
            assert broker(source, message) == expected

    def epoch(source: str) -> int:
        epochs[source] += 1
        return epochs[source]

    tell(PUBLISHER, Advertise(epoch(PUBLISHER), narrow), Counter())
    for receiver in RECEIVERS:
        for number in range(1, 3 if receiver.startswith("client/") else 2):
            filter = data.draw(filters(data.draw(st.sampled_from([narrow, wide]))))
            values = data.draw(values_of(filter.variables))
            oracle.subscriptions[receiver, number] = Subscription(receiver, number, filter, values)
            tell(receiver, Subscribe(epoch(receiver), number, filter, values), Counter())
    for step in ["publish", *data.draw(st.lists(st.sampled_from(STEPS), min_size=8, max_size=16))]:
        now_ns += data.draw(st.sampled_from([0, INGRESS_SPAN_NS // 2, SECOND]))
        if step == "widen":
            schemas = [narrow, wide]
            tell(PUBLISHER, Advertise(epoch(PUBLISHER), wide), Counter())
        elif step == "publish":
            schema = data.draw(st.sampled_from(schemas))
            rows = data.draw(st.lists(events(schema), min_size=4, max_size=8))
            batch = EventBatch.from_pylist(schema, rows)
            batch = batch.stamped(publisher="p", first_sequence=first, ingress_ns=now_ns)
            tell(PUBLISHER, Publish(batch), oracle.publish(first, rows, now_ns))
            first += len(rows)
        else:
            receiver, number = data.draw(st.sampled_from(list(oracle.subscriptions)))
            values = data.draw(values_of(oracle.subscriptions[receiver, number].filter.variables))
            since_ns = data.draw(st.sampled_from([1, now_ns - SECOND, now_ns, 0]))
            message = Update(epoch(receiver), number, values, since_ns)
            tell(receiver, message, oracle.update((receiver, number), values, since_ns))
