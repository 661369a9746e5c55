"""Sets of values of one attribute: sorted, disjoint, half-open intervals between cuts (`cuts.py`).

A set is a flat tuple of cuts (low, high, low, high, ...), strictly ascending; () is empty. Kinds differ in
their cuts alone: the operations below serve all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from covey.matcher.covering.cuts import Cut, Line

Cuts = tuple[Cut, ...]


def only_string(cuts: Cuts, i: int) -> str | None:
    """The string in the interval at `cuts[i]` when it holds exactly one."""
    low: str = cuts[i]
    return low[1:] if low and cuts[i + 1] == low + "\0" else None


def intersection(a: Cuts, b: Cuts) -> Cuts:
    if len(a) == 2 and len(b) == 2:
        low = a[0] if a[0] >= b[0] else b[0]
        high = a[1] if a[1] <= b[1] else b[1]
        return (low, high) if low < high else ()
    shared: list[Cut] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i], b[j]), min(a[i + 1], b[j + 1])
        if low < high:
            shared += (low, high)
        if a[i + 1] <= b[j + 1]:
            i += 2
        else:
            j += 2
    return tuple(shared)


def common(sets: Sequence[Cuts]) -> Cuts:
    """The intersection of one or more sets, in O(n log n) of their n cuts: in pairs, since one after the
    other would copy what `!=` of many constants leaves for each of them.
    """
    while len(sets) > 1:
        pairs = [intersection(sets[i], sets[i + 1]) for i in range(0, len(sets) - 1, 2)]
        sets = [*pairs, sets[-1]] if len(sets) % 2 else pairs
    return sets[0]


def union(sets: list[Cuts]) -> Cuts:
    """The union of any number of sets; those that touch become one interval."""
    pairs = sorted([(cuts[i], cuts[i + 1]) for cuts in sets for i in range(0, len(cuts), 2)])
    merged: list[Cut] = []
    for low, high in pairs:
        if merged and low <= merged[-1]:
            merged[-1] = max(merged[-1], high)
        else:
            merged += (low, high)
    return tuple(merged)


def difference(a: Cuts, b: Cuts, line: Line) -> Cuts:
    """What is in a and not in b."""
    if not b:
        return a
    ends = (line.missing, *b, line.end)
    gaps: list[Cut] = []
    for i in range(0, len(ends), 2):
        if ends[i] < ends[i + 1]:
            gaps += (ends[i], ends[i + 1])
    return intersection(a, tuple(gaps))


def within(inner: Cuts, outer: Cuts) -> bool:
    """Is every value of inner in outer?"""
    j = 0
    for i in range(0, len(inner), 2):
        while j < len(outer) and outer[j + 1] <= inner[i]:
            j += 2
        if j == len(outer) or inner[i] < outer[j] or inner[i + 1] > outer[j + 1]:
            return False
    return True


def overlap(a: Cuts, b: Cuts) -> bool:
    """Do they share a value?"""
    if len(a) == 2 and len(b) == 2:
        return bool(a[0] < b[1] and b[0] < a[1])
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] < b[j + 1] and b[j] < a[i + 1]:
            return True
        if a[i + 1] <= b[j + 1]:
            i += 2
        else:
            j += 2
    return False
