"""The links of an overlay that a broker has left.

Invariant: of a tree that joins all brokers, what is left is a tree that joins all others. Each broker that
was linked to the one that leaves is linked to its *hub*, its parent in the tree of the file (`rule.py`), or
the first of its children where it was the root; all other links stay. Between two changes there is no cycle,
if each broker ends its old links before it opens new ones: new links lead to the hub alone, and the only
other way to it led through the broker that leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from covey.overlay.core.repair.rule import UplinkRule


def links_without(
    brokers: Sequence[str], links: Sequence[tuple[str, str]], name: str
) -> tuple[tuple[str, str], ...]:
    """The links when a broker has left; the new ones have the hub first, so that the others dial it."""
    around = UplinkRule(brokers, links).neighbours(name)  # the parent first, then the children
    hub = next(iter(around), None)
    remaining = []
    for link in links:
        if name not in link:
            remaining.append(link)
        elif hub is not None and hub not in link:
            remaining.append((hub, link[0] if link[1] == name else link[1]))
    return tuple(remaining)
