"""An overlay on the event loop of its own thread, for tests with and without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from covey.matcher import EventType, compile_kernels, kernels_cached
from covey.overlay.client.blocking import LoopThread, check_may_block
from covey.testing.local_brokers import LocalBrokers

_MOST_BROKERS = 100


class RunningOverlay:
    """Running brokers, for any thread. Within a running event loop, whose clients could not answer, `quiet`,
    `crash` and `restart` raise `RuntimeError`: `await asyncio.to_thread(overlay.quiet)`."""

    def __init__(self, thread: LoopThread, brokers: LocalBrokers) -> None:
        self._thread = thread
        self._brokers = brokers

    @property
    def addresses(self) -> dict[str, str]:
        """By broker, the address for `Client`, `covey subscribe` and the gateway."""
        return dict(self._brokers.addresses)

    def address(self, broker: str = "b1") -> str:
        """Where clients reach a broker. `ValueError` for an unknown name."""
        return self._brokers.address(broker)

    def quiet(self) -> None:
        """Wait until every connected client has received all accepted events that match, for its readers to
        take. `TimeoutError` after a minute."""
        self._run(self._brokers.quiet)

    def crash(self, broker: str) -> None:
        """End a broker without notice, like a crash of its process. `ValueError` for one that does
        not run."""
        self._check(broker, running=True)
        self._run(lambda: self._brokers.crash(broker))

    def restart(self, broker: str) -> None:
        """Start a crashed broker again, at its address, without state; returns when its links are open.
        `ValueError` for one that runs."""
        self._check(broker, running=False)
        self._run(lambda: self._restart(broker))

    async def _restart(self, broker: str) -> None:
        await self._brokers.start(broker)
        await self._brokers.linked()

    def _run(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        check_may_block(self._thread, "`await asyncio.to_thread(...)`")
        self._thread.run(call())

    def _check(self, broker: str, *, running: bool) -> None:
        self.address(broker)
        if (broker in self._brokers.nodes) != running:
            expected = "one that runs" if running else "one that has crashed"
            raise ValueError(f"broker {broker!r}: expected {expected}")


@contextmanager
def running_overlay(
    brokers: int = 1,
    *,
    links: Sequence[tuple[str, str]] | None = None,
    event_types: Sequence[EventType] = (),
) -> Iterator[RunningOverlay]:
    """An overlay of brokers in a row, b1 - b2 - ..., or of those in `links`, a tree of pairs of names.
    Clients may advertise further event types than `event_types`. `ValueError` for fewer than 1 or more than
    100 brokers, and for links that are no tree. Compiled kernels are loaded first: in Python 3.11 no thread
    may parse while another does, as a loader of kernels and pytest do."""
    if type(brokers) is not int or not 1 <= brokers <= _MOST_BROKERS:
        raise ValueError(f"brokers is {brokers!r}: expected a number from 1 to {_MOST_BROKERS}")
    if links is None:
        links = [(f"b{number}", f"b{number + 1}") for number in range(1, brokers)]
    else:
        _check_tree(links)
    if kernels_cached():
        compile_kernels()
    local = LocalBrokers(links, event_types=event_types)
    thread = LoopThread("covey brokers").start()
    try:
        thread.run(local.__aenter__())
        try:
            yield RunningOverlay(thread, local)
        finally:
            thread.run(local.__aexit__(None, None, None))
    finally:
        thread.stop()


def _check_tree(links: Sequence[tuple[str, str]]) -> None:
    """`ValueError` if the links do not join brokers as a tree."""
    if all(len(link) == 2 and all(isinstance(name, str) and name for name in link) for link in links):
        trees: list[set[str]] = []
        for a, b in links:
            touched = [tree for tree in trees if a in tree or b in tree]
            if a == b or any(a in tree and b in tree for tree in touched):
                break
            trees = [tree for tree in trees if tree not in touched] + [{a, b}.union(*touched)]
        else:
            if len(trees) == 1:
                return
    raise ValueError(f"links is {links!r}: expected pairs of names that join all brokers as one tree")
