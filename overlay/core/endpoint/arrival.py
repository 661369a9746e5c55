"""What one turn of an interface takes of the frames that have arrived from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from covey.overlay.core.link.link import Frame, Link, LinkError, Position
from covey.overlay.core.messages import Acknowledge

M = TypeVar("M")


class Arrival(Generic[M]):
    """`messages` of `handled` frames, and perhaps of a part of the next; `weight` is theirs (`turns.py`), and
    `error` is what ends the connection behind them. `idle` of the frames brought no messages and changed
    nothing; each weighs as one message.

    Of the frames messages of the weight `most` at most are taken, one at least; without `weigh` whole frames,
    until it is reached.
    """

    def __init__(
        self,
        link: Link,
        frames: Sequence[Frame[M]],
        now_ns: int,
        most: int,
        weigh: Callable[[M], int] | None,
    ) -> None:
        self.messages: list[M | Acknowledge] = []
        self.handled = self.weight = self.idle = 0
        self.error: LinkError | None = None
        self._link = link
        self._begun: list[tuple[int, Position]] = []
        """Of each frame, where its messages begin, and how far the link was before it."""
        try:
            for frame in frames:
                if self.weight >= most:
                    return
                self._begun.append((len(self.messages), (link.received, link.begun, link.settled_here)))
                if not frame.messages or frame.sequence <= link.received:
                    self._receive_empty(frame, now_ns, of_client=weigh is not None)
                    continue
                if weigh is None or len(frame.messages) == 1:
                    whole = link.receive(frame, now_ns)
                    self.messages += whole
                    self.weight += len(whole) if weigh is None else weigh(frame.messages[0])
                else:
                    part = link.receive(frame, now_ns, most - self.weight, weigh)
                    self.messages.extend(part)
                    self.weight += sum(1 if isinstance(each, Acknowledge) else weigh(each) for each in part)
                if link.begun:
                    return
                self.handled += 1
        except LinkError as broken:
            self.error = broken

    def _receive_empty(self, frame: Frame[M], now_ns: int, *, of_client: bool) -> None:
        """A frame without messages, or a repetition. Credit alone changes nothing: what was sent for the
        credit before has returned more permits than it takes.
        """
        before = self._link.acknowledged
        settled = self._link.receive(frame, now_ns)
        self.messages += settled
        self.handled += 1
        if self._link.acknowledged == before and (of_client or not settled):
            self.idle += 1
            self.weight += 1

    def leave(self, taken: int) -> None:
        """Only so many messages were taken: the others are to be received again."""
        self.handled = max(at for at, (start, _) in enumerate(self._begun) if start <= taken)
        start, position = self._begun[self.handled]
        self._link.rewind(position, taken - start)
        self.error = None
