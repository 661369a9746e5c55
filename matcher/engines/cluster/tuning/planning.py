"""Choosing a hashing configuration from statistics: the schemas first; per schema the number of hashed ranges
and the first tests that group its rows; then the columns that have bitmaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.layout.arrays import ACCESS, NARROW_COLUMNS
from covey.matcher.engines.cluster.tuning.configuration import Configuration, Head, Policy, head_of
from covey.matcher.engines.cluster.tuning.costs import Schema, best_schemas, leaf_cost, range_costs
from covey.matcher.engines.cluster.tuning.statistics import RangeSample, SignatureUse, Statistics
from covey.matcher.engines.cluster.tuning.steps import STEP, Steps, in_steps

MOST_SCHEMAS = 64  # tables of equalities; an event is looked up in each
_MOST_SINGLES = 10_000
_SPACE = 1 << 20
_SPACE_PER_ROW = 64
_ALIKE, _APART = 48, 192
"""Reached rows from which on a first test gets its own table: if most of its schema's rows have it, and if
not."""
_MOST_BITMAPS = 64  # columns of leaves that have bitmaps
_FEWEST_IN_LEAVES = 4096
_SELDOM = 64  # a column has a bitmap when one row in this many tests it


def first_configuration(policy: Policy) -> Configuration:
    """The configuration of an empty store."""
    return Configuration(ranges={(): 0 if policy.propagation else 1})


def choose_schemas(policy: Policy, statistics: Statistics) -> Steps[list[Schema]]:
    space = _SPACE + _SPACE_PER_ROW * float(statistics.equalities.rows.sum())
    if policy.propagation:
        return (yield from best_schemas(statistics.equalities, space, _MOST_SINGLES, 1))
    return (yield from best_schemas(statistics.equalities, space, MOST_SCHEMAS, ACCESS))


def plan(policy: Policy, statistics: Statistics, schemas: Iterable[Schema]) -> Steps[Configuration]:
    data = statistics.equalities
    passed = dict(zip(data.columns, data.selectivity.tolist(), strict=True))

    def reach(schema: Schema) -> float:
        return float(np.prod([passed.get(column, 1.0) for column in schema]))

    configuration = Configuration({schema: reach(schema) for schema in schemas})
    uses = yield from configuration.all_uses(statistics.lines, statistics.numbers)
    rows: dict[Schema, int] = {}
    heads: dict[tuple[Schema, Head], int] = {}
    schema_of = np.zeros(len(statistics.lines), dtype=np.int64)
    numbers: dict[Schema, int] = {}
    for units, pairs in in_steps(list(zip(statistics.signatures.items(), uses, strict=True))):
        for (number, signature), use in pairs:
            schema = configuration.schema_of(use)
            rows[schema] = rows.get(schema, 0) + signature.rows
            schema_of[number] = numbers.setdefault(schema, len(numbers))
            head = head_of(use)
            if head is not None:
                heads[schema, head] = heads.get((schema, head), 0) + signature.rows
        yield units
    reached = {schema: reach(schema) for schema in rows}
    leaves: tuple[int, ...] = ()
    if policy.propagation:
        ranges = dict.fromkeys([*numbers, ()], 0)
    else:
        ranges, costs = yield from _ranges(statistics, rows, reached, schema_of, list(numbers))
        leaves = yield from _leaf_columns(statistics.signatures, statistics.ranges, costs.get((), 0.0))
    grouping = {
        (schema, head)
        for (schema, head), count in heads.items()
        if count * reached[schema] >= (_ALIKE if 2 * count > rows[schema] else _APART)
    }
    configuration = replace(configuration, ranges=ranges, heads=frozenset(grouping), leaves=leaves)
    configuration.make_room(uses)
    return configuration


def _ranges(
    statistics: Statistics,
    rows: dict[Schema, int],
    reached: dict[Schema, float],
    schema_of: npt.NDArray[np.int64],
    schemas: Sequence[Schema],
) -> Steps[tuple[dict[Schema, int], dict[Schema, float]]]:
    """How many ranges the rows of each schema hash, and what the rows cost per event, in ns."""
    sampled_schemas = schema_of[statistics.ranges.signatures]
    ranges: dict[Schema, int] = {(): 1}
    least: dict[Schema, float] = {}
    for number, schema in enumerate(schemas):
        sample = statistics.ranges.ranges[sampled_schemas == number]
        yield STEP
        if not len(sample) or len(schema) >= ACCESS:
            ranges[schema] = 0
            continue
        present = sample[:, [0, 3]] >= 0
        widths = np.where(present, sample[:, [2, 5]] / 2.0**16, 1.0)
        classes = np.searchsorted(statistics.reaches, sample[:, [1, 4]])
        one = np.column_stack([sample[:, 0], classes[:, 0]])
        two = np.column_stack([sample[:, [0, 3]], (classes + 1) // 2])
        tables = [0, len(np.unique(one, axis=0)), len(np.unique(two, axis=0))]
        costs = range_costs(rows[schema], reached[schema], widths, tables)
        ranges[schema] = int(np.argmin(costs))
        least[schema] = min(costs)
    return ranges, least


def _leaf_columns(
    signatures: dict[int, SignatureUse], sample: RangeSample, hashed_cost: float
) -> Steps[tuple[int, ...]]:
    """The columns with bitmaps; none if hashing rows without equalities costs less per event than leaves."""
    tests: dict[int, int] = {}
    rows = 0
    members = []
    for units, items in in_steps(list(signatures.items())):
        for number, use in items:
            if not use.equal_columns:
                members.append(number)
                rows += use.rows
                for column in set(use.columns):
                    tests[column] = tests.get(column, 0) + use.rows
        yield units
    if rows < _FEWEST_IN_LEAVES:
        return ()
    columns = sorted(
        (c for c, count in tests.items() if c < NARROW_COLUMNS and _SELDOM * count >= rows),
        key=lambda column: (-tests[column], column),
    )[:_MOST_BITMAPS]
    ranges = sample.ranges[np.isin(sample.signatures, members)]
    if not columns or not len(ranges):
        return ()
    narrowest = np.where(ranges[:, 0] >= 0, ranges[:, 2] / 2.0**16, 1.0)
    cost = leaf_cost(rows, len(columns), float(narrowest.mean()), float(ranges[:, 6].mean()) / 2.0**30)
    return tuple(sorted(columns)) if cost < hashed_cost else ()
