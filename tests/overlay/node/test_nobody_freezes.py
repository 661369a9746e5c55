"""A broker process under a load that once froze it delays no uninvolved client. Other such loads are in
virtual time (`tests/sim/simulator/test_freezes.py`)."""

import asyncio
import os
import signal

import pytest
from bystanders import bystanders
from running import on_a_loop, until

from covey.matcher import EventType
from covey.overlay import Client
from covey.sim.experiments.local_overlay import LocalOverlay, chain

pytestmark = pytest.mark.thorough


@on_a_loop
async def test_many_updates_towards_a_stopped_neighbour() -> None:
    far_away = EventType("Far", {"level": "float64"})
    count = 20_000
    async with LocalOverlay(chain(2)) as overlay:
        near, far = overlay.addresses["b1"], overlay.addresses["b2"]
        async with Client(far) as publisher, Client(near) as mover:
            await publisher.advertise(far_away)
            text = "level between $low and $high"
            subscriptions = []
            for first in range(0, count, 4_000):
                subscribing = (
                    mover.subscribe(far_away, text, low=2.0 * place, high=2.0 * place + 1)
                    for place in range(first, first + 4_000)
                )
                subscriptions += await asyncio.gather(*subscribing)
            async with bystanders(near, near) as pair:
                stopped = overlay.process_ids()["b2"]
                os.kill(stopped, signal.SIGSTOP)
                try:
                    for place, subscription in enumerate(subscriptions):
                        subscription.update_nowait(low=2.0 * place + 0.25, high=2.0 * place + 1.25)
                        if place % 500 == 0:
                            await asyncio.sleep(0.005)
                    exchanged = pair.events
                    await until(lambda: pair.events > exchanged + 50)
                finally:
                    os.kill(stopped, signal.SIGCONT)
            await mover.settled(timeout=60)
