"""Overlapping subscriptions: the synthetic workload of Liu et al. 2007 (section 5.2, Table 1).

Predicates have a popularity weight, uniform in [0, 1] or 1 / rank**exponent; the length of a subscription is
uniform, and its predicates are drawn without replacement by weight. An event satisfies each predicate
independently, with the predicate's selectivity as probability.

The paper states only that an event matches 0.2 % of the subscriptions. Here a selectivity is, by
`selectivity`, uniform in [0, m], the same m for all, or u**(1 / m - 1) for u uniform in [0, 1]; m is such
that the expected share of matching subscriptions is `matching`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from covey.matcher.evaluation.problem import FALSE, TRUE, Chains, Truths

Floats = npt.NDArray[np.float64]
_BISECTIONS = 50


@dataclass(frozen=True, slots=True)
class Overlapping:
    """The parameters of Table 1, and those that the paper leaves open.

    `exponent` is that of the Zipf distribution of popularity, None for uniform; costs are log-uniform between
    1 and `dearest`.
    """

    subscriptions: int
    predicates: int
    exponent: float | None = None
    shortest: int = 3
    longest: int = 5
    matching: float = 0.002
    selectivity: Literal["uniform", "equal", "power"] = "uniform"
    dearest: float = 1.0

    def chains(self, seed: int) -> Chains:
        draw = np.random.default_rng(seed)
        lengths = draw.integers(self.shortest, self.longest + 1, self.subscriptions)
        drawn = draw.permutation(self.predicates)[self._draw_predicates(draw)]
        predicates = drawn[np.arange(self.longest) < lengths[:, np.newaxis]]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Chains(
            seed,
            offsets,
            predicates,
            self.dearest ** draw.random(self.predicates),
            self._selectivities(offsets, predicates, draw.random(self.predicates)),
        )

    def _draw_predicates(self, draw: np.random.Generator) -> npt.NDArray[np.int64]:
        weights: Floats
        if self.exponent is None:
            weights = draw.random(self.predicates)
        else:
            weights = np.arange(1.0, self.predicates + 1) ** -self.exponent
        cumulative = np.cumsum(weights) / weights.sum()
        drawn = np.zeros((self.subscriptions, self.longest), np.int64)
        missing = np.ones(drawn.shape, np.bool_)
        while missing.any():
            numbers = np.searchsorted(cumulative, draw.random(int(missing.sum())), "right")
            drawn[missing] = np.minimum(numbers, self.predicates - 1)
            order = np.argsort(drawn, axis=1, kind="stable")
            ordered = np.take_along_axis(drawn, order, axis=1)
            repeated = np.diff(ordered, axis=1, prepend=-1) == 0
            np.put_along_axis(missing, order, repeated, axis=1)
        return drawn

    def _selectivities(
        self, offsets: npt.NDArray[np.int64], predicates: npt.NDArray[np.int64], uniform: Floats
    ) -> Floats:
        shape: Callable[[float], Floats] = {
            "uniform": lambda m: uniform * m,
            "equal": lambda m: np.full(len(uniform), m),
            "power": lambda m: uniform ** (1 / m - 1),
        }[self.selectivity]
        low, high = 1e-6, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            logarithms = np.log(np.maximum(shape(middle), 1e-300))[predicates]
            if np.exp(np.add.reduceat(logarithms, offsets[:-1])).mean() > self.matching:
                high = middle
            else:
                low = middle
        return shape(low)


def draw_truths(chains: Chains, events: int, seed: int) -> Truths:
    """Which predicates which events satisfy: int8[predicates, events], FALSE or TRUE."""
    drawn = np.random.default_rng((seed, events)).random((len(chains.costs), events))
    return np.where(drawn < chains.selectivities[:, np.newaxis], TRUE, FALSE)
