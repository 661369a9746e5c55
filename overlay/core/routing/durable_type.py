"""A durable event type at one broker: which of its events have come before.

An event that was stored reaches every receiver once, though a sender sends again what it has no
acknowledgement of after a crash: each broker drops what it has received before. Invariant: the `WATERMARKS`
publishers with the latest events are known, those of earlier lives of the broker from its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.watermarks import Watermarks

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch


class DurableType:
    """The events received of one type, by the highest sequence number of each publisher."""

    def __init__(self) -> None:
        self.watermarks = Watermarks()
        self.repeated = 0
        """Events that came again and were dropped."""

    def fresh(self, batch: EventBatch) -> npt.NDArray[np.bool_] | None:
        """Which events are new, None where all are; counts them as received."""
        fresh = self.watermarks.fresh(batch)
        if fresh is not None:
            self.repeated += int(np.count_nonzero(~fresh))
        return fresh
