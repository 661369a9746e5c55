"""Validation of the plans of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

from covey.matcher.errors import CoveyError


class PlanError(CoveyError, ValueError):
    """A plan is invalid; the message names the field, the value and the expectation."""


def check_known(plan: object, **known: Iterable[str]) -> None:
    """Raise `PlanError` if one of these fields contains an unknown value."""
    for name, expected in known.items():
        for value in getattr(plan, name):
            if value not in expected:
                raise PlanError(f"{name}: {value!r}, expected one of {', '.join(expected)}")
