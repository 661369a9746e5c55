"""Access rows: the conjunctions of a few leaves by which a tree is found.

A tree can hold only where one of its access rows does, so an engine indexes these and evaluates the tree on
what they let through. `a == 1 and (tree)` has the one row `a == 1`; a disjunction has those of all its parts,
and `(a == 1 or b == 2) and c < 3` the rows `a == 1 and c < 3` and `b == 2 and c < 3`. This extends Fabret's
access predicates (2001, 2.2) to trees. Invariant: the rows are implied by the tree, so they never exclude an
event that matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Row = tuple[int, ...]
"""The leaves of a conjunction, by number."""

MOST_TESTS = 4
"""The most leaves of an access row: each is stored once more."""
ENOUGH = 1e-3
"""A part of the events so small that one more test would cost more than it spares."""
FEW = 0.1
"""A part of the events so small that alternatives, which multiply rows, would cost more than they spare."""
MOST_ROWS = 16
"""The most rows that a product of alternatives may have."""
USELESS = 0.9
"""The least part of the events from which on a test is no reason to look for a tree by it."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rows by which a part of a tree is found, and the part of the events they are expected to let
    through.
    """

    rows: tuple[Row, ...]
    passed: float


def access_rows(words: Sequence[int], passed: Sequence[float]) -> Access:
    """The access rows of a tree in words (`compile/tree_plan.py`), where leaf i holds for the part
    passed[i] of the events; one row without tests where every event may match. Linear in the tree; the rows
    are at most some four times as many as its leaves.
    """
    access, _ = _access(words, 0, passed)
    return Access(((),), 1.0) if access is None else access


def _access(words: Sequence[int], at: int, passed: Sequence[float]) -> tuple[Access | None, int]:
    """The access of the node at a word, None where nothing restricts it; and the next word."""
    word = words[at]
    at += 1
    if word >= 0:
        return (Access(((word,),), passed[word]) if passed[word] < USELESS else None), at
    node = -1 - word
    end = at + (node >> 1)
    parts: list[Access | None] = []
    while at < end:
        part, at = _access(words, at, passed)
        parts.append(part)
    known = [part for part in parts if part is not None]
    if node & 1:
        return (_any(known) if len(known) == len(parts) else None), at
    return (_all(known) if known else None), at


def _any(parts: list[Access]) -> Access | None:
    share = 1 - prod(1 - part.passed for part in parts)
    rows = dict.fromkeys(row for part in parts for row in part.rows)
    return Access(tuple(rows), share) if share < USELESS else None


def _all(parts: list[Access]) -> Access:
    """The most selective part, and others with it while they are worth their tests and rows."""
    first, *others = sorted(parts, key=lambda part: (part.passed * len(part.rows) ** 0.5, len(part.rows)))
    rows, share = first.rows, first.passed
    for part in others:
        longest = max(map(len, rows)) + max(map(len, part.rows))
        multiplies = len(part.rows) > 1 and (share <= FEW or len(rows) * len(part.rows) > MOST_ROWS)
        if share > ENOUGH and longest <= MOST_TESTS and not multiplies:
            rows = tuple([(*row, *more) for row in rows for more in part.rows])
            share *= part.passed
    return Access(rows, share)
