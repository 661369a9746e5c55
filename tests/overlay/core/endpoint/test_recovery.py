"""When a restarted broker accepts events: after its neighbours and clients have had time to announce
interest."""

from covey.overlay.core.endpoint.recovery import CLIENTS_NS, Recovery
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.link.link import Hello

STARTED_NS = 1_000_000_000
KNOWN = Recovery(7, 0, Timers()).incarnation(1)
"""Of a link of an earlier life."""


def recovering(of_neighbour: Hello) -> tuple[Recovery, Timers[tuple[str, str]]]:
    """A broker whose client had a session in its former life, and to which a neighbour has connected."""
    timers: Timers[tuple[str, str]] = Timers()
    recovery = Recovery(8, STARTED_NS, timers)
    recovery.neighbour_connected(of_neighbour)
    assert recovery.begins(hello(KNOWN), STARTED_NS)
    return recovery, timers


def test_a_broker_that_knows_its_clients_waits_for_none_or_until_the_last_is_back() -> None:
    timers: Timers[tuple[str, str]] = Timers()
    recovery = Recovery(8, STARTED_NS, timers)
    recovery.begin(STARTED_NS, [])
    recovery.neighbour_connected(hello(0))  # it has restarted, too, and waits for its own clients by itself
    assert recovery.synchronised(STARTED_NS)
    recovery = Recovery(8, STARTED_NS, timers)
    recovery.begin(STARTED_NS, ["client/a", "client/b"])
    assert not recovery.returned("client/a")
    assert not recovery.returned("client/c")
    assert not recovery.synchronised(STARTED_NS)
    assert recovery.returned("client/b")
    assert recovery.synchronised(STARTED_NS)


def hello(peer_incarnation: int) -> Hello:
    return Hello(5, peer_incarnation)


def test_a_broker_alone_restarted_waits_for_its_own_clients() -> None:
    recovery, timers = recovering(hello(KNOWN))
    assert not recovery.synchronised(STARTED_NS)
    timers.take(STARTED_NS + CLIENTS_NS)
    assert recovery.synchronised(STARTED_NS + CLIENTS_NS)


def test_clients_behind_a_neighbour_that_has_restarted_too_get_as_much_time() -> None:
    """All brokers were killed: the last to start learn of a former life only when clients connect."""
    recovery, timers = recovering(hello(0))
    recovery.neighbour_connected(hello(KNOWN))  # another one has not
    timers.take(STARTED_NS + CLIENTS_NS)
    synced_ns = STARTED_NS + 2 * CLIENTS_NS
    assert not recovery.synchronised(synced_ns)
    assert timers.next_ns is not None
    timers.take(synced_ns + CLIENTS_NS)
    assert recovery.synchronised(synced_ns + CLIENTS_NS)
