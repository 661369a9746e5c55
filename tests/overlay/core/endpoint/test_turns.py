"""How clients share the time of a broker."""

from __future__ import annotations

from covey.overlay.core.endpoint.turns import (
    ACTIVE_NS,
    DEAR_NS,
    FIRST_MESSAGES,
    FORGIVEN_NS,
    LONGEST_REST_NS,
    TURN_MESSAGES,
    TURN_NS,
    Share,
    Turns,
)

MS = 1_000_000
NEIGHBOUR = Share(rests=False)


def test_a_client_that_is_alone_never_waits() -> None:
    turns, share = Turns(), Share()
    turns.took(share, 0, 0, 0)  # it advertises
    for now_ns in range(0, 100 * DEAR_NS, DEAR_NS):
        assert turns.delay_ns(share, now_ns) == 0
        turns.took(share, DEAR_NS, DEAR_NS, now_ns + DEAR_NS)


def test_a_client_with_cheap_turns_and_a_neighbour_never_wait() -> None:
    turns, share, dear = Turns(), Share(), Share()
    turns.took(dear, 50 * DEAR_NS, 50 * DEAR_NS, 50 * DEAR_NS)
    turns.took(NEIGHBOUR, 50 * DEAR_NS, 50 * DEAR_NS, 100 * DEAR_NS)
    turns.took(share, DEAR_NS - 1, DEAR_NS - 1, 100 * DEAR_NS)
    assert turns.delay_ns(share, 100 * DEAR_NS) == 0


def _taken_ns(turns_ns: list[int], all_ns: int = 10_000 * MS) -> list[int]:
    """The time that clients get of ten seconds or more whose turns take so long, and who take all that they
    are given, while in each round another interface has a message.
    """
    turns, shares, taken_ns = Turns(), [Share() for _ in turns_ns], [0] * len(turns_ns)
    due = [(0, i) for i in range(len(shares))]
    now_ns = 0
    while now_ns < all_ns:
        when_ns, i = min(due)
        due.remove((when_ns, i))
        now_ns = max(now_ns, when_ns)
        turns.took(NEIGHBOUR, 0, 0, now_ns)
        delay_ns = turns.delay_ns(shares[i], now_ns)
        if not delay_ns:
            now_ns += turns_ns[i]
            taken_ns[i] += turns_ns[i]
            turns.took(shares[i], turns_ns[i], turns_ns[i], now_ns)
        due.append((now_ns + delay_ns, i))
    return taken_ns


def test_clients_with_dear_turns_have_half_of_the_time_together() -> None:
    for hostile in (1, 2, 5):
        taken_ns = _taken_ns([2 * MS] * hostile)
        assert abs(sum(taken_ns) - 5_000 * MS) <= 200 * MS
        assert max(taken_ns) - min(taken_ns) <= 2 * MS


def test_the_longer_turns_are_the_less_time_they_have() -> None:
    """Those of 27 ms had half of the time, and every event waited."""
    for turn_ms in (3, 8, 27):
        for hostile in (1, 5):
            taken_ns = _taken_ns([turn_ms * MS] * hostile, 300_000 * MS)
            assert sum(taken_ns) / (300_000 * MS) <= hostile * (1.2 * max(turn_ms**-2, 0.0135) + 0.001)
    assert 2_000 * MS <= sum(_taken_ns([500 * MS], 60_000 * MS)) <= 15_000 * MS
    taken_ns = _taken_ns([4_500 * MS], 60_000 * MS)
    assert abs(sum(taken_ns) - 30_000 * MS) <= 9_000 * MS, "a rest is as long as the turn at least"


def test_rests_grow_and_are_forgiven() -> None:
    turns, share, now_ns, rests = Turns(), Share(), 0, []
    for _ in range(5):
        turns.took(NEIGHBOUR, 0, 0, now_ns)
        turns.took(share, 5 * MS, 5 * MS, now_ns)
        rests.append(turns.delay_ns(share, now_ns) // MS)
        now_ns += rests[-1] * MS
        assert turns.delay_ns(share, now_ns) == 0
    assert rests == [5, 20, 80, 125, 125]
    now_ns += FORGIVEN_NS
    turns.took(NEIGHBOUR, 0, 0, now_ns)
    turns.took(share, 5 * MS, 5 * MS, now_ns)
    assert turns.delay_ns(share, now_ns) == 5 * MS


def test_rests_of_several_clients_do_not_add_up() -> None:
    """What a client acknowledges is not read while it rests: ten had rested for 40 s, and counted as
    stalled.
    """
    turns, shares, now_ns = Turns(), [Share() for _ in range(10)], 0
    for _ in range(20):
        for share in shares:
            now_ns += 30 * MS
            turns.took(NEIGHBOUR, 0, 0, now_ns)
            turns.took(share, 30 * MS, 30 * MS, now_ns)
        delays_ns = [turns.delay_ns(share, now_ns) for share in shares]
        assert max(delays_ns) <= LONGEST_REST_NS + 10 * 60 * MS
        now_ns += max(delays_ns)
        assert not any(turns.delay_ns(share, now_ns) for share in shares)


def test_a_client_with_dear_turns_does_not_wait_for_long_rests_of_others() -> None:
    taken_ns = _taken_ns([27 * MS, MS, 27 * MS])
    assert taken_ns[1] > 4_000 * MS


def test_a_client_rests_as_long_as_its_turn_took_and_no_more_once_the_others_are_silent() -> None:
    turns, share = Turns(), Share()
    turns.took(NEIGHBOUR, 0, 0, 0)
    turns.took(share, 10 * MS, MS, 10 * MS)  # most of it the machine was busy with others
    assert turns.delay_ns(share, 10 * MS) == 10 * MS
    assert turns.delay_ns(share, 15 * MS) == 5 * MS
    assert turns.delay_ns(share, 20 * MS) == 0
    turns.took(share, MS, MS, 21 * MS)  # its own cheap turns do not count as those of others
    assert turns.delay_ns(share, ACTIVE_NS) == 0


def test_a_turn_beside_others_has_as_many_messages_as_took_its_time() -> None:
    """Turns of 128 subscriptions took 10 ms each, and an event of another client waited for one of them."""
    turns, share, message_ns = Turns(), Share(), 80_000
    for number in range(20):
        assert turns.messages(share, number) == TURN_MESSAGES, "it is alone"
    turns.took(NEIGHBOUR, 0, 0, 0)
    spent = []
    for _ in range(20):
        messages = turns.messages(share, 0)
        spent.append(messages * message_ns)
        turns.measure(share, messages, spent[-1])
    assert spent[0] == FIRST_MESSAGES * message_ns
    assert TURN_NS // 2 < max(spent[1:]) <= 2 * TURN_NS
    assert sum(each > TURN_NS for each in spent) <= len(spent) // 2
    turns.measure(share, 1, 50 * TURN_NS)
    assert turns.messages(share, 0) == 1, "one at least"
    assert turns.messages(share, 2 * ACTIVE_NS) == TURN_MESSAGES, "the others are silent"
    turns.measure(share, 0, 0)
    for _ in range(10):
        turns.measure(share, turns.messages(share, 0), 1_000)
    assert turns.messages(share, 0) == TURN_MESSAGES
