"""Acknowledgements: cumulative, in order, never in a ring (DESIGN section 4, updates that can be awaited)."""

from __future__ import annotations

import pytest

from covey.overlay.core.acks import Acks

A, B, C = "broker/a", "broker/b", "client/c"


@pytest.fixture
def acks() -> Acks:
    made = Acks()
    made.sent(A, 9)
    made.sent(B, 9)
    return made


def test_a_message_that_waits_for_nobody_is_complete_at_once(acks: Acks) -> None:
    acks.open(C, 1, {})
    assert acks.drain() == [(C, 1)]
    assert acks.drain() == []


def test_a_message_waits_for_all_it_caused(acks: Acks) -> None:
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


def test_what_was_acknowledged_before_is_not_waited_for(acks: Acks) -> None:
    acks.acknowledged(A, 5)
    acks.open(C, 1, {A: 5})
    assert acks.drain() == [(C, 1)]


def test_an_acknowledgement_of_an_epoch_never_sent_is_ignored(acks: Acks) -> None:
    acks.open(C, 1, {A: 3})
    assert not acks.acknowledged(A, 10)
    assert not acks.acknowledged("broker/unknown", 1)
    assert acks.drain() == []


def test_an_older_acknowledgement_changes_nothing(acks: Acks) -> None:
    acks.acknowledged(A, 5)
    acks.acknowledged(A, 3)
    assert not acks.outstanding(A, 5)


def test_a_neighbour_that_is_gone_is_not_waited_for(acks: Acks) -> None:
    acks.open(C, 1, {A: 3, B: 2})
    acks.open(C, 2, {A: 4})
    acks.forget_neighbour(A)
    assert acks.drain() == []
    acks.acknowledged(B, 2)
    assert acks.drain() == [(C, 2)]


def test_after_a_reconnect_the_end_of_the_resynchronisation_is_waited_for(acks: Acks) -> None:
    """An acknowledgement of the first thing said again must not settle what comes later in it."""
    acks.open(C, 1, {A: 3})
    acks.sent(A, 12)
    acks.defer(A, 12)
    acks.acknowledged(A, 10)
    assert acks.drain() == []
    acks.acknowledged(A, 12)
    assert acks.drain() == [(C, 1)]


def test_a_source_that_lost_its_state_is_not_answered(acks: Acks) -> None:
    acks.open(C, 7, {A: 3})
    acks.forget_source(C)
    acks.open(C, 1, {A: 4})
    acks.acknowledged(A, 3)
    assert acks.drain() == []
    acks.check()
    acks.acknowledged(A, 4)
    assert acks.drain() == [(C, 1)]


def test_an_epoch_that_was_overtaken_does_not_take_an_acknowledgement_back(acks: Acks) -> None:
    """An Unadvertise keeps its place behind events; later control messages overtake it."""
    acks.open(C, 5, {A: 3})
    acks.open(C, 4, {})
    acks.acknowledged(A, 3)
    assert acks.drain() == [(C, 5)]


def test_sources_are_answered_in_order_of_completion(acks: Acks) -> None:
    acks.open(C, 1, {A: 3})
    acks.open(B, 6, {A: 2})
    acks.acknowledged(A, 3)
    assert acks.drain() == [(B, 6), (C, 1)]
