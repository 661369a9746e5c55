"""The structure of a cluster store, as text."""

from __future__ import annotations

from collections.abc import Sequence

from covey.matcher.encoding.columns import Columns
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.rows.store import Signatures


def render_store(
    arrays: Sequence[a.StoreArrays], signatures: Signatures, configuration: Configuration, columns: Columns
) -> list[str]:
    """A line per access schema, with the first test if its rows share it, for leaves, and per signature."""
    return [*_tables(arrays, columns), *_leaves(arrays, signatures, configuration, columns)] + [
        f"tests ({', '.join(map(columns.describe, tested)) or 'nothing to test'}): {_count(rows, 'row')}"
        for tested, rows in _tests(signatures).items()
    ]


def _tables(arrays: Sequence[a.StoreArrays], columns: Columns) -> list[str]:
    totals: dict[str, list[int]] = {}
    for line in [line for each in arrays for line in each.tables[: each.state[a.TABLES]].tolist()]:
        parts = line[a.TABLE_PARTS :][: a.PART_FIELDS * line[a.TABLE_WIDTH]]
        pairs = zip(parts[:: a.PART_FIELDS], parts[a.PART_REACH :: a.PART_FIELDS], strict=True)
        names = [f"{columns.describe(column)}{' near' if reach != a.NONE else ''}" for column, reach in pairs]
        title = f"table ({', '.join(names) or 'no access predicate'})"
        if line[a.TABLE_HEAD] != a.NONE:
            title += f" before {columns.describe(line[a.TABLE_HEAD])}"
        total = totals.setdefault(title, [0, 0])
        total[0] += line[a.TABLE_BUCKETS]
        total[1] += line[a.TABLE_ROWS]
    return [
        f"{title}: {_count(buckets, 'bucket')}, {_count(rows, 'row')}"
        for title, (buckets, rows) in totals.items()
        if rows
    ]


def _leaves(
    arrays: Sequence[a.StoreArrays], signatures: Signatures, configuration: Configuration, columns: Columns
) -> list[str]:
    rows, leaves = (sum(int(each.leaves.state[n]) for each in arrays) for n in (a.LEAF_ROWS, a.LEAVES_USED))
    if not rows:
        return []
    tested = {column for columns in _tests(signatures) for column in columns}
    names = [columns.describe(column) for column in configuration.leaves if column in tested]
    title = f"bitmaps ({', '.join(names)}) of {arrays[0].leaves.state[a.BINS]} bins"
    return [f"{title}: {_count(leaves, 'leaf', 'leaves')}, {_count(rows, 'row')}"]


def _tests(signatures: Signatures) -> dict[tuple[int, ...], int]:
    tests: dict[tuple[int, ...], int] = {}
    for number in signatures.in_use():
        columns = signatures.columns[number]
        tests[columns] = tests.get(columns, 0) + signatures.row_counts[number]
    return tests


def _count(count: int, thing: str, things: str = "") -> str:
    return f"{count} {thing if count == 1 else things or thing + 's'}"
