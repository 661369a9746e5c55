"""What is asked of the machine and what it reaches, in events per second over the last seconds. Pure.

Work that is awaited makes fewer events on a machine that does not keep up, and queues none, so nothing but
this comparison shows it. Invariant: both are of the same seconds, so a slider that moves makes no shortfall.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

_BEHIND, _KEEPS_UP = 0.85, 0.95
"""A share that is reached below which a machine is behind, and above which it is so no longer."""


class Demand:
    """Over the last `spans` calls of `count`. `reached_per_s` has what was counted; `demanded_per_s` what was
    asked of those that have a demand; `behind` is true while one of them is far from it.
    """

    def __init__(self, spans: int) -> None:
        self.reached_per_s: dict[str, float] = {}
        self.demanded_per_s: dict[str, float] = {}
        self.behind = False
        self._history: deque[tuple[float, dict[str, float], dict[str, float]]] = deque(maxlen=spans + 1)

    def count(self, now_s: float, totals: Mapping[str, float], demanded_per_s: Mapping[str, float]) -> None:
        """`totals` are since the beginning; `demanded_per_s` holds since the last call."""
        demanded = dict.fromkeys(demanded_per_s, 0.0)
        if self._history:
            then_s, _, before = self._history[-1]
            demanded = {
                name: before.get(name, 0.0) + rate * (now_s - then_s) for name, rate in demanded_per_s.items()
            }
        self._history.append((now_s, dict(totals), demanded))
        first_s, first_totals, first_demanded = self._history[0]
        span_s = now_s - first_s
        if span_s <= 0:
            return
        self.reached_per_s = {name: (totals[name] - first_totals[name]) / span_s for name in totals}
        self.demanded_per_s = {name: (demanded[name] - first_demanded[name]) / span_s for name in demanded}
        if len(self._history) == self._history.maxlen:
            share = min((self._share(name) for name in demanded), default=1.0)
            self.behind = share < (_KEEPS_UP if self.behind else _BEHIND)

    def _share(self, name: str) -> float:
        demanded = self.demanded_per_s[name]
        return self.reached_per_s[name] / demanded if demanded else 1.0
