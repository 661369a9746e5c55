"""`covey.testing`: an overlay for others' tests, with and without an event loop."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from running import QUOTE, on_a_loop

from covey.overlay import Client, ConnectError
from covey.testing import LocalBrokers, StartOverlay, overlay, running_overlay

__all__ = ["overlay"]


def test_a_broker_crashes_and_restarts(overlay: StartOverlay) -> None:
    brokers = overlay(brokers=3, event_types=[QUOTE])
    assert list(brokers.addresses) == ["b1", "b2", "b3"]
    with Client.sync(brokers.address()) as feed, Client.sync(brokers.address("b3")) as me:
        feed.advertise(QUOTE)
        quotes = me.subscribe("Quote", "price < 5")
        brokers.crash("b2")
        with pytest.raises(ConnectError, match="no broker answers"):
            Client.sync(brokers.address("b2"), connect_timeout=0.1).open()
        feed.publish("Quote", price=1.0, confirm=True)
        brokers.quiet()  # but for what waits for b2
        assert quotes.read(until=0).num_rows == 0
        brokers.restart("b2")
        me.settled()
        brokers.quiet()
        assert quotes.read(until=0)["price"].to_pylist() == [1.0]


def test_several_overlays_of_any_shape_beside_each_other_that_end_with_the_test() -> None:
    before = set(threading.enumerate())
    links = [("top", "left"), ("top", "right")]
    with running_overlay(links=links) as tree, running_overlay() as alone:
        folders = {Path(address.removeprefix("unix:")).parent for address in tree.addresses.values()}
        assert list(tree.addresses) == ["left", "right", "top"]
        assert not set(tree.addresses.values()) & set(alone.addresses.values())

        async def main() -> list[float]:
            async with Client(tree.address("left")) as feed, Client(tree.address("right")) as me:
                await feed.advertise(QUOTE)
                quotes = await me.subscribe("Quote")
                await feed.publish("Quote", price=2.0, confirm=True)
                with pytest.raises(RuntimeError, match=r"event loop.*: expected `await asyncio.to_thread"):
                    tree.quiet()
                await asyncio.to_thread(tree.quiet)
                prices: list[float] = (await quotes.read(until=0))["price"].to_pylist()
                return prices

        assert asyncio.run(main()) == [2.0]
    assert set(threading.enumerate()) == before
    assert not any(folder.exists() for folder in folders)


@on_a_loop
async def test_brokers_on_the_loop_of_their_user() -> None:
    async with LocalBrokers([("b1", "b2")]) as brokers, Client(brokers.address("b2")) as me:
        await me.advertise(QUOTE)
        await brokers.quiet()
        assert "Quote" in brokers.nodes["b1"].core.tables.types


@pytest.mark.parametrize("brokers", [0, 101, 2.0, "3"])
def test_numbers_of_brokers_that_are_none(brokers: Any) -> None:
    with (
        pytest.raises(ValueError, match=f"brokers is {brokers!r}: expected a number from 1 to 100"),
        running_overlay(brokers),
    ):
        pass


@pytest.mark.parametrize(
    "links",
    [
        [],
        [("a",)],
        [("a", 1)],
        [("a", "a")],
        [("a", "b"), ("b", "a")],
        [("a", "b"), ("c", "d")],
        [("a", "b"), ("c", "d"), ("b", "c"), ("d", "a")],
    ],
)
def test_links_that_are_no_tree(links: Any) -> None:
    with (
        pytest.raises(ValueError, match=r"links is \[.*: expected pairs of names that join all brokers"),
        running_overlay(links=links),
    ):
        pass


def test_names_that_no_broker_has(overlay: StartOverlay) -> None:
    brokers = overlay()
    with pytest.raises(ValueError, match="broker 'b9': expected one of b1"):
        brokers.address("b9")
    with pytest.raises(ValueError, match="broker 'b1': expected one that has crashed"):
        brokers.restart("b1")
    brokers.crash("b1")
    with pytest.raises(ValueError, match="broker 'b1': expected one that runs"):
        brokers.crash("b1")


def test_without_the_fixture_it_needs_no_pytest() -> None:
    program = "import sys; from covey.testing import running_overlay; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
