"""How clients share the time of a broker."""

from covey.overlay.core.endpoint.flow import (
    ACTIVE_NS,
    DEAR_NS,
    FIRST_MESSAGES,
    TURN_MESSAGES,
    TURN_NS,
    Share,
    Turns,
)

MS = 1_000_000
NEIGHBOUR = Share(rests=False)


def test_a_client_that_is_alone_never_waits() -> None:
    turns, share = Turns(), Share()
    turns.took(share, 0, 0)  # it advertises
    for now_ns in range(0, 100 * DEAR_NS, DEAR_NS):
        assert turns.delay_ns(share, now_ns) == 0
        turns.took(share, DEAR_NS, now_ns + DEAR_NS)


def test_a_client_with_cheap_turns_and_a_neighbour_never_wait() -> None:
    turns, share, dear = Turns(), Share(), Share()
    turns.took(dear, 50 * DEAR_NS, 50 * DEAR_NS)
    turns.took(NEIGHBOUR, 50 * DEAR_NS, 100 * DEAR_NS)
    turns.took(share, DEAR_NS - 1, 100 * DEAR_NS)
    assert turns.delay_ns(share, 100 * DEAR_NS) == 0


def test_clients_with_dear_turns_have_half_of_the_time_together() -> None:
    """In each round another interface has a message; the hostile clients take their whole share."""
    for hostile in (1, 2, 5):
        turns, shares = Turns(), [Share() for _ in range(hostile)]
        due = [(0, i) for i in range(hostile)]
        taken_ns, turns_of = 0, [0] * hostile
        now_ns = 0
        while now_ns < 1_000 * MS:
            turns.took(NEIGHBOUR, 0, now_ns)
            when_ns, i = min(due)
            due.remove((when_ns, i))
            now_ns = max(now_ns, when_ns)
            delay_ns = turns.delay_ns(shares[i], now_ns)
            if not delay_ns:
                now_ns += 10 * MS
                taken_ns += 10 * MS
                turns_of[i] += 1
                turns.took(shares[i], 10 * MS, now_ns)
            due.append((now_ns + delay_ns, i))
        assert taken_ns <= now_ns // 2 + 10 * MS * (hostile + 1)
        assert taken_ns >= now_ns // 2 - 10 * MS * (hostile + 1)
        assert max(turns_of) - min(turns_of) <= 1


def test_a_client_rests_as_long_as_its_turn_took_and_no_more_once_the_others_are_silent() -> None:
    turns, share = Turns(), Share()
    turns.took(NEIGHBOUR, 0, 0)
    turns.took(share, 10 * MS, 10 * MS)
    assert turns.delay_ns(share, 10 * MS) == 10 * MS
    assert turns.delay_ns(share, 15 * MS) == 5 * MS
    assert turns.delay_ns(share, 20 * MS) == 0
    turns.took(share, MS, 21 * MS)  # its own cheap turns do not count as those of others
    assert turns.delay_ns(share, ACTIVE_NS) == 0


def test_a_turn_beside_others_has_as_many_messages_as_took_its_time() -> None:
    """Turns of 128 subscriptions took 10 ms each, and another client's event waited for one."""
    turns, share, message_ns = Turns(), Share(), 80_000
    for number in range(20):
        assert turns.messages(share, number) == TURN_MESSAGES, "it is alone"
    turns.took(NEIGHBOUR, 0, 0)
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
