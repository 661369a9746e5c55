"""Links whose brokers disagree about who dials, and two brokers of one name."""

import asyncio

import pytest
from running import QUOTE, Brokers, at_rest, on_a_loop, two_clients, until

from covey.overlay import Client
from covey.overlay.core.endpoint import interfaces
from covey.overlay.node.dialer import keep_connected
from covey.overlay.node.node import Node


def disagreeing(name: str) -> Brokers:
    """Brokers that order the ends of the link differently: with b1 both dial, else none."""
    return Brokers([("b1", "b2")], differing={name: {"links": (("b2", "b1"),)}})


@on_a_loop
@pytest.mark.parametrize("restarted", [False, True])
async def test_where_both_dial_one_connection_stays(
    restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Once 22 reconnects a second for ever, and one link dead for good."""
    caplog.set_level("INFO", "covey.broker")
    async with disagreeing("b1") as overlay:
        if restarted:
            await overlay.crash("b1")
            await overlay.start("b1")
            await overlay.linked()
        async with Client(overlay.address("b1")) as feed, Client(overlay.address("b2")) as reader:
            await feed.advertise(QUOTE)
            mine = await reader.subscribe("Quote")
            await reader.settled(timeout=60)
            await until(lambda: dialled(overlay) == 1)
            await at_rest(lambda: [node.queues[f"broker/{name}"].connections for node, name in ends(overlay)])
            for volume in range(20):
                await feed.publish("Quote", volume=volume)
            assert [(await asyncio.wait_for(anext(mine), 60))["volume"] for _ in range(20)] == list(range(20))
            assert dialled(overlay) == 1


def ends(overlay: Brokers) -> list[tuple[Node, str]]:
    return [(overlay.nodes["b1"], "b2"), (overlay.nodes["b2"], "b1")]


def dialled(overlay: Brokers) -> int:
    """The number of ends whose connection is one that they dialled."""
    return sum(node.queues[f"broker/{other}"].dialled for node, other in ends(overlay))


@on_a_loop
async def test_where_neither_dials_the_operator_is_told_who_should(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interfaces, "NEVER_LINKED_NS", 200_000_000)
    caplog.set_level("INFO", "covey.broker")
    async with disagreeing("b2").unlinked():
        await until(lambda: caplog.text.count("by this broker's overlay file it dials") == 2)
        await at_rest(lambda: len(caplog.records))
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert sorted(warning.partition(":")[0] for warning in warnings) == ["broker/b1", "broker/b2"]


@on_a_loop
async def test_a_second_broker_of_a_name_is_refused_while_the_first_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of 2,970 events 1,125 were lost."""
    caplog.set_level("INFO", "covey.broker")
    async with two_clients(QUOTE, [("b1", "b2")], "b1", "b2") as (overlay, feed, reader):
        mine = await reader.subscribe("Quote")
        await reader.settled(timeout=60)
        link = overlay.nodes["b1"].queues["broker/b2"]
        connections = link.connections
        second = Node(overlay.overlay("b2"), "b2")
        dialling = asyncio.create_task(keep_connected(second, "b1"))
        published = 0
        while published < 100 or "a broker named 'b2' is connected already" not in caplog.text:
            await feed.publish("Quote", volume=published, confirm=True)
            published += 1
        assert not second.queues["broker/b1"].connected
        assert link.connections == connections
        volumes = [(await asyncio.wait_for(anext(mine), 60))["volume"] for _ in range(published)]
        assert volumes == [*range(published)]
        dialling.cancel()
        second.close()
