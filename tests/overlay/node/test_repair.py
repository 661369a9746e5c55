"""Links that move around dead brokers, over real connections and processes."""

import asyncio
import os
import signal
import time

import pytest
from running import Brokers, free_ports, on_a_loop, run_on_loop, until

from covey.cli.inspect import _state
from covey.matcher import EventType
from covey.overlay import Client, Subscription
from covey.overlay.node.state import missing
from covey.sim.experiments.local_overlay import LocalOverlay
from covey.sim.invariants import check

ROW = (("b1", "b2"), ("b2", "b3"))
NOTE = EventType("Note", {"number": "int64"})


def uplinks(brokers: Brokers) -> dict[str, str]:
    """The upward links that are open and synchronised at both ends."""
    return {
        lower: upper
        for lower, node in brokers.nodes.items()
        for upper, dials in node.neighbours().items()
        if dials and upper in brokers.nodes
        if _synced(brokers, lower, upper) and _synced(brokers, upper, lower)
    }


def _synced(brokers: Brokers, here: str, there: str) -> bool:
    node, interface = brokers.nodes[here], f"broker/{there}"
    queue, peer = node.queues.get(interface), node.core.tables.peers.get(interface)
    return queue is not None and queue.connected and peer is not None and peer.synced


async def exchange(publisher: Client, subscription: Subscription, number: int) -> None:
    """Publish an event until one arrives, since events that meet a moving link may be lost."""
    for attempt in range(number, number + 1_000_000, 10):
        await publisher.publish("Note", number=attempt)
        try:
            while (await asyncio.wait_for(anext(subscription), 0.2))["number"] < number:
                pass
            return
        except TimeoutError:
            continue


@on_a_loop
async def test_neighbours_of_a_dead_broker_link_up_and_it_rejoins() -> None:
    async with (
        Brokers(ROW, repair_after_s=0.5) as brokers,
        Client(brokers.address("b1")) as first,
        Client(brokers.address("b3")) as third,
    ):
        for client in (first, third):
            await client.advertise(NOTE)
        to_first, to_third = await first.subscribe(NOTE, "number >= $low", low=0), await third.subscribe(NOTE)
        await exchange(first, to_third, 0)
        assert (await _state(brokers.address("b3"), 10))["upward_link"] == {
            "broker": "b2",
            "why": "its parent in the overlay file",
        }
        await brokers.crash("b2")
        await asyncio.wait_for(to_first.update(low=1), 60)  # a broker that stays dead holds up no update
        await until(lambda: uplinks(brokers) == {"b3": "b1"}, "b3 is linked to b1")
        assert (await _state(brokers.address("b3"), 10))["upward_link"] == {
            "broker": "b1",
            "why": "in place of b2, which does not answer",
        }
        await exchange(first, to_third, 1_000_000)
        await exchange(third, to_first, 2_000_000)
        assert not [each for node in brokers.nodes.values() for each in missing(node)]
        await brokers.start("b2")
        await until(lambda: uplinks(brokers) == {"b2": "b1", "b3": "b2"}, "b2 has rejoined")
        assert list(brokers.nodes["b1"].neighbours()) == ["b2"]
        await exchange(first, to_third, 3_000_000)
        await exchange(third, to_first, 4_000_000)
        await brokers.quiet()
        for node in brokers.nodes.values():
            check(node.core)


class Growing(Brokers):
    """A row of brokers; b4 is added under b2, and b2 is removed."""

    async def change(self, names: list[str], links: list[tuple[str, str]]) -> None:
        """Reload the changed file at every running broker."""
        self.names, self._links = names, tuple(links)
        for name, node in self.nodes.items():
            node.set_overlay(self.overlay(name))


@on_a_loop
async def test_brokers_join_and_leave_by_reloads() -> None:
    async with (
        Growing(ROW, repair_after_s=0.5) as brokers,
        Client(brokers.address("b1")) as first,
        Client(brokers.address("b3")) as third,
    ):
        (port,) = free_ports(1)
        brokers.addresses["b4"] = f"127.0.0.1:{port}"
        await brokers.change(["b1", "b2", "b3", "b4"], [*ROW, ("b2", "b4")])
        await brokers.start("b4")
        whole = {"b2": "b1", "b3": "b2", "b4": "b2"}
        await until(lambda: uplinks(brokers) == whole, "b4 has joined")
        async with Client(brokers.address("b4")) as fourth:
            for client in (first, third, fourth):
                await client.advertise(NOTE)
            to_third, to_fourth = await third.subscribe(NOTE), await fourth.subscribe(NOTE)
            await exchange(first, to_fourth, 0)
            await exchange(fourth, to_third, 1_000_000)
            await brokers.change(["b1", "b3", "b4"], [("b1", "b3"), ("b1", "b4")])
            await until(lambda: uplinks(brokers) == {"b3": "b1", "b4": "b1"}, "b2 has been left")
            assert not brokers.nodes["b2"].neighbours()
            await brokers.crash("b2")
            await exchange(first, to_fourth, 2_000_000)
            await exchange(fourth, to_third, 3_000_000)
        await brokers.quiet()


@on_a_loop
async def test_brokers_whose_files_have_another_order_are_not_linked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "covey.broker")
    brokers = Brokers(ROW, repair_after_s=0.5)
    of_file = brokers.overlay("b3").brokers
    brokers.differing["b3"] = {"brokers": {name: of_file[name] for name in ("b2", "b1", "b3")}}
    async with brokers.unlinked():
        await until(lambda: "has order" in caplog.text, "the order is refused")


async def recovery_s(disturb: int, restore: int | None, overlay: LocalOverlay, process_id: int) -> float:
    """Seconds from a signal to the middle broker until the outer two exchange events again."""
    async with Client(overlay.addresses["b1"]) as first, Client(overlay.addresses["b3"]) as third:
        for client in (first, third):
            await client.advertise(NOTE)
        to_first, to_third = await first.subscribe(NOTE), await third.subscribe(NOTE)
        await exchange(first, to_third, 0)
        os.kill(process_id, disturb)
        since = time.monotonic()
        await exchange(first, to_third, 1_000_000)
        await exchange(third, to_first, 2_000_000)
        seconds = time.monotonic() - since
        if restore is not None:
            os.kill(process_id, restore)
        else:
            await overlay.exit_status("b2")
            await overlay.start("b2")
        await exchange(first, to_third, 3_000_000)
        await exchange(third, to_first, 4_000_000)
        return seconds


async def linked_to(overlay: LocalOverlay, broker: str) -> str | None:
    state = await _state(overlay.addresses[broker], 10)
    upward = state.get("upward_link") or {}
    name: str | None = upward.get("broker")
    return name


@pytest.mark.thorough
@pytest.mark.parametrize("disturb", [signal.SIGKILL, signal.SIGSTOP])
def test_outer_brokers_exchange_events_without_the_middle_one(disturb: int) -> None:
    async def run() -> None:
        async with LocalOverlay(ROW, compiled=False, repair_after_s=1.0) as overlay:
            process_id = overlay.process_ids()["b2"]
            restore = signal.SIGCONT if disturb == signal.SIGSTOP else None
            seconds = await recovery_s(disturb, restore, overlay, process_id)
            print(f"events again after {seconds:.2f} s")

            async def linked_as_before() -> bool:
                return await linked_to(overlay, "b3") == "b2"

            await until(linked_as_before)

    run_on_loop(asyncio.wait_for(run(), 240))
