"""What a client tells its user by callbacks, or else by its log: its state, gaps, and operators that do not
answer.

Invariant: where nothing takes them, lines of the log are bounded in time; an exception of a callback is
logged and stops nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import ParamSpec

from covey.overlay.core.messages import Gap, Notice

log = logging.getLogger("covey.client")

P = ParamSpec("P")

_LOG_EVERY_S = 10.0


class Reports:
    """The callbacks of one client, None for those that its user has not given."""

    def __init__(
        self,
        name: str,
        on_state: Callable[[bool, str], None] | None,
        on_gap: Callable[[Gap], None] | None,
        on_notice: Callable[[Notice], None] | None,
    ) -> None:
        self.name = name
        self.on_state, self.on_gap, self.on_notice = on_state, on_gap, on_notice
        self._due: dict[str, float] = {}
        """When the next line of the log about something may be written."""
        self._missed = 0
        """Events of gaps that the log has no line for yet."""

    def is_due(self, subject: str) -> bool:
        """Whether the log may have another line about this; there is none for the next 10 s then."""
        now = time.monotonic()
        due = now >= self._due.get(subject, 0.0)
        if due:
            self._due[subject] = now + _LOG_EVERY_S
        return due

    def state(self, connected: bool, reason: str) -> None:
        """The connection has opened or broken."""
        if self.on_state is not None:
            self._call("on_state", self.on_state, connected, reason)

    def gap(self, gap: Gap) -> None:
        """Events were dropped."""
        if self.on_gap is not None:
            self._call("on_gap", self.on_gap, gap)
        else:
            self._missed += gap.count
            if self.is_due("gaps"):
                count, self._missed = self._missed, 0
                log.warning("client %s did not get %d events, last of %s", self.name, count, gap.type_name)

    def notice(self, notice: Notice) -> None:
        """A named operator of a filter does not answer."""
        if self.on_notice is not None:
            self._call("on_notice", self.on_notice, notice)
        elif self.is_due(f"operator {notice.operator}"):
            log.warning("client %s: %s", self.name, notice)

    def _call(self, name: str, callback: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except Exception:
            log.exception("client %s: %s failed", self.name, name)
