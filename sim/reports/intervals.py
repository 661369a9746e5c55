"""The mean of a few measurements, such as the runs of one setting, with its 95 % interval or its range."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of Student's distribution for 1 to 30 degrees of freedom, 2.5 % on either side."""
_NORMAL = 1.96
ESTIMATED = 3
"""Measurements from which on the interval is one of Student's distribution: of two it reaches six times
their distance to either side, which says nothing."""


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of independent measurements that cannot be negative: the 95 % interval of the mean by
    Student's distribution, cut at zero; of fewer than `ESTIMATED`, the least and the greatest. Raises
    `ValueError` without values."""
    if not values:
        raise ValueError("no values: expected at least one")
    mean = fmean(values)
    if len(values) < ESTIMATED:
        return mean, min(values), max(values)
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else _NORMAL
    half = t * stdev(values) / sqrt(len(values))
    return mean, max(0.0, mean - half), mean + half
