"""Random deep and long trees as texts, each with its meaning: an oracle without filters."""

import random
from collections.abc import Callable

import numpy as np

from covey.matcher import EventType

T = EventType("T", {"a": "int64", "b": "int64", "c": "int64", "d": "string"})
Event = dict[str, object]
Truth = Callable[[Event, dict[str, int]], bool]
Made = tuple[str, Truth]


def leaf(choose: random.Random) -> Made:
    """A predicate as text, and its meaning: false where the attribute is missing."""
    attribute = choose.choice("abc")
    value = choose.randrange(6)
    forms: list[tuple[str, Callable[[int, dict[str, int]], bool]]] = [
        (f"{attribute} == {value}", lambda v, _: v == value),
        (f"{attribute} != {value}", lambda v, _: v != value),
        (f"{attribute} < {value}", lambda v, _: v < value),
        (f"{attribute} >= $x + {value}", lambda v, x: v >= x["x"] + value),
        (f"{attribute} == $y", lambda v, x: v == x["y"]),
        (f"{attribute} between $x and $y", lambda v, x: x["x"] <= v <= x["y"]),
        (f"{attribute} in ({value}, {value + 2})", lambda v, _: v in (value, value + 2)),
    ]
    if choose.random() < 0.2:
        text = choose.choice(["x", "xy", "y"])
        start = choose.random() < 0.5
        written = f"d {'prefix' if start else '=='} '{text}'"

        def holds(event: Event, _: dict[str, int]) -> bool:
            found = event.get("d")
            return isinstance(found, str) and (found.startswith(text) if start else found == text)

        return written, holds
    written, test = choose.choice(forms)

    def passes(event: Event, values: dict[str, int]) -> bool:
        found = event.get(attribute)
        return isinstance(found, int) and test(found, values)

    return written, passes


def joined(operator: str, parts: list[Made]) -> Made:
    combine = all if operator == "and" else any
    truths = [truth for _, truth in parts]
    text = "(" + f" {operator} ".join(text for text, _ in parts) + ")"
    return text, lambda event, values: combine(truth(event, values) for truth in truths)


def deep(choose: random.Random, depth: int) -> Made:
    """A tree of that depth, alternating `and` and `or`, with one or two leaves beside each level."""
    made = leaf(choose)
    for level in range(depth):
        beside = [leaf(choose) for _ in range(choose.randint(1, 2))]
        made = joined("and" if level % 2 else "or", [*beside, made])
    return made


def bushy(choose: random.Random, predicates: int, operator: str = "and") -> Made:
    if predicates == 1:
        return leaf(choose)
    parts = min(predicates, choose.randint(2, 4))
    cuts = sorted(choose.sample(range(1, predicates), parts - 1))
    sizes = np.diff([0, *cuts, predicates]).tolist()
    other = "or" if operator == "and" else "and"
    return joined(operator, [bushy(choose, size, other) for size in sizes])


def events(choose: random.Random, count: int) -> list[Event]:
    return [
        {name: choose.choice([None, *range(8)]) for name in "abc"}
        | {"d": choose.choice([None, "x", "xyz", "z"])}
        for _ in range(count)
    ]
