"""The kinds of configurations of a cluster engine, and what each allows.

- `static`: the greedy choice of schemas under a space bound (Fabret et al. 2001, 3.3), together with ranges
  as access predicates.
- `dynamic`: maintenance alone, from single equalities on (their 4).
- `propagation`: one equality per access predicate, the most selective, and no ranges (their 2), row by row;
  `propagation_lookahead`: a block at a time, prefetched, as in all other kinds.
- `adaptive`: the greedy choice whenever the engine has doubled, and maintenance in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.matcher.errors import CoveyError

KINDS = ("adaptive", "static", "dynamic", "propagation", "propagation_lookahead")


@dataclass(frozen=True, slots=True)
class Policy:
    """What a kind of configuration allows."""

    chooses_schemas: bool
    maintains: bool
    propagation: bool
    """One equality per access predicate, no ranges, no leaves; large buckets are not kept in order."""
    lookahead: bool

    @classmethod
    def of(cls, kind: str) -> Policy:
        """The policy of one of `KINDS`, else `CoveyError`."""
        if kind not in KINDS:
            raise CoveyError(f"configuration {kind!r}: expected one of {', '.join(KINDS)}")
        return cls(
            chooses_schemas=kind != "dynamic",
            maintains=kind in ("adaptive", "dynamic"),
            propagation=kind.startswith("propagation"),
            lookahead=kind != "propagation",
        )
