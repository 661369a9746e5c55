"""How much the random tests draw, and from which seed.

`make test` draws little, from a new seed in each run; `make test-all` draws much. The environment variables:

- `COVEY_SEED=n` repeats the run that printed this seed.
- `COVEY_TESTS=all` draws as much as `make test-all`.
- `COVEY_TIMES=n` draws n times as much, as `make test-all COVEY_TIMES=10` does over a night.
- `COVEY_ONE_IN=n` runs one in n tests, other ones for another seed.

Random tests have the mark `random`, slow ones that only `make test-all` runs the mark `thorough`.
"""

import os
import secrets
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings

SEED = int(os.environ.setdefault("COVEY_SEED", str(secrets.randbelow(1_000_000))))
"""Workers of pytest-xdist inherit it, so that a run has one seed."""

UVLOOP = SEED % 2 == 1
"""Whether this run's tests use uvloop, where installed."""

ALL = os.environ.get("COVEY_TESTS") == "all"

TIMES = int(os.environ.get("COVEY_TIMES", "1"))

ONE_IN = int(os.environ.get("COVEY_ONE_IN", "1"))


@dataclass(frozen=True, slots=True)
class Draws:
    """How many `unit` one random test draws in `make test`, and in `make test-all`."""

    unit: str
    few: int
    many: int

    @property
    def count(self) -> int:
        return TIMES * (self.many if ALL else self.few)


DRAWS = {
    "engines against the oracle": Draws("cases per engine", 1_000, 1_600),
    "engines with calls against the oracle": Draws("histories per engine", 2, 8),
    "fuzzer, parametric": Draws("histories", 100, 150),
    "fuzzer, static": Draws("histories", 100, 150),
    "fuzzer, durable": Draws("histories", 120, 300),
    "fuzzer, repair": Draws("histories, and a twelfth of each of 5 other kinds", 48, 96),
    "fuzzer, faults": Draws("histories of stated seeds", 60, 200),
    "fuzzer, stalls": Draws("histories", 2, 12),
    "fuzzer, views": Draws("histories of stated seeds", 60, 240),
    "fuzzer, other options": Draws("histories of each of 42 kinds, a quarter of it of long ones", 8, 16),
    "changes of slots": Draws("histories of each of 16 kinds", 6, 12),
    "diagrams with local updates": Draws("histories of each of 3 kinds", 15, 40),
    "cluster leaves against the oracle": Draws("cases", 200, 400),
    "rows in two arrangements": Draws("histories of each of 4 configurations", 4, 12),
    "matchers against a dict": Draws("histories of each of 3 engines", 10, 36),
    "trees under churn": Draws("cases per engine", 1, 4),
    "churn": Draws("seeds of 20,000 subscriptions", 1, 4),
    "churn, large": Draws("seeds of 100,000 subscriptions, bounds checked", 0, 1),
    "endpoints together": Draws("histories", 30, 100),
    "conversations with h2": Draws("conversations of client and of server", 30, 150),
    "filters as Spark columns": Draws("filters, four events each", 24, 120),
    "logs on simulated disks": Draws("histories, with damage", 200, 300),
    "policies by content": Draws("triples of policy, filter and update", 3_000, 5_000),
    "hostile frames": Draws("frames", 20_000, 60_000),
    "hostile packets": Draws("packets, 200 for each broker", 400, 1_200),
    "hostile filters": Draws("texts", 1_000, 6_000),
}

SHARE = TIMES * (0.4 if ALL else 0.2)
"""A Hypothesis test's number of examples, as a share of its stated number."""


def examples(stated: int) -> settings:
    """The settings of a Hypothesis test that states a number of examples."""
    return settings(max_examples=max(8, round(stated * SHARE)))


def seeds(name: str) -> range:
    """The seeds of a random test, different in each run."""
    return range(SEED, SEED + DRAWS[name].count)


def each_seed(name: str) -> Any:
    """Decorate a random test with a parameter `seed`."""
    mark = pytest.mark.parametrize("seed", seeds(name))
    return lambda test: pytest.mark.random(mark(test))


def chunks(name: str, parts: int, *, stated: bool = False) -> list[range]:
    """The seeds of a random test, in parts where it draws many. Stated seeds begin at 0 in each run, for
    histories that sometimes meet what is not promised."""
    drawn = range(DRAWS[name].count) if stated else seeds(name)
    parts = min(parts, len(drawn)) if ALL else 1
    return [drawn[len(drawn) * part // parts : len(drawn) * (part + 1) // parts] for part in range(parts)]


def some_seeds(name: str, parts: int) -> Any:
    """Decorate a random test with a parameter `seeds`, in `chunks`."""
    mark = pytest.mark.parametrize("seeds", chunks(name, parts), ids=str)
    return lambda test: pytest.mark.random(mark(test))


def report() -> list[str]:
    lines = [f"seed {SEED} (COVEY_SEED={SEED} repeats this run); draws of make test, make test-all:"]
    lines += [f"  {name}: {each.few:,}, {each.many:,} {each.unit}" for name, each in DRAWS.items()]
    lines.append("  Hypothesis: 20 %, 40 % of the examples that each test states")
    loop = "uvloop, where it is installed" if UVLOOP else "asyncio's own"
    much = f"{'make test-all' if ALL else 'make test'} does{f', {TIMES} times' if TIMES > 1 else ''}"
    return [*lines, f"  this run draws as {much}, on {loop}"]
