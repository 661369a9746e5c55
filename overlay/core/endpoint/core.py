"""The routing core, as an endpoint sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from covey.overlay.core.messages import Action, Interface, Message
from covey.overlay.core.routing.tables import Tables


class Core(Protocol):
    """The calls of `routing.Broker` that an endpoint makes."""

    @property
    def tables(self) -> Tables: ...

    @property
    def deferred(self) -> Sequence[object]: ...

    @property
    def synced(self) -> bool: ...

    def unsettled(self, interface: Interface) -> int: ...
    def next_timer(self) -> int | None: ...
    def handle(self, message: Message, source: Interface, now_ns: int) -> list[Action]: ...
    def handle_all(
        self, messages: Sequence[Message], source: Interface, now_ns: int, *, defer: bool = False
    ) -> list[Action]: ...
    def deliver(self) -> list[Action]: ...
