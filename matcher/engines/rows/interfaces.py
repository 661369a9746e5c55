"""How many subscriptions an engine has per interface: once an event matches all in use, its search ends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.matcher.engine import MAX_INTERFACE
from covey.matcher.engines.rows.row_kernels import count_interfaces


class Interfaces:
    """Subscriptions by interface; `highest` is the highest interface ever used, `in_use` how many have
    subscriptions.
    """

    def __init__(self) -> None:
        self.highest = self.in_use = 0
        self._counts = np.zeros(64, dtype=np.int64)

    def count(self, interfaces: npt.NDArray[np.int64], sign: int) -> None:
        """Count subscriptions of these interfaces in (`sign` 1) or out (-1)."""
        while not count_interfaces(interfaces, sign, self._counts):
            grown = np.zeros(min(2 * int(interfaces.max()) + 2, MAX_INTERFACE + 1), dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        self.in_use = int(np.count_nonzero(self._counts))
