"""Kernels about access schemas: which one a signature uses, the tests left, and what tables would save.

use [ schema ranged head-column head-shape head-alone left ]     one line per signature; the fields below
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.code_kernels import is_hashed
from covey.matcher.jit.kernel import array, boolean, float64, frozen, inlined, int32, int64, kernel

USE_SCHEMA, USE_RANGED, USE_HEAD, USE_LEFT = 0, 1, 2, 5
"""Schema; number of columns with ranges; column and shape of the first test not hashed, and whether it is the
only one (NONE for a column without codes); how many codes a row needs.
"""
USE_FIELDS = 6
SINGLE = -2  # SINGLE - c is the schema of column c alone, where none of the configuration's fits


@inlined
def equality_on(line, column):  # type: ignore[no-untyped-def]
    """The first test of a signature that is an equality on a column, or NONE."""
    for test in range(line[a.SIGN_SIZE]):
        at = a.SIGN_TESTS + a.TEST_FIELDS * test
        if line[at + a.TEST_SHAPE] == a.EQUAL and line[at + a.TEST_COLUMN] == column:
            return np.int64(test)
    return np.int64(a.NONE)


@inlined
def lowest_equality(line):  # type: ignore[no-untyped-def]
    """The lowest column of a signature's equalities, or NONE."""
    lowest = np.int64(a.NONE)
    for test in range(line[a.SIGN_SIZE]):
        at = a.SIGN_TESTS + a.TEST_FIELDS * test
        column = np.int64(line[at + a.TEST_COLUMN])
        if line[at + a.TEST_SHAPE] == a.EQUAL and (lowest == a.NONE or column < lowest):
            lowest = column
    return lowest


@inlined
def fits(line, schema):  # type: ignore[no-untyped-def]
    """Whether a signature has equalities on all columns of a schema; writes them as the hashed tests."""
    for part in range(a.ACCESS):
        if schema[part] == a.NONE:
            line[a.SIGN_EQUAL] = part
            return True
        test = equality_on(line, schema[part])
        if test == a.NONE:
            return False
        line[a.SIGN_ACCESS + part] = test
    line[a.SIGN_EQUAL] = a.ACCESS
    return True


@kernel(array(int32, 2), frozen(int64), frozen(int64, 2), array(int64, 2))
def use_schemas(signatures, numbers, schemas, uses):  # type: ignore[no-untyped-def]
    """Write, by signature, the use of the first schema (a line of columns) that it fits, and to the
    signature's line the hashed tests."""
    for i in range(numbers.size):
        line = signatures[numbers[i]]
        use = uses[i]
        chosen = np.int64(0)
        while chosen < schemas.shape[0] and not fits(line, schemas[chosen]):
            chosen += 1
        if chosen == schemas.shape[0]:
            chosen = np.int64(a.NONE)
            line[a.SIGN_EQUAL] = 0
            column = lowest_equality(line)
            if column != a.NONE:
                line[a.SIGN_EQUAL] = 1
                line[a.SIGN_ACCESS] = equality_on(line, column)
                chosen = SINGLE - column
        use[USE_SCHEMA] = chosen
        use[USE_RANGED] = 0
        use[USE_HEAD] = a.NONE
        use[USE_HEAD + 1] = use[USE_HEAD + 2] = 0
        left, wide = np.int64(0), False
        for test in range(line[a.SIGN_SIZE]):
            at = a.SIGN_TESTS + a.TEST_FIELDS * test
            tested, shape = line[at + a.TEST_COLUMN], line[at + a.TEST_SHAPE]
            wide |= tested >= a.NARROW_COLUMNS
            if shape == a.BOTH and tested < a.NARROW_COLUMNS:
                known = False
                for before in range(test):
                    other = a.SIGN_TESTS + a.TEST_FIELDS * before
                    known |= line[other + a.TEST_SHAPE] == a.BOTH and line[other + a.TEST_COLUMN] == tested
                use[USE_RANGED] += 0 if known else 1
            if not is_hashed(line, test):
                if left == 0 and tested < a.NARROW_COLUMNS:
                    use[USE_HEAD] = tested
                    use[USE_HEAD + 1] = shape
                left += 1
        if left == 1 and use[USE_HEAD] != a.NONE:
            use[USE_HEAD + 2] = 1
        use[USE_LEFT] = a.NARROW if wide else min(left, a.NARROW)
    return 0


@kernel(frozen(boolean, 2), frozen(float64), frozen(int64), frozen(float64), frozen(float64), float64,
        array(float64), array(float64))  # fmt: skip
def add_savings(usable, passed, groups, through, rows, sign, saved, moved):  # type: ignore[no-untyped-def]
    """For groups of rows[g] that schema s can serve (usable[s, g]), reached by the part through[g] of events
    now and passed[s] then: add `sign` times the checks saved per event to saved[s], the rows taken up to
    moved[s].
    """
    for s in range(passed.size):
        checks, taken = 0.0, 0.0
        for i in range(groups.size):
            g = groups[i]
            less = through[g] - passed[s]
            if usable[s, g] and less > 0:
                checks += less * rows[g]
                taken += rows[g]
        saved[s] += sign * checks
        moved[s] += sign * taken
    return 0
