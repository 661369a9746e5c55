"""Tickets of durable sessions (Liu et al., section 5.1)."""

import pytest

from covey.overlay.core.access.identity import DeniedError
from covey.overlay.core.access.tickets import Ticket, Tickets

KEY, NEW = b"k" * 32, b"n" * 32
TICKET = Ticket("b1", "b1/900000401")


@pytest.mark.parametrize("keys", [(), (KEY,), (NEW, KEY)])
def test_a_ticket_is_read_as_it_was_issued(keys: tuple[bytes, ...]) -> None:
    tickets = Tickets("shop", keys)
    text = tickets.issue("client/alice", TICKET)
    assert text.isascii()
    assert tickets.read("client/alice", text) == TICKET
    assert tickets.read("client/alice", "") is None


def test_the_ticket_of_another_client_of_another_overlay_or_without_a_key_proves_nothing() -> None:
    tickets = Tickets("shop", [KEY])
    for issued in (
        tickets.issue("client/bob", TICKET),
        Tickets("bank", [KEY]).issue("client/alice", TICKET),
        Tickets("shop", [NEW]).issue("client/alice", TICKET),
        Tickets("shop").issue("client/alice", TICKET),
    ):
        with pytest.raises(DeniedError, match="no key of this overlay has signed it") as denied:
            tickets.read("client/alice", issued)
        assert denied.value.status == "UNAUTHENTICATED"


def test_a_ticket_that_was_changed_proves_nothing() -> None:
    tickets = Tickets("shop", [KEY])
    body, proof = tickets.issue("client/alice", TICKET).split(".")
    other, _ = tickets.issue("client/alice", Ticket("b2", TICKET.identity)).split(".")
    with pytest.raises(DeniedError):
        tickets.read("client/alice", f"{other}.{proof}")
    with pytest.raises(DeniedError):
        tickets.read("client/alice", f"{body}.{proof[:-2]}")


@pytest.mark.parametrize(
    "text",
    [
        *("x", "x.y", "..", "W10.", "WzEsMl0.", "é.é", "[" * 900, "A" * 2_000, "a.b.c"),
        Tickets("shop").issue("client/alice", Ticket("\ud800", "b1/1")),  # in no message of protobuf
        Tickets("shop").issue("client/alice", Ticket("b1", "b1/1\nb1: it was stopped")),
    ],
)
def test_what_is_no_ticket_is_refused(text: str) -> None:
    for keys in ((), (KEY,)):
        with pytest.raises(DeniedError, match="the ticket of client/alice is none"):
            Tickets("shop", keys).read("client/alice", text)


def test_keys_are_rotated() -> None:
    old, both, new = Tickets("shop", [KEY]), Tickets("shop", [NEW, KEY]), Tickets("shop", [NEW])
    issued = old.issue("client/alice", TICKET)
    assert both.read("client/alice", issued) == TICKET
    assert new.read("client/alice", both.issue("client/alice", TICKET)) == TICKET
    with pytest.raises(DeniedError):
        new.read("client/alice", issued)
