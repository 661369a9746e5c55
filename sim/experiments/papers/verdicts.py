"""Verdicts: a pure function of a paper's claim and the measured intervals, for all papers. An *effect* is a
ratio with its interval (`estimates.Estimate`), turned so that above one is as claimed. It is judged at every
point of the curve that the paper draws, never at the best one alone. A point is *ahead* if its interval
begins above `NONE`, *behind* if it ends below 1 / `NONE`, *excluded* if neither and it ends before the claim,
else *open*: an effect of fewer than `LEAST_RUNS` runs is always open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from covey.sim.experiments.papers.estimates import Estimate

NONE = 1.05
"""Up to this ratio there is no effect."""
REACHED = 0.9
"""The share of a paper's factor that counts as reached."""
LEAST_RUNS = 5
"""The least number of seeds for an interval."""


class Verdict(StrEnum):
    """A claim beside its measurement; `UNDECIDED` is the lack of a verdict."""

    HOLDS = "holds"
    SMALLER = "smaller"
    NOT_HERE = "not here"
    OPPOSITE = "opposite"
    UNDECIDED = "undecided"


DEFINITIONS = (
    (
        "holds",
        "At every point the interval is on the paper's side of no effect, which is 1.05 times; and where the "
        "paper has a factor, it begins at 90 % of that or more. Where the claim is 'up to', it does so at "
        "one point, and at none it is on the other side.",
    ),
    ("smaller", "At some points the interval is on the paper's side, and it does not hold."),
    ("not here", "At no point is it on the paper's side, and at some the claim is outside of the interval."),
    ("opposite", "At some point the interval is on the other side of no effect."),
    (
        "undecided",
        "All intervals hold both no effect and the claim, or are of fewer than five runs; or a baseline that "
        "must fail the claim does not.",
    ),
    ("interval", "Of a mean over seeds: 95 %, by Student's distribution."),
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's claim: a factor, 1 for a direction alone; at every point, or `up_to` it."""

    factor: float = 1.0
    up_to: bool = False

    @property
    def least(self) -> float:
        """Where an interval has to begin for the factor to be reached."""
        return max(REACHED * self.factor, NONE)


def ahead(effect: Estimate) -> bool:
    return _is_judged(effect) and effect.low > NONE


def behind(effect: Estimate) -> bool:
    return _is_judged(effect) and effect.high < 1 / NONE


def equal(effect: Estimate) -> bool:
    """Whether the whole interval is no effect."""
    return _is_judged(effect) and effect.low >= 1 / NONE and effect.high <= NONE


def _is_judged(effect: Estimate) -> bool:
    return effect.is_exact or effect.runs >= LEAST_RUNS


def decide(claim: Claim, effects: Sequence[Estimate | None]) -> Verdict:
    """The verdict over the points of a curve; None where nothing was measured."""
    known = [effect for effect in effects if effect is not None]
    if any(behind(effect) for effect in known):
        return Verdict.OPPOSITE
    forward = [effect for effect in known if ahead(effect)]
    if forward:
        reached = [effect.low >= claim.least for effect in forward]
        whole = any(reached) if claim.up_to else all(reached) and len(forward) == len(effects)
        return Verdict.HOLDS if whole else Verdict.SMALLER
    excluded = any(_is_judged(effect) and effect.high < claim.least for effect in known)
    return Verdict.NOT_HERE if excluded else Verdict.UNDECIDED


def beside(verdict: Verdict, baselines: Sequence[Verdict]) -> Verdict:
    """A verdict that baselines must fail: undecided if one of them does not."""
    failed = {Verdict.NOT_HERE, Verdict.OPPOSITE}
    return verdict if failed.issuperset(baselines) else Verdict.UNDECIDED


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Several claims as one: it holds if all do, and is opposite if one is."""
    if Verdict.OPPOSITE in verdicts:
        return Verdict.OPPOSITE
    if {*verdicts} == {Verdict.HOLDS}:
        return Verdict.HOLDS
    if {Verdict.HOLDS, Verdict.SMALLER} & {*verdicts}:
        return Verdict.SMALLER
    return Verdict.NOT_HERE if Verdict.NOT_HERE in verdicts else Verdict.UNDECIDED


def extremes(effects: Mapping[str, Estimate | None]) -> str:
    """The worst point beside the best, as a part of a sentence."""
    known = {place: effect for place, effect in effects.items() if effect is not None}
    if not known:
        return "nothing was measured"
    worst, best = (pick(known, key=lambda place: known[place].value) for pick in (min, max))
    if worst == best:
        return f"{known[best]} ({best})"
    return f"at worst {known[worst]} ({worst}), at best {known[best]} ({best})"


def claimed(effects: Mapping[str, Estimate | None]) -> str:
    """The worst point beside the best, and how many are on which side, as a sentence."""
    known = [effect for effect in effects.values() if effect is not None]
    return f"So many times, above one as claimed: {extremes(effects)}; {compared(known, 'points')}."


def compared(effects: Sequence[Estimate], what: str) -> str:
    first, second, same = (sum(map(side, effects)) for side in (ahead, behind, equal))
    return (
        f"ahead in {first} of {len(effects)} {what}, behind in {second}, equal within {NONE:g} times in "
        f"{same}, open in {len(effects) - first - second - same}"
    )
