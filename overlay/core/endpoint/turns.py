"""How the clients of one broker share its time.

What has arrived from an interface is handled in turns of at most `TURN_MESSAGES` messages, of which one with
a long filter counts as several, and what else is ready comes between two turns. While other interfaces are
active a turn has as many messages as would have taken `TURN_NS` by its last turn, one at least. A turn of
`DEAR_NS` and more is dear: clients whose turns are dear stand in one line then, in which each turn is
followed by as long a rest.

Invariant: all clients with dear turns together have at most half of the broker's time while others need any,
whatever they send; a client that is alone has all of it. Neighbours never rest, and a frame of theirs has no
parts, since merged updates take effect together. Longer rests after one long message were rejected: an update
without gaps that replays takes as long on a busy machine, and who moves a box would have waited for seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

TURN_MESSAGES = 128
"""A full frame of control messages of the client library (12 KiB), some 10 ms of new subscriptions."""
TURN_NS = 1_000_000
DEAR_NS = 500_000
"""Less than `TURN_NS`, or short turns would have no rest."""
FIRST_MESSAGES = 8
"""Of the first turn: nothing is known of what the messages take."""
ACTIVE_NS = 1_000_000_000
"""How long after its last message an interface counts as active, and after its last dear turn a client as one
whose turns are dear."""


@dataclass(slots=True)
class Share:
    """The turns of one interface: the time that its last dear turn took, and until when its next one is
    expected to be dear; its place in the line, None without one; the messages of its next turn beside others;
    whether it rests, as clients do.
    """

    spent_ns: int = 0
    dear_until_ns: int = 0
    place_ns: int | None = None
    messages: int = FIRST_MESSAGES
    rests: bool = True


class Turns:
    """Those of one endpoint. Times are those of its clock."""

    def __init__(self) -> None:
        self._line_ns = 0
        """When a client that joins the line now may have its turn."""
        self._active: list[tuple[Share, int]] = []
        """The last two interfaces whose turns were not dear, or that do not rest, and when."""

    def delay_ns(self, share: Share, now_ns: int) -> int:
        """How long an interface has to wait for its next turn; with 0 it has it now. O(1)."""
        if not share.rests:
            return 0
        if share.place_ns is None:
            if share.dear_until_ns <= now_ns or not self._others_active(share, now_ns):
                return 0
            share.place_ns = max(self._line_ns, now_ns)
            self._line_ns = share.place_ns + 2 * share.spent_ns
        if share.place_ns > now_ns:
            return share.place_ns - now_ns
        share.place_ns = None
        return 0

    def messages(self, share: Share, now_ns: int, most: int = TURN_MESSAGES) -> int:
        """How many messages a turn may have that begins now, of `most`. O(1)."""
        return min(most, share.messages) if self._others_active(share, now_ns) else most

    def measure(self, share: Share, messages: int, spent_ns: int) -> None:
        """A turn had so many messages, of whatever kind, and took so long."""
        if spent_ns > TURN_NS:
            share.messages = max(1, messages * TURN_NS // spent_ns)
        elif messages >= share.messages:
            share.messages = min(TURN_MESSAGES, 2 * share.messages)

    def took(self, share: Share, spent_ns: int, now_ns: int) -> None:
        """A turn has ended now, and is to be followed by a rest if it took long."""
        if share.rests and spent_ns >= DEAR_NS:
            share.spent_ns, share.dear_until_ns = spent_ns, now_ns + ACTIVE_NS
            self._line_ns = max(self._line_ns, now_ns + spent_ns)
        elif not share.rests or share.dear_until_ns <= now_ns:
            active = self._active
            if active and active[-1][0] is share:
                active[-1] = share, now_ns
            else:
                self._active = [*active[-1:], (share, now_ns)]

    def _others_active(self, share: Share, now_ns: int) -> bool:
        for other, ns in self._active:  # at most two: a generator would take longer
            if other is not share and now_ns - ns < ACTIVE_NS:
                break
        else:
            return False
        return True
