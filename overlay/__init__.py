"""The overlay: routing core, broker and client. Names are loaded when first used, so that parts stay
cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.overlay.client import (
        Client,
        ClosedError,
        ConnectError,
        Event,
        Motion,
        NotSettledError,
        RefusedError,
        Subscription,
    )

__all__ = [
    "Client",
    "ClosedError",
    "ConnectError",
    "Event",
    "Motion",
    "NotSettledError",
    "RefusedError",
    "Subscription",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from covey.overlay import client

        return getattr(client, name)
    raise AttributeError(f"module 'covey.overlay' has no attribute {name!r}")
