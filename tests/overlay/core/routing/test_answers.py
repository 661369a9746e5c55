"""The ends of answers to updates for views: what waits, and what a peer can make wait."""

from core_driven import Driven, sent

from covey.matcher import EventType, parse
from covey.overlay.core.messages import Advertise, Answered, Message, Refuse, Subscribe, SyncEnd, Update
from covey.overlay.core.routing.answers import Answers

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
    # The link has merged what was sent into the message of the epoch `first`.
    assert answered(x, N, Refuse(first, "RESOURCE_EXHAUSTED", "", slot.slot_id, "Ship")) == [(S, 3)]
    assert not state.answers.pending()
