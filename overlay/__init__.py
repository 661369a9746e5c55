"""Routing core, broker and client. Names are imported on first use, so one part does not load the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covey.overlay.client import (
        Change,
        Client,
        ClosedError,
        ConnectError,
        Deliveries,
        Event,
        Gap,
        Motion,
        Notice,
        NotSettledError,
        OutboxFullError,
        RefusedError,
        Subscription,
        SyncClient,
        SyncListeners,
        SyncSubscription,
        SyncView,
        Tls,
        UpdateError,
        View,
    )

    __version__: str

__all__ = [
    "Change",
    "Client",
    "ClosedError",
    "ConnectError",
    "Deliveries",
    "Event",
    "Gap",
    "Motion",
    "NotSettledError",
    "Notice",
    "OutboxFullError",
    "RefusedError",
    "Subscription",
    "SyncClient",
    "SyncListeners",
    "SyncSubscription",
    "SyncView",
    "Tls",
    "UpdateError",
    "View",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from covey.overlay import client

        return getattr(client, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("covey")
    raise AttributeError(f"module 'covey.overlay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
