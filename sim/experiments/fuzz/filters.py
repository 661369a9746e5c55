"""The filters and content filters of random histories."""

from __future__ import annotations

from covey.matcher import Filter, parse
from covey.sim.experiments.fuzz.calls import filters_with_calls
from covey.sim.experiments.fuzz.event_types import KEYED, TYPES, WIDER
from covey.sim.experiments.fuzz.options import FuzzOptions

CONJUNCTIONS = {
    "T": (
        "x < $a",
        "x < $a",
        "x >= $a",
        "x == $a",
        "x between $a and $b",
        "x >= $a and x < $b",
        "x < $a and y > $b",
        "x < $a + 1 and y > $b and y <= 8",
        's == "p" and x < $a',
        "s == $n and x > $a",
        "x > 2 and x < 5",
        "",
    ),
    "U": ("x < $a", "x > $a and flag == true", "flag == false", "x == 3"),
}
OTHER_OPERATORS = {
    "T": (
        "x < $a or x > $b",
        "s prefix $n or x == $a",
        's contains "p" and x < $a',
        "x != $a",
        "x in (1, $a, 5)",
    ),
    "U": ("x < $a or flag == true", "not (x == $a)"),
}

OVER_WIDER = (
    ("v < $a", "x < $a and v >= $b", "not exists v"),
    ("w < $b", "s == $n and w >= 1 and x < $a", "x in (1, $a, 5)"),
    ("f == true", "v between $a and $b or w < 2", "r prefix $n", 'r contains "p" or f == false'),
)

CONTENTS = ("x < 3", "x >= 3", "x between 2 and 5")

DENSE = ("x < $a", "x < $a", "x >= $a", "x between $a and $b", "x >= $a and x < $b")


def filters_of(options: FuzzOptions) -> dict[str, list[Filter]]:
    """The filters to draw from, by the name of their event type."""
    types = KEYED if options.views else TYPES
    if options.dense:
        return {types[0].name: [parse(text, types[0]) for text in DENSE]}
    texts = {
        name: [*CONJUNCTIONS[name], *(OTHER_OPERATORS[name] if options.operators else ())]
        for name in CONJUNCTIONS
    }
    filters = {
        event_type.name: [parse(text, event_type) for text in texts[event_type.name]] for event_type in types
    }
    if options.widen:
        for event_type, own in zip(WIDER, OVER_WIDER, strict=True):
            filters[event_type.name] += [parse(text, event_type) for text in own]
    if options.calls:
        for filter in filters_with_calls():
            filters[filter.event_type.name].append(filter)
    return filters
