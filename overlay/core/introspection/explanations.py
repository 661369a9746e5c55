"""One broker's part of `covey explain` and `covey follow`. Read-only.

`explain` evaluates one subscription, a client's or a neighbour's slot, on an event, and returns the slots at
neighbours that cover it. `follow` returns what the broker did with an event in its ring (`routing/ring.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.matcher.errors import SubscriptionError
from covey.matcher.evaluation.problem import FALSE, UNDECIDED
from covey.matcher.evaluation.residues import Residues
from covey.matcher.events.batch import EventBatch
from covey.matcher.filters.filter import Filter
from covey.matcher.operators.table import find
from covey.overlay.core.introspection.inspection import MAX_LISTED, Listing, slot_text
from covey.overlay.core.moving.motion import predicates, still

if TYPE_CHECKING:
    from covey.matcher.evaluation.asking import Fault
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.routing.broker import Broker


@dataclass(frozen=True, slots=True)
class ExplainedCalls:
    """The truth of each call of a filter for an event, a sentence each. An `undecided` event is passed on."""

    sentences: list[str]
    matches: bool
    undecided: bool


def explain_calls(
    evaluator: Evaluator,
    broker_id: str,
    filter: Filter,
    values: Mapping[str, Scalar],
    event: Mapping[str, object],
) -> ExplainedCalls:
    """Evaluate a filter's calls on one event, as this broker would, without changing accounts and notices."""
    faults: dict[str, Fault] = {}

    def note(fault: Fault) -> None:
        faults.setdefault(fault.operator, fault)

    aside = evaluator.aside(note)
    known = {name: value for name, value in event.items() if name in filter.event_type.attributes}
    batch = EventBatch.from_pylist(filter.event_type, [known])
    residues = Residues()
    number = residues.add(filter, values)
    row = np.zeros(1, np.int64)
    (truth,) = aside.decide(batch, residues, row, np.array([number]), readers=False)
    sentences = aside.explain(batch, residues, number, filter.substitute(values), readers=False)
    for operator in dict.fromkeys(call.operator for call in filter.calls):
        entry = find(operator)
        if operator in faults:
            sentences.append(f"operator {operator} at {broker_id} {faults[operator].reason}")
        elif entry is not None and entry.stateful:
            sentences.append(f"operator {operator} has state: the client evaluates it")
    is_passed = filter.gate.matches(known, {name: values[name] for name in filter.gate.variables})
    return ExplainedCalls(
        sentences, bool(is_passed and truth != FALSE), bool(is_passed and truth == UNDECIDED)
    )


_LISTED_IDS = 20


def explain(
    broker: Broker, interface: str, subscription_id: int, event: Mapping[str, object], now_ns: int
) -> dict[str, Any]:
    """How this broker evaluates an event for a subscription, as values for JSON. Raises `SubscriptionError`
    for an unknown interface or subscription, `EventError` for an invalid event."""
    peer = broker.tables.peers.get(interface)
    interest = None if peer is None else peer.subscriptions.get(subscription_id)
    if peer is None or interest is None:
        known = "" if peer is None else f"; it has {_some(peer.subscriptions)}"
        who = f"{interface} has no subscription {subscription_id}" if peer else f"no interface {interface}"
        raise SubscriptionError(f"broker {broker.tables.broker_id}: {who}{known}")
    filter = interest.filter
    values = still(interest.values, now_ns)
    calls = ExplainedCalls([], filter.gate.matches(event, _of(filter.gate, values)), False)
    if filter.calls:
        calls = explain_calls(broker.tables.evaluator, broker.tables.broker_id, filter, values, event)
    state = broker.tables.types[filter.event_type.name]
    covering = dict(state.covering_slots(interest))
    listing = Listing(MAX_LISTED)
    promises = list(islice(state.promises.items(), MAX_LISTED))
    upstream = []
    for neighbour in (name for name in state.publishers if name.startswith("broker/") and name != interface):
        promise = state.promises.get(neighbour)
        slot = covering.get(neighbour)
        upstream.append(
            {
                "neighbour": neighbour.removeprefix("broker/"),
                "promised": None if promise is None else str(promise.filter),
                "slot": None if slot is None else slot.slot_id,
                "filter": None if slot is None else slot_text(slot),
                "epoch": 0 if slot is None else slot.epoch,
                "acknowledged": slot is not None
                and not broker.tables.acks.outstanding(neighbour, slot.epoch),
            }
        )
    return {
        "broker": broker.tables.broker_id,
        "type": state.event_type.name,
        "interface": interface,
        "subscription": subscription_id,
        "filter": interest.concrete(),
        "values": {name: str(value) for name, value in interest.values.items()},
        "epoch": interest.epoch,
        "matches": calls.matches,
        "undecided": calls.undecided,
        "form": (state.links if interface.startswith("broker/") else state.sessions).form(filter),
        "calls": calls.sentences,
        "failing": [] if calls.matches else [*failing(filter.gate, values, event), *calls.sentences],
        "publishers": [name for name in islice(state.publishers, MAX_LISTED) if name.startswith("client/")],
        "promises": {name: listing.text(str(promise.filter)) for name, promise in promises},
        "outside": [
            name
            for name, promise in promises
            if promise.filter is not None and not promise.filter.matches(event)
        ],
        "not_listed": max(0, len(state.publishers) - MAX_LISTED),
        "upstream": upstream,
    }


def _some(ids: Collection[int]) -> str:
    first = ", ".join(map(str, islice(ids, _LISTED_IDS)))
    more = f" and {len(ids) - _LISTED_IDS:,} more" if len(ids) > _LISTED_IDS else ""
    return (first or "none") + more


def failing(filter: Filter, values: Mapping[str, Scalar], event: Mapping[str, object]) -> list[str]:
    """The predicates of a filter without calls that an event fails, a sentence each; none if it matches."""
    if filter.matches(event, _of(filter, values)):
        return []
    failures = []
    for predicate in predicates(filter.expression):
        alone = Filter.of_checked(filter.event_type, predicate)
        mine = _of(alone, values)
        if not alone.matches(event, mine):
            value = event.get(predicate.attribute)
            has = f"no {predicate.attribute}" if value is None else f"{predicate.attribute} {value!r}"
            failures.append(f"{alone.substitute(mine)}: the event has {has}")
    return failures


def _of(filter: Filter, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: values[name] for name in filter.variables}


def follow(broker: Broker, type_name: str, publisher: str, sequence: int) -> dict[str, Any]:
    """What this broker did with one event, as plain values; `seen` is false if its ring does not have it."""
    state = broker.tables.types.get(type_name)
    record = None if state is None or state.ring is None else state.ring.find(publisher, sequence)
    answer: dict[str, Any] = {
        "broker": broker.tables.broker_id,
        "type": type_name,
        "seen": record is not None,
    }
    if record is None:
        return answer
    names = {peer.serial: peer.name for peer in broker.tables.peers.values()}
    source, links, sessions, event, answers = record
    room = MAX_LISTED
    listed = {}
    for serial, ids in sessions.items():
        if serial in names and room > 0:
            listed[names[serial]] = ids[:room]
            room -= len(ids)
    return answer | {
        "source": names.get(source, "an interface that has left"),
        "links": [names[serial].removeprefix("broker/") for serial in links if serial in names],
        "sessions": listed,
        "not_listed": sum(map(len, sessions.values())) - sum(map(len, listed.values())),
        "event": {name: str(value) for name, value in event.items()},
        "calls": _answers(broker, type_name, answers),
    }


def _answers(broker: Broker, type_name: str, answers: Mapping[int, tuple[bool, bool]]) -> dict[str, str]:
    """By call, what named operators have answered about an event, for the first subscriptions with calls."""
    shown: dict[str, str] = {}
    if not answers:
        return shown
    own = (interest for interest in broker.tables.types[type_name].interests() if interest.filter.calls)
    for interest in islice(own, MAX_LISTED):
        for text, key in interest.calls_by_text().items():
            if key in answers:
                truth, received = answers[key]
                shown[text] = f"{'true' if truth else 'false'}, {'received' if received else 'asked here'}"
    return shown
