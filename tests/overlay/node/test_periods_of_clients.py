"""Validity periods over real brokers: in the client library, and in storage."""

from pathlib import Path
from typing import Any

import pytest
from running import on_a_loop, until

from covey.matcher import EventType
from covey.matcher.errors import SubscriptionError
from covey.overlay import Client, ConnectError
from covey.overlay.core.access.identity import Ticket, Tickets
from covey.sim.experiments.local_overlay import LocalOverlay, chain

ORDER = EventType("Order", {"number": "int64"})


@on_a_loop
async def test_iteration_ends_with_the_period_and_what_had_arrived_is_handed_out(local_brokers: None) -> None:
    async with (
        LocalOverlay(chain(2), event_types=[ORDER], compiled=False) as overlay,
        Client(overlay.addresses["b1"]) as publisher,
        Client(overlay.addresses["b2"]) as client,
    ):
        await publisher.advertise(ORDER)
        listeners = await publisher.listeners("Order")
        mine = await client.subscribe(ORDER, "number >= $least", least=0, valid_for=600)
        other = await client.subscribe(ORDER, "number < 0", valid_for=0.001)
        assert [event async for event in other] == []
        assert (other.expired, mine.expired) == (True, False)
        with pytest.raises(SubscriptionError, match="has ended or was never made"):
            await other.renew(10)
        await until(lambda: bool(listeners))
        for number in range(5):
            await publisher.publish("Order", number=number, confirm=True)
        await mine.update(least=1)
        await mine.renew(0.3)
        await until(lambda: mine.expired)
        assert [event["number"] async for event in mine] == [1, 2, 3, 4]
        await until(lambda: not listeners)


@pytest.mark.parametrize("valid_for", [0, -1, 1e-4, float("inf"), float("nan"), 1e12, 10**400, "60", True])
@on_a_loop
async def test_a_period_that_is_none_is_refused_in_one_sentence(valid_for: Any) -> None:
    client = Client("localhost:1")
    with pytest.raises(ValueError, match=r"valid_for is .*: expected seconds from 0.001 to 315360000"):
        await client.subscribe(ORDER, valid_for=valid_for)


@on_a_loop
async def test_who_has_not_the_ticket_renews_nothing(local_brokers: None, tmp_path: Path) -> None:
    """A session proves a renewal, a durable session by its ticket."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    options = {"durable": ["Order"], "tickets": [str(key)]}
    async with LocalOverlay(chain(2), event_types=[ORDER], compiled=False, **options) as overlay:
        async with Client(overlay.addresses["b1"], "billing", durable=True) as client:
            await client.subscribe(ORDER, "number >= 0", valid_for=600)
            ticket = client.ticket
        forged = Tickets("local", [b"x" * 32]).issue("client/billing", Ticket("b1", "b1/1"))
        for shown in ("", forged):
            with pytest.raises(ConnectError, match="ticket"):
                async with Client(overlay.addresses["b1"], "billing", durable=True, ticket=shown):
                    pass
        async with Client(overlay.addresses["b1"], "billing", durable=True, ticket=ticket) as client:
            again = await client.subscribe(ORDER, "number >= 0", valid_for=0.3)
            assert len(client.session.subscriptions) == 1
            assert [event async for event in again] == []
