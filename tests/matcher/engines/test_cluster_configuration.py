"""Hashing configurations: the schema of a signature, and the schemas with tables."""

import random
from itertools import combinations

import numpy as np

from covey.matcher.compile.plan import Shape
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning import schema_kernels as k
from covey.matcher.engines.cluster.tuning.configuration import Configuration, head_of
from covey.matcher.engines.cluster.tuning.costs import (
    BUCKET_BYTES,
    CHECK,
    TABLE_BYTES,
    Equalities,
    best_schemas,
    table_cost,
)
from covey.matcher.engines.cluster.tuning.steps import finish


def signature(columns: list[int], shapes: list[Shape], width: int) -> list[int]:
    line = [0] * (a.SIGN_TESTS + a.TEST_FIELDS * width)
    line[a.SIGN_SIZE] = len(columns)
    for test, (column, shape) in enumerate(zip(columns, shapes, strict=True)):
        line[a.SIGN_TESTS + a.TEST_FIELDS * test] = column
        line[a.SIGN_TESTS + a.TEST_FIELDS * test + 1] = shape
    return line


def test_a_signature_uses_the_best_schema_that_its_equalities_satisfy() -> None:
    choose = random.Random(3)
    for _ in range(300):
        schemas = {
            tuple(sorted(choose.sample(range(6), choose.randrange(1, 4)))): choose.choice([0.1, 0.2, 0.5])
            for _ in range(choose.randrange(6))
        }
        columns = [choose.choice([*range(6), 300]) for _ in range(choose.randrange(7))]
        shapes = [choose.choice(list(Shape)) for _ in columns]
        lines = np.array([signature(columns, shapes, 7)], dtype=np.int32)
        configuration = Configuration(schemas)
        (use,) = configuration.uses(lines, np.zeros(1, dtype=np.int64))

        equal = [column for column, shape in zip(columns, shapes, strict=True) if shape is Shape.EQUAL]
        fitting = [schema for schema in schemas if set(schema) <= set(equal)]
        other = (min(equal),) if equal else ()
        schema = min(fitting, key=lambda s: (schemas[s], s), default=other)
        assert configuration.schema_of(use) == schema

        hashed = lines[0, a.SIGN_ACCESS : a.SIGN_ACCESS + lines[0, a.SIGN_EQUAL]].tolist()
        assert [columns[test] for test in hashed] == list(schema)
        assert all(shapes[test] is Shape.EQUAL and columns.index(columns[test]) <= test for test in hashed)
        left = [test for test in range(len(columns)) if test not in hashed]
        first = left[0] if left and columns[left[0]] < a.NARROW_COLUMNS else None
        assert head_of(use) == (None if first is None else (columns[first], shapes[first], len(left) == 1))
        assert use[k.USE_LEFT] == (a.NARROW if 300 in columns else min(len(left), a.NARROW))
        ranged = {c for c, s in zip(columns, shapes, strict=True) if s is Shape.BOTH and c < a.NARROW_COLUMNS}
        assert use[k.USE_RANGED] == len(ranged)


def greedy(data: Equalities, space: float, most: int) -> list[tuple[int, ...]]:
    """The greedy choice by its definition: every step computes each schema's saving anew."""
    columns = range(len(data.columns))
    known = [(c,) for c in columns] + [
        pair for pair in combinations(columns, 2) if (data.has[:, pair[0]] & data.has[:, pair[1]]).any()
    ]
    through, chosen = np.ones(len(data.rows)), list[tuple[int, ...]]()

    def passed(schema: tuple[int, ...]) -> float:
        return float(np.prod(data.selectivity[list(schema)]))

    def usable(schema: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.asarray(data.has[:, list(schema)].all(axis=1))

    def fixed(schema: tuple[int, ...]) -> float:
        able = float(data.rows[usable(schema)].sum())
        distinct = min(float(np.prod(data.distinct[list(schema)])), 1e12)
        return table_cost(len(schema), data.moves[list(schema)].sum(), min(able, distinct))

    def value(schema: tuple[int, ...]) -> tuple[float, float]:
        saved = np.clip(through - passed(schema), 0, None) * usable(schema)
        benefit = float(saved @ data.rows) * CHECK - fixed(schema)
        distinct = min(float(np.prod(data.distinct[list(schema)])), 1e12)
        room = TABLE_BYTES + BUCKET_BYTES * min(float(data.rows[saved > 0].sum()), distinct)
        return (benefit / room if benefit > 0 and room <= space else 0.0), room

    while len(chosen) < most:
        values = [0.0 if schema in chosen else value(schema)[0] for schema in known]
        if max(values) <= 0:
            break
        best = known[int(np.argmax(values))]
        chosen.append(best)
        space -= value(best)[1]
        through = np.where(usable(best), np.minimum(through, passed(best)), through)
        if len(best) < a.ACCESS:
            wider = [tuple(sorted({*best, c})) for c in columns if c not in best]
            known += [schema for schema in wider if schema not in known]

    def cost(schemas: list[tuple[int, ...]]) -> float:
        least = np.ones(len(data.rows))
        for schema in schemas:
            least = np.where(usable(schema), np.minimum(least, passed(schema)), least)
        return sum(map(fixed, schemas)) + float(least @ data.rows) * CHECK

    kept = list(chosen)
    for schema in chosen:
        without = [other for other in kept if other != schema]
        if cost(without) <= cost(kept):
            kept = without
    return kept


def test_schemas_are_those_of_the_greedy_algorithm() -> None:
    rng = np.random.default_rng(5)
    chosen = 0
    for _ in range(80):
        columns = int(rng.integers(1, 8))
        has = np.unique(rng.random((int(rng.integers(1, 40)), columns)) < 0.5, axis=0)
        has = has[has.any(axis=1)]
        if not len(has):
            continue
        data = Equalities(
            tuple(range(columns)),
            has,
            rng.integers(1, 20_000, len(has)).astype(float),
            rng.random(columns) ** 3 + 1e-6,
            rng.integers(1, 1000, columns).astype(float),
            rng.random(columns) * (rng.random(columns) < 0.2),
        )
        space = float(10 ** rng.uniform(3, 8))
        expected = greedy(data, space, 12)
        assert finish(best_schemas(data, space, 12)) == expected
        chosen += len(expected)
    assert chosen > 100
