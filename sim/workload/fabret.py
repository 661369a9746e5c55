"""The workload generator of Fabret et al. 2001, section 6.1, with all of its parameters. Values of a domain
follow Zipf's law over their rank (exponent 0: uniform), separately for subscriptions and events. Ranks start
at the lower bound, so equal domains correlate and shifted ones do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher import EventBatch, EventType, parse
from covey.sim.workload.workload import (
    Column,
    Indices,
    SubscriptionGroup,
    Workload,
    alike,
    zipf_probabilities,
)

OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Domain:
    """The integers lower..upper, both included, drawn uniformly or by Zipf's law with exponent `skew`."""

    lower: int
    upper: int
    skew: float = 0.0

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise ValueError(f"domain {self.lower}..{self.upper}: expected lower <= upper")
        if not 0 <= self.skew < float("inf"):
            raise ValueError(f"domain skew {self.skew}: expected 0 (uniform) or a positive exponent")

    def draw(self, count: int, rng: np.random.Generator) -> Indices:
        """int64[count]."""
        if self.skew == 0.0:
            return rng.integers(self.lower, self.upper, size=count, endpoint=True)
        cumulative = np.cumsum(zipf_probabilities(self.upper - self.lower + 1, self.skew))
        ranks: Indices = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
        return ranks + self.lower


@dataclass(frozen=True)
class Fabret(Workload):
    """The generator; its fields are the paper's parameters (their symbols in brackets).

    The fixed predicates are on the attributes a0, a1, ... in the order of `fixed`, e.g. {"==": 2, "<": 1}:
    equality on a0 and a1, `<` on a2. Free predicates are on random other attributes with operators from
    `operators`. `domains` and `event_domains` are by attribute number. Raises `ValueError` for contradictory
    parameters.
    """

    name: str = "fabret"
    description: str = "Fabret et al. 2001, section 6.1"
    attributes: int = 32
    """Of the event type (n_t)."""
    predicates: int = 5
    """Per subscription (n_P)."""
    fixed: Mapping[str, int] = field(default_factory=lambda: {"==": 2})
    """Fixed predicates by operator (n_Pfix=, n_Pfix<, ...)."""
    operators: tuple[str, ...] = ("==",)
    domain: Domain = Domain(1, 35)
    """Of constants (l_P, u_P)."""
    domains: Mapping[int, Domain] = field(default_factory=dict)
    event_attributes: int | None = None
    """Attributes per event (n_A); all by default."""
    event_fixed: int = 0
    """How many of the first attributes every event has (n_Afix)."""
    event_domain: Domain | None = None
    """Of event values (l_A, u_A); by default `domain`."""
    event_domains: Mapping[int, Domain] = field(default_factory=dict)
    subscription_batch: int | None = None
    """Subscriptions per batch (n_Sb), in the order of their ids; all at once by default."""
    event_batch: int | None = None
    """Events per batch (n_Eb); by default the benchmark's."""
    first_attribute: int = 0
    """First attribute of fixed and free predicates; section 6.4 shifts it."""
    focus: int | None = None
    """Number of attributes, from `first_attribute` on, that subscriptions use; by default all."""

    def __post_init__(self) -> None:
        for what, size in (("subscription", self.subscription_batch), ("event", self.event_batch)):
            if size is not None and size < 1:
                raise ValueError(f"{what} batch {size}: expected at least 1")
        fixed = sum(self.fixed.values())
        for operator in (*self.fixed, *self.operators):
            if operator not in OPERATORS:
                raise ValueError(f"operator {operator!r}: expected one of {' '.join(OPERATORS)}")
        if not 0 <= self.first_attribute < self.attributes:
            raise ValueError(f"first attribute {self.first_attribute}: expected 0..{self.attributes - 1}")
        if self.focus is not None and not 1 <= self.focus <= self.attributes - self.first_attribute:
            raise ValueError(f"focus {self.focus}: expected 1..{self.attributes - self.first_attribute}")
        if fixed > self.predicates:
            raise ValueError(f"{fixed} fixed predicates: expected at most {self.predicates}")
        if self.predicates > self._focus:
            raise ValueError(
                f"{self.predicates} predicates: expected at most {self._focus}, one per attribute"
            )
        if self.predicates > fixed and not self.operators:
            raise ValueError("operators: expected at least one for the free predicates")
        carried = self.attributes if self.event_attributes is None else self.event_attributes
        if not self.event_fixed <= carried <= self.attributes:
            raise ValueError(
                f"{carried} attributes per event: expected {self.event_fixed}..{self.attributes}"
            )
        names = {f"a{i}": "int64" for i in range(self.attributes)}
        object.__setattr__(self, "event_type", EventType("Fabret", names))

    @property
    def _focus(self) -> int:
        return self.attributes - self.first_attribute if self.focus is None else self.focus

    def with_(self, **changes: object) -> Fabret:
        return replace(self, **changes)  # type: ignore[arg-type]

    def arrivals(self, groups: list[SubscriptionGroup]) -> list[list[SubscriptionGroup]]:
        """The groups cut into batches of `subscription_batch` (n_Sb) by id."""
        if self.subscription_batch is None or not groups:
            return [groups]
        count = 1 + max(int(group.ids[-1]) for group in groups)
        bounds = np.arange(0, count + self.subscription_batch, self.subscription_batch)
        batches: list[list[SubscriptionGroup]] = [[] for _ in bounds[1:]]
        for group in groups:
            cuts = np.searchsorted(group.ids, bounds).tolist()
            for batch, (start, stop) in zip(batches, pairwise(cuts), strict=True):
                if start < stop:
                    batch.append(group.slice(start, stop))
        return batches

    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]:
        fixed_operators = [OPERATORS.index(o) for o, times in self.fixed.items() for _ in range(times)]
        fixed = len(fixed_operators)
        free = self.predicates - fixed
        attributes = np.empty((self.predicates, count), np.int64)
        operators = np.empty((self.predicates, count), np.int64)
        for position, operator in enumerate(fixed_operators):
            attributes[position] = self.first_attribute + position
            operators[position] = operator
        if free:
            drawn = np.sort(_subsets(self._focus - fixed, free, count, rng), axis=0)
            attributes[fixed:] = drawn + self.first_attribute + fixed
            known = np.array([OPERATORS.index(o) for o in self.operators])
            operators[fixed:] = known[rng.integers(0, len(known), size=(free, count))]
        constants = self._constants(attributes, rng)

        codes = np.zeros(count, np.int64)  # mixed radix: which attributes with which operators
        for position in range(fixed, self.predicates):
            codes = (codes * self.attributes + attributes[position]) * len(OPERATORS) + operators[position]
        for members in alike(codes):
            first = members[0]
            text = " and ".join(
                f"a{attributes[p, first]} {OPERATORS[operators[p, first]]} $v{p}"
                for p in range(self.predicates)
            )
            values = {f"v{p}": constants[p, members] for p in range(self.predicates)}
            yield SubscriptionGroup(parse(text, self.event_type), members, values)

    def _constants(self, attributes: Indices, rng: np.random.Generator) -> Indices:
        constants = self.domain.draw(attributes.size, rng).reshape(attributes.shape)
        for attribute, domain in self.domains.items():
            mask = attributes == attribute
            constants[mask] = domain.draw(int(mask.sum()), rng)
        return constants

    def _events(self, count: int, rng: np.random.Generator) -> EventBatch:
        everywhere = self.domain if self.event_domain is None else self.event_domain
        present = self._present(count, rng)
        columns = []
        for attribute in range(self.attributes):
            drawn = self.event_domains.get(attribute, everywhere).draw(count, rng)
            columns.append(pa.array(drawn, pa.int64(), mask=None if present is None else ~present[attribute]))
        records = pa.RecordBatch.from_arrays(columns, schema=self.event_type.arrow_schema)
        return EventBatch.from_arrow(self.event_type, records)

    def _present(self, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_] | None:
        carried = self.attributes if self.event_attributes is None else self.event_attributes
        if carried == self.attributes:
            return None
        present = np.zeros((self.attributes, count), np.bool_)
        present[: self.event_fixed] = True
        drawn = _subsets(self.attributes - self.event_fixed, carried - self.event_fixed, count, rng)
        for row in drawn + self.event_fixed:
            present[row, np.arange(count)] = True
        return present

    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]:
        last = f"v{self.predicates - 1}"
        return {last: self.domain.draw(len(group), rng)}


def _subsets(names: int, size: int, count: int, rng: np.random.Generator) -> Indices:
    """`count` random subsets of 0 .. names - 1, int64[size, count] (Floyd's method, vectorised)."""
    chosen = np.empty((size, count), np.int64)
    for taken, top in enumerate(range(names - size, names)):
        drawn = rng.integers(0, top, size=count, endpoint=True)
        clash = (chosen[:taken] == drawn).any(axis=0)
        chosen[taken] = np.where(clash, top, drawn)
    return chosen


W0 = Fabret(name="W0", description="32 attributes, 1..35: equality on two fixed and three random attributes")
W2 = Fabret(
    name="W2",
    description="equality on two fixed attributes, < on a third, two random ones with random operators",
    fixed={"==": 2, "<": 1},
    operators=("==", "<", "<=", ">", ">="),
)
