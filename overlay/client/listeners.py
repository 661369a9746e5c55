"""Whether any subscription matches what a client advertises (quenching), so that it need not publish in vain.

Invariant: `any` is the newest report of the broker. Iteration yields the newest change, not each: changes
that arrive while no task waits replace each other, so that nothing grows.
"""

from __future__ import annotations

import asyncio


class Listeners:
    """Returned by `Client.listeners`: truthy while there is a matching subscription; an async iterator of
    changes.
    """

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self.any = False
        self._shown: bool | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    def __bool__(self) -> bool:
        return self.any

    def __aiter__(self) -> Listeners:
        return self

    async def __anext__(self) -> bool:
        """The present state first, then each change; ends with the advertisement."""
        while self._shown is self.any:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        self._shown = self.any
        return self.any

    def _set(self, listening: bool) -> None:
        self.any = listening
        self._changed.set()

    def _end(self, error: BaseException | None) -> None:
        self._ended, self._error = True, error
        self._changed.set()

    def __repr__(self) -> str:
        return f"Listeners({self.type_name!r}, {self.any})"
