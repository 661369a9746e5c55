"""The lengths of objects' tables, for tests of leaks. Tables are found by walking the objects, so new ones
are watched as well."""

from collections import deque
from typing import Any

import numpy as np


def tables(holder: object, within: str = "covey.overlay.core") -> dict[str, int]:
    """The length of each reachable table, by its path; a table's entries share a name. Objects of packages
    outside `within` are not entered."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", holder)]
    while pending:
        path, thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, (dict, list, set, deque, tuple)):
            found[path] = found.get(path, 0) + len(thing)
            values = thing.values() if isinstance(thing, dict) else thing
            pending += [(f"{path}[]", value) for value in values]
        elif isinstance(thing, np.ndarray):
            found[path] = found.get(path, 0) + len(thing)
        elif type(thing).__module__.startswith(within):
            names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
            names += list(getattr(thing, "__dict__", ()))
            pending += [(f"{path}.{name}", getattr(thing, name, None)) for name in names]
    return found


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """The tables that have become longer, with their lengths before and after."""
    lengths = {path: (before.get(path, 0), length) for path, length in after.items()}
    return {path: pair for path, pair in lengths.items() if pair[1] > pair[0]}
