"""The colour, marker and dash of each name, the same in every figure. The three families of routing systems
differ in hue; within a family dark and solid is parametric, light and dashed re-subscription. Colours are
those of Okabe and Ito and shades of them, for colour-blind readers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Style:
    """`colour` is #rrggbb, `marker` and `dash` are Bokeh's names."""

    colour: str
    marker: str = "circle"
    dash: str = "solid"


BLACK, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE, GREY = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
    "#7f7f7f",
)
SHADES = ("#882255", "#999933", "#44aa99", "#332288")
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY, *SHADES)
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star", "hex", "plus")
DASHES = ("solid", "dashed", "dotted", "dotdash")

KNOWN = {
    "siena-parametric": Style(VERMILLION, "square"),
    "siena-subscribe-first": Style(ORANGE, "square", "dashed"),
    "siena-unsubscribe-first": Style("#a6761d", "diamond", "dotted"),
    "siena-cancel-late": Style("#882255", "star", "dotdash"),
    "rete-parametric": Style(BLUE, "triangle"),
    "rete-subscribe-first": Style(SKY, "triangle", "dashed"),
    "rete-unsubscribe-first": Style("#332288", "inverted_triangle", "dotted"),
    "rete-cancel-late": Style("#44aa99", "plus", "dotdash"),
    "covey-parametric": Style(GREEN, "circle"),
    "covey-subscribe-first": Style("#66c2a5", "circle", "dashed"),
    "covey-unsubscribe-first": Style("#999933", "hex", "dotted"),
    "covey-cancel-late": Style("#117733", "star", "dotdash"),
    "siena": Style(VERMILLION, "square"),
    "covey": Style(GREEN, "circle"),
    "parametric": Style(GREEN, "circle"),
    "static": Style(ORANGE, "square", "dashed"),
    "subscribe-first": Style(ORANGE, "square", "dashed"),
    "unsubscribe-first": Style("#a6761d", "diamond", "dotted"),
    "cancel-late": Style("#882255", "star", "dotdash"),
    "paper": Style(BLACK, "diamond", "dotted"),
    "here": Style(BLUE, "circle"),
    "prediction": Style(GREY, "plus", "dotted"),
    "events": Style(BLUE, "circle"),
    "control messages": Style(ORANGE, "square", "dashed"),
    "cluster": Style(GREEN, "circle"),
    "dynamic": Style(GREEN, "circle"),
    "chosen": Style(GREEN, "circle"),
    "propagation": Style(BLUE, "triangle"),
    "propagation wp": Style(SKY, "triangle", "dashed"),
    "no change": Style(GREY, "square", "dashed"),
    "counting": Style(PURPLE, "diamond"),
    "scan": Style(GREY, "plus", "dotted"),
    "search_tree": Style(BLUE, "triangle"),
    "noncanonical": Style(VERMILLION, "square"),
    "trees": Style("#882255", "hex"),
    "tree": Style("#882255", "hex"),
    "cap": Style(BLUE, "square", "dashed"),
    "rete": Style(SKY, "inverted_triangle"),
    "poset": Style(ORANGE, "square"),
    "naive": Style(GREY, "plus", "dotted"),
    "sequential": Style(ORANGE, "square", "dashed"),
    "sub_order": Style(BLUE, "triangle"),
    "greedy": Style(GREEN, "circle"),
    "bound": Style(BLACK, "diamond", "dotted"),
    "all three": Style(GREEN, "circle"),
    "none": Style(GREY, "plus", "dotted"),
    "no factoring": Style(VERMILLION, "square"),
    "trivial tests kept": Style(BLUE, "triangle"),
    "no delayed branching": Style(PURPLE, "diamond"),
}


def styles(names: Iterable[str], looks: Mapping[str, str] | None = None) -> dict[str, Style]:
    """The style of each name of a page; `looks` maps names to the known name whose style they have.

    A name that begins with a known one, such as `counting S_s=4`, or has one among its parts between commas,
    such as `chain, siena-parametric`, has its colour, and its own marker and dash. The style of any other
    name follows from its letters, and is the next free one where another name of the page has that.
    """
    distinct = list(dict.fromkeys(names))
    as_known = looks or {}
    chosen = {name: style for name in distinct if (style := _known(as_known.get(name, name))) is not None}
    taken = {style.colour for style in chosen.values()}
    for name in sorted(set(distinct) - set(chosen)):
        first = crc32(name.encode()) % len(PALETTE)
        order = [*PALETTE[first:], *PALETTE[:first]]
        colour = next((each for each in order if each not in taken), order[0])
        taken.add(colour)
        chosen[name] = Style(colour, _drawn(name, MARKERS), _drawn(name, DASHES))
    return {name: chosen[name] for name in distinct}


def _known(name: str) -> Style | None:
    if name in KNOWN:
        return KNOWN[name]
    parts = [part.strip() for part in name.split(",")]
    base = next((part for part in parts if part in KNOWN), None)
    if base is None:
        begins = [known for known in KNOWN if re.match(rf"{re.escape(known)}[ :(]", name)]
        base = max(begins, key=len, default=None)
    if base is None:
        return None
    return replace(KNOWN[base], marker=_drawn(name, MARKERS), dash=_drawn(name, DASHES))


def _drawn(name: str, values: tuple[str, ...]) -> str:
    return values[crc32(name.encode()[::-1]) % len(values)]
