"""Futures of calls that wait for a control epoch. Epochs settle cumulatively; a refusal fails one epoch."""

from __future__ import annotations

import asyncio


class Waiters:
    """Futures by epoch, which callers wait for in ascending order: `settle(n)` ends all up to n."""

    def __init__(self) -> None:
        self._futures: dict[int, dict[asyncio.Future[None], None]] = {}
        self._settled = 0

    def wait(self, epoch: int) -> asyncio.Future[None]:
        """A future that is done once this epoch has settled; a caller that gives up earlier must `leave`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if epoch <= self._settled:
            future.set_result(None)
        else:
            self._futures.setdefault(epoch, {})[future] = None
        return future

    async def settled(self, epoch: int) -> None:
        """Wait until this epoch has settled."""
        future = self.wait(epoch)
        try:
            await future
        finally:
            self.leave(epoch, future)

    def leave(self, epoch: int, future: asyncio.Future[None]) -> None:
        """Drop a future that no call waits for any more."""
        futures = self._futures.get(epoch, {})
        futures.pop(future, None)
        if not futures:
            self._futures.pop(epoch, None)

    def settle(self, epoch: int) -> None:
        self._settled = max(self._settled, epoch)
        while self._futures and (oldest := next(iter(self._futures))) <= epoch:
            for future in self._futures.pop(oldest):
                if not future.done():
                    future.set_result(None)

    def fail(self, epoch: int, error: Exception) -> None:
        """The message of this epoch was refused."""
        for future in self._futures.pop(epoch, {}):
            if not future.done():
                future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        for epoch in list(self._futures):
            self.fail(epoch, error)

    def __len__(self) -> int:
        return sum(len(futures) for futures in self._futures.values())
