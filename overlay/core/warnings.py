"""What a broker warns of: a kind, whose name stays when sentences change, and a sentence for the operator."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from covey.overlay.core.messages import Interface


class WarningKind(StrEnum):
    """Values are the names of events in JSON logs."""

    HALF_FULL = "half_full"
    INTEREST_AWAITED = "interest_awaited"
    LEASE_EXPIRED = "lease_expired"
    NEVER_LINKED = "never_linked"
    POLICY_UNDECIDED = "policy_undecided"
    RECORDS_LOST = "records_lost"
    REFUSED = "refused"
    SESSION_MOVED = "session_moved"
    SESSION_NOT_MOVED = "session_not_moved"
    STALLED = "stalled"


Warn = Callable[[Interface, WarningKind, str], None]
"""Called with the interface that the sentence is about."""
