"""A hashing configuration: which access schemas there are, and which of them a subscription's rows use.

A *template* is what rows of one signature share in a configuration: the equalities hashed, how many ranges
are, how many tests are left to have codes, and, where many rows of a bucket test the same column first, that
column, so that they stand together. Invariant: every signature has a template; template 0 hashes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from covey.matcher.engines import cluster_arrays as a
from covey.matcher.engines.cluster_costs import Schema
from covey.matcher.plan import Shape

Head = tuple[int, int, bool]
"""Column and shape of the test that comes first, and whether there is no other."""
Structure = tuple[tuple[int, ...], tuple[int, ...]]
"""Columns and shapes of a signature's tests."""


@dataclass(frozen=True, slots=True)
class Template:
    """How rows of a signature are hashed."""

    schema: Schema = ()
    ranges: int = 0
    head: Head | None = None
    tests: int = a.NARROW
    in_leaf: bool = False


_Key = tuple[Schema, int, Head | None]
_MOST_KEYS = 1 << 14


@dataclass(slots=True)
class Configuration:
    """Schemas with the part of events that pass an access predicate of each; how many ranges rows of a
    schema hash; which heads rows of a schema stand together by; which columns have bitmaps, where rows that
    have no equality stand in leaves; how many codes rows of a template have room for.
    """

    schemas: Mapping[Schema, float] = field(default_factory=dict)
    ranges: Mapping[Schema, int] = field(default_factory=dict)
    heads: frozenset[tuple[Schema, Head]] = frozenset()
    leaves: tuple[int, ...] = ()
    tests: dict[_Key, int] = field(default_factory=dict)
    templates: list[Template] = field(default_factory=lambda: [Template()])
    _numbers: dict[Template, int] = field(default_factory=lambda: {Template(): 0})
    _by_columns: dict[frozenset[int], Schema] = field(default_factory=dict)
    _keys: dict[Structure, tuple[_Key, list[int]]] = field(default_factory=dict)

    def changed(self, schemas: Mapping[Schema, float]) -> Configuration:
        """The same with other schemas; templates keep their numbers, so that tables in use stay in use."""
        return replace(self, schemas=schemas, _by_columns={}, _keys={})

    def schema_for(self, equal: frozenset[int]) -> Schema:
        """The schema that lets the fewest events through among those that these equalities satisfy; a
        single one where the configuration has none.
        """
        found = self._by_columns.get(equal)
        if found is None:
            fitting = [schema for schema in self.schemas if equal.issuperset(schema)]
            other = () if not equal or self.schemas.get((), inf) <= 1 else (min(equal),)
            found = min(fitting, key=lambda schema: (self.schemas[schema], schema), default=other)
            self._by_columns[equal] = found
        return found

    def make_room(self, structures: Iterable[Structure]) -> None:
        """Let rows of these that share a template share tables, however many tests each has left."""
        found: dict[_Key, int] = {}
        for columns, shapes in structures:
            key, access = self._key(columns, shapes)
            if key not in self.tests:
                found[key] = max(found.get(key, 0), _tests_left(columns, access))
        self.tests.update(found)

    def template_for(self, columns: tuple[int, ...], shapes: tuple[int, ...]) -> tuple[int, list[int]]:
        """The number of the template of a signature, and which of its tests are the equalities hashed."""
        key, access = self._key(columns, shapes)
        if self.leaves and not key[0]:
            template = Template(tests=0, in_leaf=True)
        else:
            template = Template(*key, max(self.tests.get(key, 0), _tests_left(columns, access)))
        number = self._numbers.setdefault(template, len(self.templates))
        if number == len(self.templates):
            self.templates.append(template)
        return number, access

    def _key(self, columns: tuple[int, ...], shapes: tuple[int, ...]) -> tuple[_Key, list[int]]:
        found = self._keys.get((columns, shapes))
        if found is None:
            if len(self._keys) >= _MOST_KEYS:
                self._keys.clear()
            found = self._keys[columns, shapes] = self._new_key(columns, shapes)
        return found

    def _new_key(self, columns: tuple[int, ...], shapes: tuple[int, ...]) -> tuple[_Key, list[int]]:
        equal: dict[int, int] = {}
        for test, (column, shape) in enumerate(zip(columns, shapes, strict=True)):
            if shape == Shape.EQUAL:
                equal.setdefault(column, test)
        schema = self.schema_for(frozenset(equal))
        access = [equal[column] for column in schema]
        ranged = {c for c, s in zip(columns, shapes, strict=True) if s == Shape.BOTH and c < a.NARROW_COLUMNS}
        ranges = min(self.ranges.get(schema, 0 if schema else 1), len(ranged), a.ACCESS - len(schema))
        head = None if ranges else head_of(columns, shapes, access)
        return (schema, ranges, head if (schema, head) in self.heads else None), access


def _tests_left(columns: tuple[int, ...], access: list[int]) -> int:
    """How many codes a row needs room for; all that there are where they do not suffice."""
    wide = any(column >= a.NARROW_COLUMNS for column in columns)
    return a.NARROW if wide else min(len(columns) - len(access), a.NARROW)


def head_of(columns: tuple[int, ...], shapes: tuple[int, ...], access: list[int]) -> Head | None:
    """The head of rows of a signature of which these tests are hashed."""
    left = [test for test in range(len(columns)) if test not in access]
    if not left or columns[left[0]] >= a.NARROW_COLUMNS:
        return None
    return columns[left[0]], shapes[left[0]], len(left) == 1
