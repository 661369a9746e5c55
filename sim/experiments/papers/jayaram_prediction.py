"""B: the gain of updates over re-subscription, from the costs alone.

Of the busiest broker: a change costs s as a re-subscription and u as an update, an event costs e under both;
there are λ changes and μ events per second. The *control utilisation* is rho = λs, that of updates λu = rho r
with r = u/s, and the offered utilisation of events is φ = μe. The gain is the throughput of events with
updates, divided by that with re-subscription.

- One lane, closed loop: publishers fill the broker, so (1 - rho)/e events per second are handled, and (1 -
  rho r)/e with updates. The gain (1 - rho r)/(1 - rho) has no bound as rho nears one, in any order of
  service.
- One lane, open loop, first come, first served: below saturation all events are handled; above it, events and
  changes in the proportion of their arrival, so events at μ/(rho + φ). The gain max(1, φ + rho)/max(1, φ +
  rho r) is at most 1/r = s/u.
- One lane, open loop, control first: events get min(φ, 1 - rho) of the broker's time. Nothing is gained until
  φ + rho exceeds one, and the closed loop's gain once φ + rho r does.
- Two lanes: changes take none of the events' processor, so the gain is 1 for every rho below one. Beyond,
  re-subscriptions wait without end, and subscribers discard events that match only their old values.

Assumptions: each system is charged the mean costs, events wait at the busiest broker, and pending updates do
not replace each other, which would only add to the gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from covey.sim.simulator.costs import CostTable


def closed_loop(rho: float, ratio: float) -> float:
    """The gain in one lane that publishers fill; `ratio` is u/s. Below rho = 1."""
    return (1 - rho * ratio) / (1 - rho)


def settling_s(events: int, event_s: float, rho: float) -> float:
    """Seconds until a closed loop of `events` in one lane, first come, first served, is steady within a
    tenth.

    Changes gather behind the events of a round: the excess of a round over the events' own time is rho times
    the last round, which converges to events * event_s / (1 - rho).
    """
    rounds = log(0.1) / log(rho)
    return events * event_s / (1 - rho) * (rounds - rho * 0.9 / (1 - rho))


def utilisation_for(gain: float, ratio: float) -> float:
    return (gain - 1) / (gain - ratio)


@dataclass(frozen=True, slots=True)
class ChangeCosts:
    """Nanoseconds at one broker: a change as a re-subscription and as an update, and an event."""

    resubscription: float
    update: float
    event: float

    @property
    def ratio(self) -> float:
        return self.update / self.resubscription


def change_costs(costs: CostTable, static: str, parametric: str, shape: str, filters: float) -> ChangeCosts:
    """The costs of two systems at a number of filters; each message includes its acknowledgement."""

    def of(system: str, operation: str) -> float:
        return at(costs[system][shape][operation], filters)

    s = of(static, "subscribe") + of(static, "unsubscribe") + 2 * of(static, "acknowledge")
    u = of(parametric, "update") + of(parametric, "acknowledge")
    return ChangeCosts(s, u, of(static, "publish"))


def at(points: Sequence[Sequence[float]], filters: float) -> float:
    """A cost between the measured numbers of filters, linear in logarithms; constant beyond them."""
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.exp(np.interp(np.log(filters), x, y)))
