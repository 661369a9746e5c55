"""Numbers with the interval of 95 % over independent runs (Student's t), which differ in their seeds. Two
systems run the same seeds: their ratio is taken per seed, and its logarithms are averaged, so that a ratio
and its inverse are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, isfinite, log, sqrt
from statistics import fmean, stdev

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The quantiles 0.975 of Student's t for 1 to 10 degrees of freedom."""
_T_MORE = 2.2
_UNLIKELY = 0.05
"""A smaller probability is ruled out, at 95 %."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval. If `above`, the denominator counted nothing, and the value is a lower bound.
    One run gives no interval (`low` is 0, `high` infinite); `runs` is 0 for exact counts."""

    value: float
    low: float
    high: float
    runs: int
    above: bool = False

    def __str__(self) -> str:
        if self.above:
            return f"> {_short(self.value)}"
        if self.low == 0 and self.high == self.value:
            return f"< {_short(self.value)}"
        if self.is_exact or not isfinite(self.high):
            return _short(self.value)
        return f"{_short(self.value)} ({_short(self.low)} to {_short(self.high)})"

    @classmethod
    def exact(cls, value: float) -> Estimate:
        """A number without an interval, such as bytes of memory."""
        return cls(value, value, value, 0)

    @property
    def is_exact(self) -> bool:
        return self.runs == 0

    @property
    def drawn(self) -> tuple[float, float, float] | float:
        """The value and the ends of its interval, for a figure; the value alone if it has none."""
        return self.value if self.is_exact or not isfinite(self.high) else (self.value, self.low, self.high)

    def over(self, x: float) -> tuple[float, float] | tuple[float, float, float, float]:
        return (x, *self.drawn) if isinstance(self.drawn, tuple) else (x, self.drawn)

    def times(self, factor: float) -> Estimate:
        return replace(self, value=factor * self.value, low=factor * self.low, high=factor * self.high)

    def under(self, limit: float) -> Estimate:
        """How many times it is below a limit; below 1, the inverse ratio."""
        low = limit / self.high if isfinite(self.high) else 0.0
        return Estimate(limit / self.value, low, limit / self.low if self.low > 0 else inf, self.runs)


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one value per run. Raises `ValueError` without values."""
    if not values:
        raise ValueError("a mean of no values")
    middle = fmean(values)
    half = _half(values)
    return Estimate(middle, max(0.0, middle - half) if isfinite(half) else 0.0, middle + half, len(values))


def gain(better: Sequence[float], worse: Sequence[float], unit: float = 0.0) -> Estimate | None:
    """The ratio of `better` to `worse`, pairs of one run each. None if there is nothing to compare.

    If some run counted none, it is the ratio of the sums, with an interval by leaving out one run at a time.
    If no run counted any in `worse`, it is a lower bound, at which all of n random events fall to `better`
    with a probability of 5 %; likewise an upper bound if none did to `better`. `unit` is the value in a run
    of a single event.
    """
    pairs = list(zip(better, worse, strict=True))
    if not pairs or not (any(better) or any(worse)):
        return None
    if not any(better):
        bound = gain(worse, better, unit)
        return None if bound is None else Estimate(1 / bound.value, 0.0, 1 / bound.value, bound.runs)
    if all(a > 0 and b > 0 for a, b in pairs):
        logs = [log(a / b) for a, b in pairs]
        middle, half = fmean(logs), _half(logs)
        high = exp(middle + half) if isfinite(half) else inf
        return Estimate(exp(middle), exp(middle - half), high, len(pairs))
    if not any(worse):
        if not unit:
            return None
        share = _UNLIKELY ** (unit / sum(better))
        bound = share / (1 - share)
        return Estimate(bound, bound, inf, len(pairs), above=True)
    return _jackknife(pairs)


def _jackknife(pairs: Sequence[tuple[float, float]]) -> Estimate:
    def ratio(of: Sequence[tuple[float, float]]) -> float:
        return sum(a for a, _ in of) / sum(b for _, b in of)

    whole, count = ratio(pairs), len(pairs)
    rests = [[*pairs[:i], *pairs[i + 1 :]] for i in range(count)]
    if count < 2 or not all(any(b for _, b in rest) for rest in rests):
        return Estimate(whole, 0.0, inf, count)
    parts = [ratio(rest) for rest in rests]
    middle = fmean(parts)
    half = _quantile(count) * sqrt((count - 1) / count * sum((part - middle) ** 2 for part in parts))
    return Estimate(whole, max(0.0, whole - half), whole + half, count)


def _half(values: Sequence[float]) -> float:
    count = len(values)
    return _quantile(count) * stdev(values) / sqrt(count) if count > 1 else inf


def _quantile(count: int) -> float:
    return _T[count - 2] if count - 2 < len(_T) else _T_MORE


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"
