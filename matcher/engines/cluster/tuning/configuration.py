"""A hashing configuration: which access schemas there are, and which of them a subscription's rows use.

A *template* is what rows of one signature share: the equalities hashed, how many ranges are hashed, how many
tests have codes, and, where many rows of a bucket test the same column first, that column, which groups them.
Invariant: every signature with placed rows has a template; template 0 hashes nothing. The kinds:

- `static`: the greedy choice of schemas under a space bound (Fabret et al. 2001, 3.3), and ranges.
- `dynamic`: maintenance alone, from single equalities on (their 4).
- `propagation`: one equality per access predicate, the most selective, and no ranges (their 2), without
  prefetching; `propagation_lookahead`: the same with it, as in all other kinds.
- `adaptive`: the greedy choice whenever the engine has doubled, and maintenance in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.tuning import schema_kernels as k
from covey.matcher.engines.cluster.tuning.costs import Schema
from covey.matcher.engines.cluster.tuning.steps import Steps, parts
from covey.matcher.errors import CoveyError

KINDS = ("adaptive", "static", "dynamic", "propagation", "propagation_lookahead")


@dataclass(frozen=True, slots=True)
class Policy:
    chooses_schemas: bool
    maintains: bool
    propagation: bool  # one equality per access predicate, no ranges, no leaves, buckets unordered
    lookahead: int  # 1: memory is prefetched; -1: the same search without prefetches

    @classmethod
    def of(cls, kind: str) -> Policy:
        """The policy of one of `KINDS`, else `CoveyError`."""
        if kind not in KINDS:
            raise CoveyError(f"configuration {kind!r}: expected one of {', '.join(KINDS)}")
        return cls(
            chooses_schemas=kind != "dynamic",
            maintains=kind in ("adaptive", "dynamic"),
            propagation=kind.startswith("propagation"),
            lookahead=-1 if kind == "propagation" else 1,
        )


Head = tuple[int, int, bool]  # column and shape of the first test, and whether it is the only one
Use = tuple[int, ...]  # how a signature uses the schemas: the fields of `schema_kernels`


@dataclass(frozen=True, slots=True)
class Template:
    schema: Schema = ()
    ranges: int = 0
    head: Head | None = None
    tests: int = a.NARROW
    in_leaf: bool = False


_Key = tuple[Schema, int, Head | None]


@dataclass(slots=True)
class Configuration:
    schemas: Mapping[Schema, float] = field(default_factory=dict)  # part of events per access predicate
    ranges: Mapping[Schema, int] = field(default_factory=dict)  # hashed by the schema's rows
    heads: frozenset[tuple[Schema, Head]] = frozenset()  # that group a schema's rows
    leaves: tuple[int, ...] = ()  # columns with bitmaps, if rows without equalities go to leaves
    tests: dict[_Key, int] = field(default_factory=dict)  # codes that rows have room for
    templates: list[Template] = field(default_factory=lambda: [Template()])
    _numbers: dict[Template, int] = field(default_factory=lambda: {Template(): 0})
    _best_first: list[Schema] = field(init=False)
    _lines: npt.NDArray[np.int64] = field(init=False)
    _by_use: dict[Use, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._best_first = sorted(self.schemas, key=lambda schema: (self.schemas[schema], schema))
        self._lines = np.full((len(self._best_first), a.ACCESS), a.NONE, dtype=np.int64)
        for line, schema in zip(self._lines, self._best_first, strict=True):
            line[: len(schema)] = schema

    def changed(self, schemas: Mapping[Schema, float]) -> Configuration:
        """A copy with other schemas; templates keep their numbers, so that tables stay in use."""
        return replace(self, schemas=schemas, _by_use={})

    def uses(self, signatures: npt.NDArray[np.int32], numbers: npt.NDArray[np.int64]) -> list[Use]:
        """How signatures use the schemas: of those that their equalities satisfy, the one that the fewest
        events pass, or else a single equality. Writes the hashed tests to the signatures' lines.
        """
        uses = np.empty((len(numbers), k.USE_FIELDS), dtype=np.int64)
        k.use_schemas(signatures, numbers, self._lines, uses)
        return [tuple(use) for use in uses.tolist()]

    def all_uses(self, signatures: npt.NDArray[np.int32], numbers: npt.NDArray[np.int64]) -> Steps[list[Use]]:
        """As `uses`, in steps."""
        uses: list[Use] = []
        for start, stop in parts(0, len(numbers)):
            uses += self.uses(signatures, numbers[start:stop])
            yield stop - start
        return uses

    def schema_of(self, use: Use) -> Schema:
        number = use[k.USE_SCHEMA]
        if number >= 0:
            return self._best_first[number]
        return () if number == a.NONE else (k.SINGLE - number,)

    def make_room(self, uses: Iterable[Use]) -> None:
        """Give rows that share a template room for the most codes that one of them needs."""
        tests: dict[_Key, int] = {}
        for use in set(uses):
            key = self._key(use)
            if key not in self.tests:
                tests[key] = max(tests.get(key, 0), use[k.USE_LEFT])
        self.tests.update(tests)
        self._by_use.clear()

    def assign(self, signatures: npt.NDArray[np.int32], numbers: npt.NDArray[np.int64]) -> None:
        """Write the templates of these signatures to their lines."""
        templates = [self._template(use) for use in self.uses(signatures, numbers)]
        signatures[numbers, a.SIGN_TEMPLATE] = templates
        signatures[numbers, a.SIGN_RANGES] = [self.templates[number].ranges for number in templates]
        signatures[numbers, a.SIGN_LEAF] = [self.templates[number].in_leaf for number in templates]

    def _template(self, use: Use) -> int:
        number = self._by_use.get(use)
        if number is None:
            key = self._key(use)
            if self.leaves and not key[0]:
                template = Template(tests=0, in_leaf=True)
            else:
                template = Template(*key, max(self.tests.get(key, 0), use[k.USE_LEFT]))
            number = self._by_use[use] = self._numbers.setdefault(template, len(self.templates))
            if number == len(self.templates):
                self.templates.append(template)
        return number

    def _key(self, use: Use) -> _Key:
        schema = self.schema_of(use)
        most = self.ranges.get(schema, 0 if schema else 1)
        ranges = min(most, use[k.USE_RANGED], a.ACCESS - len(schema))
        head = None if ranges else head_of(use)
        return schema, ranges, head if head is not None and (schema, head) in self.heads else None


def head_of(use: Use) -> Head | None:
    column, shape, alone = use[k.USE_HEAD : k.USE_HEAD + 3]
    return None if column == a.NONE else (column, shape, bool(alone))
