"""A stopping broker logs undelivered events."""

import pytest
from running import QUOTE, Brokers, on_a_loop, until

from covey.overlay import Client


@on_a_loop
async def test_events_that_are_lost_at_a_stop_have_their_number_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Brokers() as brokers:
        node = brokers.nodes["b1"]
        proxy = await brokers.proxy("b1")
        async with Client(proxy.address, name="away") as away, Client(brokers.address("b1")) as feed:
            await feed.advertise(QUOTE)
            await away.subscribe(QUOTE)
            await away.settled(timeout=60)
            await proxy.stop()
            queue = node.queues["client/away"]
            await until(lambda: not queue.connected, "it is away")
            for volume in range(30):
                await feed.publish("Quote", firm="IBM", price=5.0, volume=volume)
            await feed.flush()  # else it waits for the broker when it closes
            await until(lambda: queue.link.backlog_events == 30, "its events wait")
            await brokers.crash("b1")
    warnings = [each.getMessage() for each in caplog.records if "stopping with" in each.getMessage()]
    assert warnings == [
        "stopping with 30 events that 1 peers have not acknowledged; only durable ones are kept"
    ]
