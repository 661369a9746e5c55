"""Background work that benchmarks start and await together."""

import asyncio

import pytest

from covey.sim.experiments.processes import BackgroundTasks


def test_what_failed_long_before_the_end_is_raised_there_and_the_rest_is_done() -> None:
    done: list[float] = []

    async def last(seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not seconds:
            raise RuntimeError("early")
        done.append(seconds)

    async def run() -> None:
        background = BackgroundTasks()
        for seconds in (0.0, 0.01, 0.05):
            background.start(last(seconds))
        await asyncio.sleep(0.03)
        await background.join()

    with pytest.raises(RuntimeError, match="early"):
        asyncio.run(run())
    assert done == [0.01, 0.05]
