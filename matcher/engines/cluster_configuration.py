"""A hashing configuration: which access schemas there are, and which of them a subscription's rows use.

A *template* is what rows of one signature share in a configuration: the equalities hashed, how many ranges
are, and, where many rows of a bucket test the same column first, that column, so that they stand together.
Invariant: every signature has a template; template 0 hashes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from covey.matcher.engines import cluster_arrays as a
from covey.matcher.engines.cluster_costs import Schema
from covey.matcher.plan import Shape

Head = tuple[int, int, bool]
"""Column and shape of the test that comes first, and whether there is no other."""


@dataclass(frozen=True, slots=True)
class Template:
    """How rows of a signature are hashed."""

    schema: Schema = ()
    ranges: int = 0
    head: Head | None = None


@dataclass(slots=True)
class Configuration:
    """Schemas with the part of events that pass an access predicate of each; how many ranges rows of a
    schema hash; which heads rows of a schema stand together by.
    """

    schemas: Mapping[Schema, float] = field(default_factory=dict)
    ranges: Mapping[Schema, int] = field(default_factory=dict)
    heads: frozenset[tuple[Schema, Head]] = frozenset()
    templates: list[Template] = field(default_factory=lambda: [Template()])
    _numbers: dict[Template, int] = field(default_factory=lambda: {Template(): 0})
    _by_columns: dict[frozenset[int], Schema] = field(default_factory=dict)

    def changed(self, schemas: Mapping[Schema, float]) -> Configuration:
        """The same with other schemas; templates keep their numbers, so that tables in use stay in use."""
        return Configuration(schemas, self.ranges, self.heads, self.templates, self._numbers)

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

    def template_for(self, columns: tuple[int, ...], shapes: tuple[int, ...]) -> tuple[int, list[int]]:
        """The number of the template of a signature, and which of its tests are the equalities hashed."""
        equal: dict[int, int] = {}
        for test, (column, shape) in enumerate(zip(columns, shapes, strict=True)):
            if shape == Shape.EQUAL:
                equal.setdefault(column, test)
        schema = self.schema_for(frozenset(equal))
        access = [equal[column] for column in schema]
        ranged = {c for c, s in zip(columns, shapes, strict=True) if s == Shape.BOTH and c < a.NARROW_COLUMNS}
        ranges = min(self.ranges.get(schema, 0 if schema else 1), len(ranged), a.ACCESS - len(schema))
        head = None if ranges else head_of(columns, shapes, access)
        template = Template(schema, ranges, head if (schema, head) in self.heads else None)
        number = self._numbers.setdefault(template, len(self.templates))
        if number == len(self.templates):
            self.templates.append(template)
        return number, access


def head_of(columns: tuple[int, ...], shapes: tuple[int, ...], access: list[int]) -> Head | None:
    """The head of rows of a signature of which these tests are hashed."""
    left = [test for test in range(len(columns)) if test not in access]
    if not left or columns[left[0]] >= a.NARROW_COLUMNS:
        return None
    return columns[left[0]], shapes[left[0]], len(left) == 1
