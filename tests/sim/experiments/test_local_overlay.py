"""An overlay's processes on this machine: addresses, process session, and the error when one ends."""

import asyncio
import os
import socket
import sys
from contextlib import ExitStack

import pytest

from covey.matcher.errors import CoveyError
from covey.sim.experiments.local_overlay import LocalOverlay, chain, free_addresses


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere two sockets cannot be bound to one port")
def test_nobody_else_gets_an_address_that_is_held() -> None:
    async def listen(address: str) -> None:
        host, _, port = address.rpartition(":")
        (await asyncio.start_server(lambda *_: None, host, int(port))).close()

    with ExitStack() as hold:
        held = free_addresses(100, hold)
        assert not {*held} & {*free_addresses(11_000)}
        asyncio.run(listen(held[0]))


async def taken_address() -> None:
    overlay = LocalOverlay(chain(2), compiled=False)
    host, _, port = overlay.addresses["b2"].rpartition(":")
    with socket.socket() as taking:
        taking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taking.bind((host, int(port)))
        taking.listen()
        async with overlay:
            pass


def test_a_broker_that_ends_is_named_at_once_and_not_its_neighbour_that_waits() -> None:
    with pytest.raises(CoveyError, match=r"broker b2 did not start:\n.*Address already in use"):
        asyncio.run(asyncio.wait_for(taken_address(), 50))


async def sessions() -> set[tuple[int, bool]]:
    async with LocalOverlay((), compiled=False) as overlay:
        processes = overlay.process_ids().values()
        return {(os.getsid(each), os.getpgid(each) == each) for each in processes}


def test_brokers_are_in_the_session_and_not_in_the_process_group() -> None:
    assert asyncio.run(sessions()) == {(os.getsid(0), True)}
