"""For commands that call an overlay: cancellation by signals, and messages about calls that take long."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from covey.overlay import Client

T = TypeVar("T")

CONNECT_S = 5.0
PATIENCE_S = 3.0


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result. SIGINT and SIGTERM cancel it.

    If it does not return a result after that, the command exits with 128 plus the number of the first signal.
    """

    from covey.overlay.transport.event_loop import run

    async def until_signal() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
        signals: list[int] = []

        def stop(number: int) -> None:
            signals.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if not signals:
                raise
            raise typer.Exit(128 + signals[0]) from None

    return run(until_signal())


class Waiting:
    """Names on stderr, after a few seconds, the brokers that a client's pending calls wait for; once for all
    calls."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls = 0
        self._reporter: asyncio.Task[None] | None = None

    async def settle(self, change: Awaitable[T]) -> T:
        """The result of a call of the client that returns once the overlay has applied it."""
        self._calls += 1
        if self._reporter is None:
            self._reporter = asyncio.create_task(self._report())
        try:
            return await change
        finally:
            self._calls -= 1
            if not self._calls:
                self._reporter.cancel()
                self._reporter = None

    async def _report(self) -> None:
        from covey.matcher.errors import CoveyError
        from covey.overlay import NotSettledError

        reported = ""
        while True:
            try:
                await self._client.settled(timeout=PATIENCE_S)
            except NotSettledError as error:
                if str(error) != reported:
                    print(f"covey: {error}; still waiting", file=sys.stderr, flush=True)
                reported = str(error)
            except CoveyError:
                pass  # the call raises it, too
            else:
                reported = ""
            await asyncio.sleep(PATIENCE_S)
