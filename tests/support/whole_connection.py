"""A connection of a trusted peer, whose turns follow each other at once."""

from covey.overlay.http2.connection import Event, Http2Connection
from covey.overlay.http2.frames import Http2Options


class WholeConnection(Http2Connection):
    def __init__(self, *, client: bool, now_ns: int, options: Http2Options | None = None) -> None:
        super().__init__(client=client, now_ns=now_ns, options=options)
        self.budget.trust()

    def receive(self, data: bytes, now_ns: int) -> list[Event]:
        events = super().receive(data, now_ns)
        while self.unread:
            events += super().receive(b"", now_ns)
        return events
