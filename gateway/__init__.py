"""The way into the browser: WebSocket and server-sent events in front of a broker, as an ASGI application.

`application(broker)` serves by itself or mounted in Starlette and FastAPI; `covey gateway` runs it. The
gateway is a client of the broker like any other: it uses `covey.overlay` and nothing below it.
"""

from covey.gateway.application import application
from covey.gateway.limits import Limits

__all__ = ["Limits", "application"]
