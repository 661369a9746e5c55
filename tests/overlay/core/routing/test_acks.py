"""Acknowledgements: cumulative, in order, never in a ring; ends of answers to updates of views."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
from core_driven import Driven, sent
from hypothesis import given
from hypothesis import strategies as st
from tables import tables

from covey.matcher import EventType, parse
from covey.overlay.core.messages import Advertise, Answered, Message, Refuse, Subscribe, SyncEnd, Update
from covey.overlay.core.routing import acks as acks_module
from covey.overlay.core.routing.acks import UNSYNCED, Acks, Answers

A, B, C = "broker/a", "broker/b", "client/c"


@pytest.fixture
def acks() -> Acks:
    acks = Acks()
    acks.sent(A, 9)
    acks.sent(B, 9)
    return acks


def test_a_message_without_waits_is_complete_at_once(acks: Acks) -> None:
    acks.open(C, 1, {})
    assert acks.drain() == [(C, 1)]
    assert acks.drain() == []


def test_a_message_waits_for_every_awaited_neighbour(acks: Acks) -> None:
    acks.open(C, 1, {A: 3, B: 4})
    acks.acknowledged(A, 3)
    assert acks.drain() == []
    assert acks.pending() == {C: [1]}
    acks.acknowledged(B, 5)
    assert acks.drain() == [(C, 1)]
    assert acks.pending() == {}


def test_epochs_are_acknowledged_in_order_and_together(acks: Acks) -> None:
    acks.open(C, 1, {A: 3})
    acks.open(C, 2, {})
    acks.open(C, 3, {B: 4})
    acks.acknowledged(B, 4)
    assert acks.drain() == []
    acks.acknowledged(A, 3)
    assert acks.drain() == [(C, 3)]


def test_acknowledged_epochs_are_not_awaited(acks: Acks) -> None:
    acks.acknowledged(A, 5)
    acks.open(C, 1, {A: 5})
    assert acks.drain() == [(C, 1)]


def test_what_waits_for_a_first_synchronisation_waits_for_it_where_another_begins(acks: Acks) -> None:
    acks.open(C, 1, {A: UNSYNCED})
    acks.defer(A, 5)
    acks.acknowledged(A, 5)
    assert acks.drain() == []
    acks.synced(A, 5)
    assert acks.drain() == [(C, 1)]


def test_an_acknowledgement_of_an_epoch_never_sent_is_ignored(acks: Acks) -> None:
    acks.open(C, 1, {A: 3})
    assert not acks.acknowledged(A, 10)
    assert not acks.acknowledged("broker/unknown", 1)
    assert acks.drain() == []


def test_an_older_acknowledgement_is_ignored(acks: Acks) -> None:
    acks.acknowledged(A, 5)
    acks.acknowledged(A, 3)
    assert not acks.outstanding(A, 5)


def test_a_removed_neighbour_is_not_awaited(acks: Acks) -> None:
    acks.open(C, 1, {A: 3, B: 2})
    acks.open(C, 2, {A: 4})
    acks.remove_neighbour(A)
    assert acks.drain() == []
    acks.acknowledged(B, 2)
    assert acks.drain() == [(C, 2)]


def test_after_a_reconnect_the_end_of_the_resynchronisation_is_awaited(acks: Acks) -> None:
    """An acknowledgement of the first resent message must not complete the later ones."""
    acks.open(C, 1, {A: 3})
    acks.sent(A, 12)
    acks.defer(A, 12)
    acks.acknowledged(A, 10)
    assert acks.drain() == []
    acks.acknowledged(A, 12)
    assert acks.drain() == [(C, 1)]


def test_earlier_epochs_of_a_source_that_lost_its_state_are_not_acknowledged(acks: Acks) -> None:
    acks.open(C, 7, {A: 3})
    acks.remove_source(C)
    acks.open(C, 1, {A: 4})
    acks.acknowledged(A, 3)
    assert acks.drain() == []
    acks.check()
    acks.acknowledged(A, 4)
    assert acks.drain() == [(C, 1)]


def test_an_overtaken_epoch_does_not_lower_the_acknowledgement(acks: Acks) -> None:
    """An Unadvertise keeps its place behind events; later control messages overtake it."""
    acks.open(C, 5, {A: 3})
    acks.open(C, 4, {})
    acks.acknowledged(A, 3)
    assert acks.drain() == [(C, 5)]


def test_sources_are_acknowledged_in_order_of_completion(acks: Acks) -> None:
    acks.open(C, 1, {A: 3})
    acks.open(B, 6, {A: 2})
    acks.acknowledged(A, 3)
    assert acks.drain() == [(B, 6), (C, 1)]


def test_entries_for_an_unreachable_neighbour_are_bounded(acks: Acks) -> None:
    for epoch in range(1, 100_001):
        acks.sent(A, epoch)
        acks.open(C, epoch, {A: epoch})
    acks.check()
    assert len(acks.pending()[C]) < 1100
    assert len(acks.awaited()[A]) < 1100
    acks.acknowledged(A, 99_999)
    assert acks.drain()[0][1] < 100_000
    acks.acknowledged(A, 100_000)
    assert acks.drain() == [(C, 100_000)]
    assert (acks.pending(), acks.awaited()) == ({}, {})


def test_void_entries_are_compacted_while_a_neighbour_is_unreachable(acks: Acks) -> None:
    acks.open(C, 1, {A: 1})
    for epoch in range(2, 20_001):
        acks.sent(A, epoch)
        acks.open("client/passing", epoch, {A: epoch, B: 9})
        acks.remove_source("client/passing")
    acks.check()
    assert sum(tables(acks).values()) < 5_000, "of 20,000 that have no source any more"
    acks.acknowledged(A, 20_000)
    acks.check()
    assert acks.drain() == [(C, 1)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.sampled_from([C, "client/d"]), st.sets(st.sampled_from([A, B]))),
        st.tuples(st.just("unsynced"), st.just(C), st.just({A})),
        st.tuples(st.sampled_from(["some", "all"]), st.sampled_from([A, B]), st.just(set[str]())),
        st.tuples(
            st.sampled_from(["defer", "synced", "remove"]), st.sampled_from([A, B]), st.just(set[str]())
        ),
        st.tuples(st.just("lost"), st.just(C), st.just(set[str]())),
    ),
    max_size=60,
)


@given(STEPS)
def test_runs_acknowledge_nothing_early_and_the_same_at_the_end(
    steps: list[tuple[str, str, set[str]]],
) -> None:
    exact, short = Acks(), Acks()
    sent = {A: 0, B: 0}
    epochs = {C: 0, "client/d": 0}
    acknowledged: list[dict[str, int]] = [{}, {}]

    def both(act: Callable[[Acks], object]) -> None:
        for acks, newest in zip((exact, short), acknowledged, strict=True):
            with patch.object(acks_module, "_MAX_SINGLE", 1000 if acks is exact else 2):
                act(acks)
            acks.check()
            newest.update(acks.drain())
        assert all(epoch <= acknowledged[0].get(source, 0) for source, epoch in acknowledged[1].items())

    for step, name, neighbours in [*steps, ("synced", A, set()), ("all", A, set()), ("all", B, set())]:
        if step in ("open", "unsynced"):
            waits = {}
            for neighbour in sorted(neighbours):
                sent[neighbour] += 1
                both(lambda acks, n=neighbour: acks.sent(n, sent[n]))
                waits[neighbour] = UNSYNCED if step == "unsynced" else sent[neighbour]
            epochs[name] += 1
            both(lambda acks: acks.open(name, epochs[name], waits))  # noqa: B023
        elif step in ("some", "all"):
            both(lambda acks: acks.acknowledged(name, sent[name] if step == "all" else sent[name] // 2))  # noqa: B023
        elif step in ("defer", "synced"):
            sent[name] += 1
            both(lambda acks: acks.sent(name, sent[name]))  # noqa: B023
            both(lambda acks: getattr(acks, step)(name, sent[name]))  # noqa: B023
        elif step == "remove":
            both(lambda acks: acks.remove_neighbour(name))  # noqa: B023
            sent[name] = 0
        else:
            both(lambda acks: acks.remove_source(name))  # noqa: B023
            for newest in acknowledged:
                newest.pop(name, None)
    assert acknowledged[0] == acknowledged[1]
    assert exact.pending() == short.pending() == {}


SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
ALL = parse("x >= $low", SHIP)
S, P, N = "client/s", "client/p", "broker/n"


def taken(answers: Answers, received: int, sender: str = S) -> list[tuple[str, int]]:
    return list(answers.take(lambda _: received, sender))


def answered(x: Driven, source: str, *messages: Message) -> list[tuple[str, int]]:
    return [(to, m.epoch) for to, m in sent(x(source, *messages), Answered) if isinstance(m, Answered)]


def test_requests_for_epochs_that_never_come_cost_one_entry_and_other_messages_nothing() -> None:
    answers = Answers()
    for epoch in range(1, 1000):
        answers.open_request(S, epoch, 1 << 31, {})
        assert taken(answers, epoch) == []
    assert answers.pending() == {S: [1 << 31]}
    looked_at: list[str] = []
    assert list(answers.take(lambda each: looked_at.append(each) or 0, P)) == []
    assert looked_at == []
    answers.open_request(P, 1, 1, {})
    assert taken(answers, 1, P) == [(P, 1)]
    assert taken(answers, 1 << 31) == [(S, 1 << 31)]
    assert not answers.waits_for_epochs
    assert answers.pending() == {}


def test_requests_that_stand_for_later_epochs_are_answered_when_these_have_come() -> None:
    answers = Answers()
    answers.open_request(S, 1, 5, {})
    answers.open_request(S, 2, 3, {})
    answers.open_request(S, 5, 5, {})
    assert taken(answers, 4) == []
    answers.open_request(S, 6, 8, {})
    assert taken(answers, 6) == [(S, 5)]
    assert taken(answers, 7, P) == []
    assert taken(answers, 8) == [(S, 8)]


def test_a_request_merged_with_a_later_message_is_not_answered_before_it_is_complete() -> None:
    answers = Answers()
    answers.sent(N, 1)
    answers.open_request(S, 1, 1, {N: 1})
    answers.sent(N, 2)
    answers.open_request(S, 3, 2, {N: 2})
    answers.acknowledged(N, 1)
    assert taken(answers, 3) == [(S, 1)]
    answers.acknowledged(N, 2)
    assert taken(answers, 3) == [(S, 2)]


def test_an_update_for_epochs_far_ahead_is_refused() -> None:
    for source in (S, N):
        x = Driven(S, P, N)
        x(P, Advertise(1, SHIP))
        x(N, Advertise(1, SHIP))
        x(source, Subscribe(2, 1, ALL, {"low": 1}, for_views=source == S))
        ((to, refusal),) = sent(x(source, Update(3, 1, {"low": 2}, for_views=1 << 60)), Refuse)
        assert (to, refusal.epoch, refusal.status) == (source, 3, "INVALID_ARGUMENT")
        assert f"for_views {1 << 60}: expected at most {3 + (1 << 32)}" in refusal.reason


def test_a_refusal_of_merged_requests_ends_the_newest_of_them() -> None:
    x = Driven(S, N)
    x(N, Advertise(1, SHIP), SyncEnd(2))
    x(S, Subscribe(1, 1, ALL, {"low": 9}, for_views=True))
    state = x.broker.tables.types["Ship"]
    (slot,) = state.outgoing[N].slots
    assert answered(x, N, Answered("Ship", slot.epoch)) == [(S, 1)]
    x(S, Update(2, 1, {"low": 5}, for_views=2))
    first = slot.epoch
    x(S, Update(3, 1, {"low": 4}, for_views=3))
    assert slot.epoch > first
    # The link has merged the messages into the one of epoch `first`.
    assert answered(x, N, Refuse(first, "RESOURCE_EXHAUSTED", "", slot.slot_id, "Ship")) == [(S, 3)]
    assert not state.answers.pending()
