"""Workloads by name, and parameters of those that are generated, from text.

    attributes=20   predicates=7   fixed="== == <"   operators="== < >"   domain=1..100   domain.a3=1..2
    skew=1.0   event_skew=0.5   event_domain=1..35   event_domain.a0=1..2   event_attributes=10   ...

Of PREFIXES and MEMBERS: operator="not in"   tests=10000   constants=65   words=200000
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from covey.matcher.errors import InputError
from covey.sim.workload.fabret import Domain, Fabret
from covey.sim.workload.moving import TextTests
from covey.sim.workload.workload import Workload

_NUMBERS = (
    "attributes",
    "predicates",
    "event_attributes",
    "event_fixed",
    "subscription_batch",
    "event_batch",
    "first_attribute",
    "focus",
)
_OF_TEXTS = ("operator", "tests", "constants", "words")
_OTHERS = (
    "fixed",
    "operators",
    "domain",
    "event_domain",
    "skew",
    "event_skew",
    "domain.aN",
    "event_domain.aN",
)


def find_workload(name: str, known: Mapping[str, Workload], settings: Iterable[str] = ()) -> Workload:
    """The workload `name`; `settings`, each `parameter=value`, change the parameters of a generated one.
    Raises `InputError` for an unknown name, parameter or value, and for contradictory parameters."""
    by_name = {each.lower(): workload for each, workload in known.items()}
    if name.lower() not in by_name:
        raise InputError(f"workload {name!r}: expected one of {', '.join(known)}")
    workload = by_name[name.lower()]
    changes = list(settings)
    if not changes:
        return workload
    if not isinstance(workload, Fabret | TextTests):
        raise InputError(f"workload {name}: it has no parameters; W0, W2, fabret, PREFIXES and MEMBERS have")
    for setting in changes:
        parameter, separator, text = setting.partition("=")
        if not separator:
            raise InputError(f"parameter {setting!r}: expected parameter=value")
        try:
            name, value = parameter.strip(), text.strip()
            if isinstance(workload, Fabret):
                workload = replace(workload, **_change(workload, name, value))
            else:
                workload = replace(workload, **_text_change(name, value))
        except ValueError as error:
            raise InputError(f"parameter {parameter}: value {text!r}, {error}") from None
    return workload


def _change(workload: Fabret, parameter: str, text: str) -> dict[str, Any]:
    if parameter in _NUMBERS:
        return {parameter: _whole(text)}
    if parameter == "fixed":
        return {"fixed": dict(Counter(text.split()))}
    if parameter == "operators":
        return {"operators": tuple(text.split())}
    if parameter in ("domain", "event_domain"):
        return {parameter: _domain(text, getattr(workload, parameter))}
    if parameter in ("skew", "event_skew"):
        field = "domain" if parameter == "skew" else "event_domain"
        old: Domain = getattr(workload, field) or workload.domain
        try:
            skew = float(text)
        except ValueError:
            raise ValueError("expected a number") from None
        return {field: replace(old, skew=skew)}
    field, _, attribute = parameter.partition(".a")
    if field in ("domain", "event_domain") and attribute.isdigit() and int(attribute) < workload.attributes:
        domains: dict[int, Domain] = dict(getattr(workload, f"{field}s"))
        return {f"{field}s": domains | {int(attribute): _domain(text, domains.get(int(attribute)))}}
    raise InputError(f"parameter {parameter!r}: expected one of {', '.join((*_NUMBERS, *_OTHERS))}")


def _text_change(parameter: str, text: str) -> dict[str, Any]:
    if parameter not in _OF_TEXTS:
        raise InputError(f"parameter {parameter!r}: expected one of {', '.join(_OF_TEXTS)}")
    return {parameter: text if parameter == "operator" else _whole(text)}


def _domain(text: str, old: Domain | None) -> Domain:
    lower, separator, upper = text.partition("..")
    if not separator:
        raise ValueError("expected lower..upper")
    return Domain(_whole(lower), _whole(upper), 0.0 if old is None else old.skew)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected an integer") from None
