"""What plans of benchmarks are held to before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable

from covey.matcher.errors import CoveyError


class PlanError(CoveyError, ValueError):
    """A plan is wrong; one sentence names the field, the value and what was expected."""


def check_known(plan: object, **known: Iterable[str]) -> None:
    """`PlanError` for a value of one of these fields that is not among the known ones."""
    for name, expected in known.items():
        for value in getattr(plan, name):
            if value not in expected:
                raise PlanError(f"{name}: {value!r}, expected one of {', '.join(expected)}")
