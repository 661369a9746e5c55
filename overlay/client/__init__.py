"""The client library. `from covey.overlay import Client` is the import promised to users."""

from covey.overlay.client.blocking import SyncListeners, SyncSubscription, SyncView
from covey.overlay.client.client import Client, SyncClient
from covey.overlay.client.errors import (
    ClosedError,
    ConnectError,
    NotSettledError,
    OutboxFullError,
    UpdateError,
)
from covey.overlay.client.event import Event
from covey.overlay.client.inbox import Deliveries
from covey.overlay.client.subscription import Subscription
from covey.overlay.client.unary import inspect_broker
from covey.overlay.client.view import Change, View
from covey.overlay.core.endpoint.limits import RefusedError
from covey.overlay.core.messages import Gap, Notice
from covey.overlay.core.moving.motion import Motion
from covey.overlay.transport.tls import Tls

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
    "inspect_broker",
]
