"""Browsers' way to a broker, by WebSocket and server-sent events: `application(broker)`, an ASGI application
that serves alone or mounted in Starlette and FastAPI. To the broker it is a client, by `covey.overlay` alone.
"""

from covey.gateway.application import application
from covey.gateway.limits import Limits

__all__ = ["Limits", "application"]
