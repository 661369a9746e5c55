"""Notices of named operators without an answer: receivers, frequency and counts."""

from itertools import pairwise
from types import SimpleNamespace

from covey.overlay.core.messages import Notice
from covey.overlay.core.operators.operator_notices import (
    FIRST_INTERVAL_NS,
    LONGEST_INTERVAL_NS,
    MOST_COUNTED,
    MOST_NAMED,
    Callers,
    Notices,
)

S = 1_000_000_000


def caller(uid: int, interface: str, number: int, *operators: str) -> SimpleNamespace:
    calls = tuple(SimpleNamespace(operator=operator) for operator in operators)
    return SimpleNamespace(
        uid=uid, interface=interface, subscription_id=number, filter=SimpleNamespace(calls=calls)
    )


def notices_of(*interests: SimpleNamespace) -> tuple[Callers, Notices]:
    callers = Callers()
    for interest in interests:
        callers.add(interest)
    return callers, Notices("b1", callers)


def test_a_notice_goes_to_whoever_calls_the_operator() -> None:
    _, notices = notices_of(
        caller(1, "client/a", 11, "f"),
        caller(2, "client/b", 12, "g"),
        caller(3, "broker/b2", 13, "f", "g"),
        caller(4, "client/a", 14, "f", "f"),
    )
    assert not notices.touched
    notices.undecided("f", "raised ValueError: no", 5)
    assert notices.touched
    assert list(notices.due(1)) == [
        ("client/a", Notice("f", "b1", "raised ValueError: no", 5, (11, 14))),
        ("broker/b2", Notice("f", "b1", "raised ValueError: no", 5)),
    ]
    assert not notices.touched


def test_a_notice_of_a_neighbour_is_passed_on_and_not_back() -> None:
    _, notices = notices_of(caller(1, "client/a", 11, "f"), caller(2, "broker/b2", 12, "f"))
    notices.received(Notice("f", "b9", "is unknown", 3), "broker/b2")
    assert list(notices.due(1)) == [("client/a", Notice("f", "b9", "is unknown", 3, (11,)))]


def test_a_count_of_a_neighbour_never_exceeds_what_the_wire_has_room_for() -> None:
    _, notices = notices_of(caller(1, "client/a", 11, "f"))
    for _ in range(2):
        notices.received(Notice("f", "b9", "is unknown", MOST_COUNTED), "broker/b2")
    assert [notice.count for _, notice in notices.due(1)] == [MOST_COUNTED]


def test_intervals_double_and_what_is_not_told_is_counted() -> None:
    _, notices = notices_of(caller(1, "client/a", 11, "f"))
    told = []
    for second in range(0, 2_000):
        notices.undecided("f", "is unknown", 2)
        told += [(second, notice.count) for _, notice in notices.due(second * S)]
    assert told[:4] == [(0, 2), (10, 20), (30, 40), (70, 80)]
    assert told[-1][0] - told[-2][0] == LONGEST_INTERVAL_NS // S


def test_an_interval_is_short_again_after_a_pause() -> None:
    _, notices = notices_of(caller(1, "client/a", 11, "f"))
    now_ns = 0
    for _ in range(6):
        notices.undecided("f", "is unknown", 1)
        assert list(notices.due(now_ns))
        now_ns += LONGEST_INTERVAL_NS
    now_ns += 2 * LONGEST_INTERVAL_NS
    for _ in range(2):
        notices.undecided("f", "is unknown", 1)
        assert list(notices.due(now_ns))
        now_ns += FIRST_INTERVAL_NS


def test_a_notice_names_a_bounded_number_of_subscriptions() -> None:
    _, notices = notices_of(*(caller(n, "client/a", n, "f") for n in range(1, 1_000)))
    notices.undecided("f", "is unknown", 1)
    ((_, notice),) = notices.due(0)
    assert notice.subscription_ids == tuple(range(1, MOST_NAMED + 1))


def test_more_operators_than_are_stored_are_told_at_a_bounded_rate() -> None:
    names = [f"f{n}" for n in range(1_500)]
    _, notices = notices_of(*(caller(n, "client/a", n, name) for n, name in enumerate(names)))
    told: dict[str, list[int]] = {}
    for now_s in range(21):
        for name in names:
            notices.undecided(name, "is unknown", 1)
        for _, notice in notices.due(now_s * S):
            told.setdefault(notice.operator, []).append(now_s)
    assert len(told) >= 1_000
    assert sum(map(len, told.values())) <= 3_000
    assert all(later - earlier >= 10 for times in told.values() for earlier, later in pairwise(times))


def test_callers_come_and_go() -> None:
    one, other = caller(1, "client/a", 11, "f", "g"), caller(2, "client/b", 12, "g")
    callers, _ = notices_of(one, other)
    assert (callers.operators(), callers.count("g")) == (("f", "g"), 2)
    callers.discard(one)
    assert (callers.operators(), callers.count("f")) == (("g",), 0)
    callers.discard(other)
    assert callers.operators() == ()


def test_the_sources_of_notices_are_bounded() -> None:
    _, notices = notices_of(caller(1, "client/a", 11, "f"))
    for number in range(3_000):
        notices.received(Notice("f", f"b{number}", "is unknown", 1), "broker/b2")
    assert len(list(notices.due(0))) == 1_000
