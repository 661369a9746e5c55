"""What a page shows of rates: events and control messages over each link, from the counters of the brokers
themselves, and what is asked of the machine beside what it reaches.

Work that is awaited makes fewer events on a machine that does not keep up, and queues none, so nothing but
the comparison with the demand shows it. Invariant: both are of the same seconds, so a slider that moves makes
no shortfall.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from covey.matcher.errors import CoveyError
from covey.overlay.client import inspect_broker

_EVENTS = ("Publish", "Deliver")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of a link in one direction, or of a broker with its clients: since it started."""

    events: int = 0
    control: int = 0
    updates: int = 0


class OverlayCounters:
    """The counters now and before; `links` are drawn from the first broker to the second."""

    def __init__(self, addresses: Mapping[str, str], links: Sequence[tuple[str, str]]) -> None:
        self._addresses = addresses
        self._links = tuple(links)
        self._now: dict[tuple[str, str], Traffic] = {}
        self._before: dict[tuple[str, str], Traffic] = {}
        self._at = self._at_before = perf_counter()

    async def read(self) -> None:
        """Ask all brokers; one that does not answer keeps its counters."""
        states: dict[str, dict[str, Any]] = {}

        async def ask(broker: str, address: str) -> None:
            with suppress(CoveyError):
                _, states[broker] = await inspect_broker(address, listed=0)

        await asyncio.gather(*(ask(*each) for each in self._addresses.items()))
        self._before, self._at_before = self._now, self._at
        self._at = perf_counter()
        self._now = dict(self._now)
        for broker, state in states.items():
            core = state["core"]
            for name, counters in core["interfaces"].items():
                kind, _, neighbour = name.partition("/")
                if kind == "broker":
                    self._now[broker, neighbour] = _traffic(counters["sent"], counters["events_sent"])
            totals = core["totals"]
            self._now[broker, ""] = _traffic(totals["received"], totals["events_received"])

    @property
    def control_messages(self) -> int:
        """Over all links, so far."""
        return sum(traffic.control for (_, to), traffic in self._now.items() if to)

    def rates(self) -> dict[str, list[dict[str, Any]]]:
        """Per second between the last two readings."""
        links = []
        for a, b in self._links:
            (there, back) = self._rate(a, b), self._rate(b, a)
            links.append({"a": a, "b": b, "there": there, "back": back})
        brokers = [{"name": name, **self._rate(name, "")} for name in self._addresses]
        return {"links": links, "brokers": brokers}

    def _rate(self, broker: str, to: str) -> dict[str, float]:
        now, before = (each.get((broker, to), Traffic()) for each in (self._now, self._before))
        seconds = max(self._at - self._at_before, 1e-3)
        if not self._before:
            now = before
        return {
            "events": round((now.events - before.events) / seconds, 1),
            "control": round((now.control - before.control) / seconds, 1),
            "updates": round((now.updates - before.updates) / seconds, 1),
        }


def _traffic(messages: Mapping[str, int], events: int) -> Traffic:
    control = sum(count for kind, count in messages.items() if kind not in _EVENTS)
    return Traffic(events, control, messages.get("Update", 0))


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
