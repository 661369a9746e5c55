"""Interest in durable types goes to every broker: stored events outlive publishers, and restarts on their
way."""

import pytest
from core_driven import Driven, sent
from core_network import Network
from core_routes import check_links

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Deliver, Drop, Publish, Store, Subscribe, Update

ORDER = EventType("Order", {"number": "int64", "text": "string"})


@pytest.fixture
def network() -> Network:
    """b1, b2 and b3 in a row; a client at b3 wants numbers from 5 on. Nobody publishes."""
    network = Network(options=lambda _: {"durable": ["Order"]})
    for name in ("broker/b1", "broker/b2", "broker/b3"):
        network.broker(name)
    network.link("broker/b1", "broker/b2")
    network.link("broker/b2", "broker/b3")
    network.client("client/c", "broker/b3", ClientSession("c"))
    network.subscribe("client/c", parse("number >= 5", EventType("Order", {"number": "int64"})))
    network.run()
    return network


def slots(network: Network, at: str, towards: str) -> int:
    state = network.brokers[at].tables.types.get("Order")
    return 0 if state is None or towards not in state.outgoing else len(state.outgoing[towards].slots)


def from_b1(network: Network, event_type: EventType = ORDER) -> list[object]:
    """The actions of b2 on a stored event of b1."""
    row = {name: 7 if kind == "int64" else "x" for name, kind in event_type.attributes.items()}
    batch = EventBatch.from_pylist(event_type, [row], publisher="p", first_sequence=1)
    return [*network.brokers["broker/b2"].handle(Publish(batch), "broker/b1", 0)]


def test_interest_is_everywhere_before_anybody_publishes(network: Network) -> None:
    assert slots(network, "broker/b3", "broker/b2") == slots(network, "broker/b2", "broker/b1") == 1
    assert slots(network, "broker/b1", "broker/b2") == slots(network, "broker/b2", "broker/b3") == 0
    check_links(network)


def test_it_stays_when_the_publisher_withdraws_or_promises_other_content(network: Network) -> None:
    publisher = network.client("client/p", "broker/b1", ClientSession("p"))
    network.send("client/p", "broker/b1", publisher.session.advertise(ORDER, parse("number < 2", ORDER)))
    network.run()
    assert slots(network, "broker/b2", "broker/b1") == 1
    network.unadvertise("client/p", "Order")
    network.run()
    assert slots(network, "broker/b2", "broker/b1") == 1
    check_links(network)
    network.unsubscribe("client/c", 1)
    network.run()
    assert slots(network, "broker/b2", "broker/b1") == 0
    assert not network.brokers["broker/b2"].tables.types


def test_a_broker_that_restarts_stores_events_of_a_publisher_that_has_left(network: Network) -> None:
    network.crash("broker/b2")
    network.run()
    check_links(network)
    (store,) = from_b1(network)
    assert isinstance(store, Store)
    assert [receiver.interface for receiver in store.receivers] == ["broker/b3"]


def test_neighbours_that_restart_together_have_interest_in_each_other(network: Network) -> None:
    network.crash("broker/b2")
    network.crash("broker/b1")
    network.run()
    assert slots(network, "broker/b2", "broker/b1") == 1
    check_links(network)


def test_stored_events_of_another_day_with_attributes_of_other_kinds_are_dropped(network: Network) -> None:
    (drop,) = from_b1(network, EventType("Order", {"number": "string"}))
    assert isinstance(drop, Drop)
    assert drop.reason == "not advertised"


def test_kinds_that_do_not_fit_stored_events_of_a_publisher_that_has_left_are_replayed_to_nobody() -> None:
    x = Driven("client/c", "broker/b1", durable=["Order"], replay_events=10)
    x("client/c", Subscribe(1, 1, parse("number >= 5", ORDER), {}))
    wide = EventType("Order", {"number": "int64", "urgent": "bool"})
    batch = EventBatch.from_pylist(wide, [{"number": 1, "urgent": True}], publisher="p", first_sequence=1)
    x("broker/b1", Publish(batch))
    other = EventType("Order", {"number": "int64", "urgent": "string"})
    x("client/c", Subscribe(2, 2, parse("number >= $least and not exists urgent", other), {"least": 5}))
    assert not sent(x("client/c", Update(3, 2, {"least": 0}, since_ns=1)), Deliver)
