"""Objects of the client library for code that is not asynchronous: the same names, on the loop of a thread.

A `Blocking` object wraps an asynchronous one. Its class lists the names once, and their signatures come from
the wrapped class: `update = blocking(Subscription.update)`. Invariant: only the thread of the loop touches
what is wrapped, until that thread has ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from covey.overlay.client.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
B = TypeVar("B")


class Blocking(Generic[W]):
    """What wraps an object whose coroutines run on a thread. Any other thread may call it; within a running
    event loop, which it would block, calls raise `RuntimeError`.
    """

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
    """`RuntimeError` on the thread itself, and within a running event loop that is not that of a notebook: a
    notebook's waits for its cell anyway.
    """
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
    """An iterator of what an asynchronous one yields; several threads may read it. Ctrl-C raises
    `KeyboardInterrupt` in it and loses nothing: it may be read on.
    """

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
        """Whether that was the end. What is yielded is in `_yielded` at once: no interrupt comes between."""
        try:
            self._yielded.append(await self._wrapped.__anext__())
        except StopAsyncIteration:
            return True
        return False


class Plain(Generic[T]):
    """A property of the wrapped object, as it is now. It cannot be set."""

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
    """A method that runs the coroutine of the wrapped object's and returns its result."""

    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._wrapped, *args, **kwargs))

    return call


def blocking_as(
    kind: Callable[[W, LoopThread], B], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, W]]
) -> Callable[Concatenate[Any, P], B]:
    """As `blocking`, where the result is wrapped as well."""

    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> B:
        return kind(self._run(method(self._wrapped, *args, **kwargs)), self._thread)

    return call


def on_loop(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that is no coroutine, as one: `blocking(on_loop(Client.deliveries))`."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self, *args, **kwargs)

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], BlockingIterator[T]]:
    """A method that returns an iterator of what the asynchronous one of the wrapped object yields."""
    return blocking_as(BlockingIterator[T], on_loop(method))
