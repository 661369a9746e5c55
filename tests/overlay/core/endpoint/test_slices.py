"""The work of one call on arrived frames: neighbours', with long filters, at a SyncEnd."""

from itertools import pairwise

import pytest
from core_endpoints import Noted, broker_endpoint, connected, frame_of

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import ConnectRequest
from covey.overlay.core.endpoint.ending import PART
from covey.overlay.core.endpoint.flow import FIRST_MESSAGES, TURN_NS
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import Advertise, Subscribe, SyncBegin, SyncEnd, Unsubscribe
from covey.overlay.transport.codec import WireMessage
from covey.sim.invariants import check

QUOTE = EventType("Quote", {"x": "int64"})
ABOVE = parse("x >= $low", QUOTE)
MESSAGE_NS = 25_000


def subscriptions(broker: BrokerEndpoint[WireMessage], interface: str) -> int:
    return len(broker.core.tables.peers[interface].subscriptions)


def test_what_a_neighbour_sends_together_is_handled_some_frames_at_a_time() -> None:
    """2,500 changes of a hostile client, 60 ms, were one call at the next broker."""
    broker = broker_endpoint("b1", neighbours=("b2",))
    client, neighbour = connected(broker, "client/r"), connected(broker, "broker/b2")
    broker.receive("client/r", client, [frame_of(1, Advertise(1, QUOTE))], 0)
    broker.took("client/r", 0, 0)
    each = [
        frame_of(i, *(Subscribe(10 * i + j, 10 * i + j, ABOVE, {"low": -10 * i - j}) for j in range(10)))
        for i in range(2, 100)
    ]
    left = [frame_of(1, SyncBegin()), *each]
    counts = [0]
    while left:
        assert broker.delay_ns("broker/b2", 0) == 0, "neighbours do not rest"
        del left[: broker.receive("broker/b2", neighbour, left, 0)]
        counts.append(subscriptions(broker, "broker/b2"))
        broker.took("broker/b2", MESSAGE_NS * (counts[-1] - counts[-2]), 0)
    parts = [after - before for before, after in pairwise(counts)]
    assert parts[0] <= FIRST_MESSAGES + 10
    assert max(parts) <= 2 * TURN_NS // MESSAGE_NS
    assert all(part % 10 == 0 for part in parts), "a frame takes effect at once"
    assert len(parts) < 50
    check(broker.core)


def test_a_new_neighbour_whose_messages_take_long_has_a_frame_in_each_call() -> None:
    broker = broker_endpoint("b1", neighbours=("b2",))
    client, neighbour = connected(broker, "client/r"), connected(broker, "broker/b2")
    broker.receive("client/r", client, [frame_of(1, Advertise(1, QUOTE))], 0)
    broker.took("client/r", 0, 0)
    left = [
        frame_of(i, *(Subscribe(99 * i + j, 99 * i + j, ABOVE, {"low": -99 * i - j}) for j in range(99)))
        for i in range(1, 6)
    ]
    for number in range(1, 6):
        assert broker.receive("broker/b2", neighbour, left, 0) == 1
        del left[0]
        broker.took("broker/b2", 50 * TURN_NS, 0)
        assert subscriptions(broker, "broker/b2") == 99 * number


def test_a_turn_has_few_messages_where_these_have_long_filters() -> None:
    """128 of the longest filters, 6 ms each, came in the first turn of a client."""
    broker = broker_endpoint("b1")
    client = connected(broker, "client/h")
    long = parse(" or ".join(f"x == {n}" for n in range(320)), QUOTE)
    messages = [Subscribe(i, i, long, {}) for i in range(1, 9)]
    messages += [Subscribe(i, i, ABOVE, {"low": -i}) for i in range(9, 50)]
    left, counts = [frame_of(1, *messages, Subscribe(50, 50, long, {}))], []
    while left:
        del left[: broker.receive("client/h", client, left, 0)]
        counts.append(subscriptions(broker, "client/h"))
    assert 3_700 < len(str(long)) < Bounds().filter_bytes
    assert counts == [4, 16, 50], "a long one counts as 30"


@pytest.mark.parametrize("breaks", [False, True])
def test_what_a_client_has_not_repeated_by_its_sync_end_is_withdrawn_in_turns(breaks: bool) -> None:
    """SyncBegin and SyncEnd of a client with a million subscriptions stopped the others for 17 s."""
    broker = broker_endpoint("b1")
    connection, count = connected(broker, "client/h"), 5 * PART + 3
    left = [frame_of(1, *(Subscribe(i, i, ABOVE, {"low": -i}) for i in range(1, count + 1)))]
    while left:
        del left[: broker.receive("client/h", connection, left, 0)]
    again = (Subscribe(count + 1, 7, ABOVE, {"low": -7}), Subscribe(count + 2, 9, ABOVE, {"low": -9}))
    behind = Unsubscribe(count + 4, 9)
    left = [frame_of(2, SyncBegin(), *again), frame_of(3, SyncEnd(count + 3), behind), frame_of(4, behind)]
    counts, link = [], broker.queues["client/h"].link
    while left:
        handled = broker.receive("client/h", connection, left, 0)
        del left[:handled]
        assert link.received == 4 - len(left)
        counts.append(subscriptions(broker, "client/h"))
        check(broker.core)
        if breaks and len(counts) in (1, 3):
            broker.lost("client/h", connection, 0)
            connection, incarnation = Noted(), connection.answer.incarnation
            broker.accept(ConnectRequest("client/h", Hello(1, incarnation)), connection, 0)
            assert connection.resumed
    assert counts == [*(count - n * PART for n in range(1, 6)), 1]
    assert list(broker.core.tables.peers["client/h"].subscriptions) == [7]
    assert broker.core.unsettled("client/h") == 0
