"""The client library without `async`, run on the event loop of a daemon thread: while the user computes, the
client must still answer its broker.

Invariant: until that thread has ended, only it touches the wrapped objects. Signatures come from the wrapped
class: `update = blocking(Subscription.update)`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError as Cancelled
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from covey.matcher import EventType, Filter
from covey.matcher.expressions.expression import Scalar
from covey.overlay.client.errors import ClosedError
from covey.overlay.client.event import Event
from covey.overlay.client.inbox import Listeners
from covey.overlay.client.subscription import Subscription
from covey.overlay.client.view import Change, View
from covey.overlay.core.messages import Notice

T = TypeVar("T")
P = ParamSpec("P")
W = TypeVar("W")
B = TypeVar("B")


class LoopThread:
    """Runs coroutines for other threads. In a forked process calls raise `ClosedError`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = os.getpid()
        self._accepting = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Once. `RuntimeError` if the system has no thread for it."""
        self.loop = asyncio.new_event_loop()
        try:
            self._thread.start()
        except BaseException:
            self.loop.close()
            raise
        self._accepting = True
        return self

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result or exception; an interrupt cancels it. Before `start` and after `stop` it
        runs in the caller's thread: `ClosedError` if it must wait, or if `stop` cancels it."""
        if os.getpid() != self._process:
            coroutine.close()
            raise ClosedError(f"{self.name} was opened before a fork: expected a new one in each process")
        with self._lock:
            accepted = self._accepting
            if accepted:
                future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        if not accepted:
            return self._run_at_once(coroutine)
        try:
            return future.result()
        except Cancelled:
            raise ClosedError(f"{self.name} was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def _run_at_once(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        coroutine.close()
        raise ClosedError(f"{self.name} is closed")

    def stop(self, patience_s: float = 0.0) -> None:
        """Cancel what still runs after `patience_s`, and join the thread. Thread-safe and repeatable."""
        with self._lock:
            accepting, self._accepting = self._accepting, False
        if accepting:
            ending = asyncio.run_coroutine_threadsafe(_end_all(patience_s), self.loop)
            try:
                with suppress(Cancelled):
                    ending.result()
            finally:
                self.loop.call_soon_threadsafe(self.loop.stop)
        if self.started:
            self._thread.join()


async def _end_all(patience_s: float) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks and patience_s:
        _, tasks = await asyncio.wait(tasks, timeout=patience_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Blocking(Generic[W]):
    """Runs the coroutines of `wrapped` on `thread`. Calls from other threads only; `RuntimeError` within a
    running event loop, which they would block."""

    def __init__(self, wrapped: W, thread: LoopThread) -> None:
        self._wrapped = wrapped
        self._thread = thread

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            check_may_block(self._thread)
        except RuntimeError:
            coroutine.close()
            raise
        return self._thread.run(coroutine)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wrapped!r})"


def check_may_block(thread: LoopThread, instead: str = "`async with Client(...)`") -> None:
    """`RuntimeError` on `thread` itself and within a running event loop, except a notebook's."""
    if thread.is_current:
        raise RuntimeError(f"{thread.name} was called within its own callback, which it would wait for")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)() is None:
        raise RuntimeError(
            f"{thread.name} is synchronous and was called within a running event loop, which it would block: "
            f"expected {instead} there"
        )


class BlockingIterator(Blocking[AsyncIterator[T]], Iterator[T]):
    """Several threads may read it, and read on after Ctrl-C (`KeyboardInterrupt`), without loss."""

    def __init__(self, wrapped: AsyncIterator[T], thread: LoopThread) -> None:
        super().__init__(wrapped, thread)
        self._yielded: deque[T] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while True:
            with suppress(IndexError):  # another thread may have taken it
                return self._yielded.popleft()
            if self._run(self._advance()):
                raise StopIteration

    async def _advance(self) -> bool:
        """Whether the iterator has ended. An item is in `_yielded` at once, so an interrupt loses nothing."""
        try:
            self._yielded.append(await self._wrapped.__anext__())
        except StopAsyncIteration:
            return True
        return False


class Plain(Generic[T]):
    """A read-only property of the wrapped object."""

    def __set_name__(self, owner: type[Blocking[Any]], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Blocking[Any]]) -> Self: ...

    @overload
    def __get__(self, instance: Blocking[Any], owner: type[Blocking[Any]]) -> T: ...

    def __get__(self, instance: Blocking[Any] | None, owner: type[Blocking[Any]]) -> Self | T:
        if instance is None:
            return self

        async def read() -> T:
            value: T = getattr(instance._wrapped, self._name)
            return value

        return instance._run(read())

    def __set__(self, instance: Blocking[Any], value: Any) -> None:
        raise AttributeError(f"{self._name} = {value!r}: expected no assignment")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._wrapped, *args, **kwargs))

    return call


def blocking_as(
    kind: Callable[[W, LoopThread], B], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, W]]
) -> Callable[Concatenate[Any, P], B]:
    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> B:
        return kind(self._run(method(self._wrapped, *args, **kwargs)), self._thread)

    return call


def on_loop(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A synchronous method as a coroutine: `blocking(on_loop(Client.deliveries))`."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self, *args, **kwargs)

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], BlockingIterator[T]]:
    return blocking_as(BlockingIterator[T], on_loop(method))


class SyncSubscription(BlockingIterator[Event]):
    """A blocking `Subscription`, returned by `SyncClient.subscribe`."""

    _wrapped: Subscription

    id: Plain[int] = Plain()
    filter: Plain[Filter] = Plain()
    event_type: Plain[EventType] = Plain()
    values: Plain[dict[str, Scalar]] = Plain()
    delivered: Plain[int] = Plain()
    spurious: Plain[int] = Plain()
    conflated: Plain[int] = Plain()
    notices: Plain[deque[Notice]] = Plain()
    expired: Plain[bool] = Plain()
    is_paced: Plain[bool] = Plain()

    update = blocking(Subscription.update)
    update_nowait = blocking(on_loop(Subscription.update_nowait))
    renew = blocking(Subscription.renew)
    unsubscribe = blocking(Subscription.unsubscribe)
    batches = iterating(Subscription.batches)
    read = blocking(Subscription.read)


class SyncView(BlockingIterator[Change]):
    """A blocking `View`, returned by `SyncClient.view`."""

    _wrapped: View

    event_type: Plain[EventType] = Plain()
    filter: Plain[Filter] = Plain()
    values: Plain[dict[str, object]] = Plain()

    update = blocking(View.update)
    update_nowait = blocking(on_loop(View.update_nowait))
    close = blocking(View.close)
    snapshot = blocking(on_loop(View.snapshot))
    batches = iterating(View.batches)


class SyncListeners(BlockingIterator[bool]):
    """A blocking `Listeners`, returned by `SyncClient.listeners`."""

    _wrapped: Listeners

    type_name: Plain[str] = Plain()
    any: Plain[bool] = Plain()

    def __bool__(self) -> bool:
        return self.any
