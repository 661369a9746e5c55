"""Variables of a subscription that follow the fields of an object (EventJava; Jayaram et al., 3.2, 5.1).

The paper's compiler adds a message to each assignment; here the class's `__setattr__` is wrapped. Changes
that it cannot see, such as `vars(o)["x"] = 1`, are announced with the next assignment.

The paper needs a lock per field. Here an assignment only marks the object, and the event loop reads the
fields at the end of its turn or before it hands out an event: the last value is announced last, and
assignments of one turn are one update. Other threads may assign too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from covey.matcher import Filter
from covey.matcher.errors import VariableError
from covey.overlay.core.moving.motion import check_values

_FOLLOWED: dict[int, tuple[FollowedFields, ...]] = {}
"""Followers by id of the object. They refer to it, so its id is not reused."""


class FollowedFields:
    """Fields that the variables without `values` follow. `VariableError` if the object lacks a field, no
    variable is left, or the class cannot be changed."""

    def __init__(self, followed: object, filter: Filter, values: Mapping[str, object]) -> None:
        self._followed = followed
        self._filter = filter
        self._kind = type(followed).__name__
        self._names = [name for name in filter.variables if name not in values]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[FollowedFields] = set()
        if not self._names:
            raise VariableError(f"follow of {self._kind}: expected a variable without a value in {filter}")
        for name in self._names:
            if not hasattr(followed, name):
                raise VariableError(
                    f"variable ${name} has no value, and {self._kind} no field {name}: expected one of them"
                )
        _wrap_assignments(type(followed))

    def values(self) -> dict[str, Any]:
        return {name: getattr(self._followed, name) for name in self._names if hasattr(self._followed, name)}

    def start(self, announce: Callable[[Mapping[str, object]], None], waiting: set[FollowedFields]) -> None:
        """Call `announce` on this event loop, soon and after assignments; until then this is in `waiting`."""
        self._announce = announce
        self._waiting = waiting
        waiting.add(self)
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self.flush)
        _FOLLOWED[id(self._followed)] = (*_FOLLOWED.get(id(self._followed), ()), self)

    def stop(self) -> None:
        self._loop = None
        self._waiting.discard(self)
        others = tuple(each for each in _FOLLOWED.get(id(self._followed), ()) if each is not self)
        if others:
            _FOLLOWED[id(self._followed)] = others
        else:
            _FOLLOWED.pop(id(self._followed), None)

    def check(self, name: str, value: object) -> None:
        """`VariableError` for a value that does not fit a followed variable."""
        if name in self._names:
            check_values(self._filter, {name: value}, partial=True)

    def check_others(self, values: Mapping[str, object]) -> None:
        """`VariableError` for a value of a variable that follows a field."""
        for name in values:
            if name in self._names:
                field = f"{self._kind}.{name}"
                raise VariableError(f"variable ${name} follows {field}: expected an assignment to the field")

    def assigned(self, name: str) -> None:
        """Thread-safe."""
        loop = self._loop
        if name in self._names and self not in self._waiting and loop is not None:
            self._waiting.add(self)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self.flush)

    def flush(self) -> None:
        """Announce pending assignments. On the event loop."""
        if self in self._waiting:
            self._waiting.discard(self)  # before the fields are read: what follows is announced, too
            if self._loop is not None:
                self._announce(self.values())


def _wrap_assignments(kind: type) -> None:
    plain: Any = kind.__setattr__
    if getattr(plain, "announces", False):
        return

    @wraps(plain)
    def assign(followed: object, name: str, value: object) -> None:
        followers = _FOLLOWED.get(id(followed), ())
        for each in followers:
            each.check(name, value)
        plain(followed, name, value)
        for each in followers:
            each.assigned(name)

    assign.announces = True  # type: ignore[attr-defined]
    try:
        type.__setattr__(kind, "__setattr__", assign)
    except TypeError:
        reason = f"follow of {kind.__name__}: expected an object of a class that is written in Python"
        raise VariableError(reason) from None
