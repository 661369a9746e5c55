"""What a client may do, by its subject and the claims of its token, as the overlay file permits.

Invariant: what no rule permits is denied, in the same sentence whether the event type exists or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from covey.overlay.core.access.identity import DeniedError


class Action(Enum):
    """The value is the name of the counter of denials."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMINISTER = "administer"


AUTHENTICATION = "authentication"
"""Clients without an accepted token or certificate, or with a name that is not theirs."""
PUBLISHER = "publisher"
"""Events under the name of another publisher."""

_VARIABLE = re.compile(r"\$(\w+)")
_WORDS = {
    Action.PUBLISH: "publish events of type",
    Action.SUBSCRIBE: "subscribe to events of type",
    Action.ADMINISTER: "administer event type",
}


@dataclass(frozen=True, slots=True)
class Permission:
    """Permits event types whose names match the glob `types`, and of their events those that match the policy
    `where`: a filter whose variables are claims of the token, empty for all events."""

    types: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """For clients whose subject matches one of the globs and whose token has each claim: the value, or a list
    with it."""

    subjects: tuple[str, ...] = ("*",)
    claims: Mapping[str, object] = field(default_factory=dict)
    publish: tuple[Permission, ...] = ()
    subscribe: tuple[Permission, ...] = ()
    administer: tuple[Permission, ...] = ()

    def applies(self, subject: str, claims: Mapping[str, object]) -> bool:
        return any(fnmatchcase(subject, glob) for glob in self.subjects) and all(
            _has(claims.get(name), value) for name, value in self.claims.items()
        )


@dataclass(frozen=True, slots=True)
class Rights:
    """A client's; `claims` has only those that its policies name. `expires_ns` is since the epoch."""

    subject: str
    permissions: Mapping[Action, Sequence[Permission]]
    expires_ns: int | None = field(default=None, compare=False)
    claims: Mapping[str, object] = field(default_factory=dict, repr=False)

    def may(self, action: Action, type_name: str) -> bool:
        return any(fnmatchcase(type_name, each.types) for each in self.permissions[action])

    def policies(self, action: Action, type_name: str) -> tuple[str, ...] | None:
        """The policies one of which an event of the type must satisfy; None for every event."""
        texts = [each.where for each in self.permissions[action] if fnmatchcase(type_name, each.types)]
        return tuple(texts) if all(texts) else None

    def whole(self, action: Action) -> bool:
        return not any(each.where for each in self.permissions[action])

    def may_all(self, action: Action) -> bool:
        """Whether it may do so for every event type, as views of a whole broker require."""
        return any(each.types == "*" for each in self.permissions[action])

    def require(self, action: Action, type_name: str) -> None:
        """`DeniedError` unless it is permitted."""
        if not self.may(action, type_name):
            raise DeniedError("PERMISSION_DENIED", denial(self.subject, action, type_name))


def rights_of(
    subject: str, claims: Mapping[str, object], rules: Iterable[Rule], expires_ns: int | None = None
) -> Rights:
    """The union of what all rules that apply permit."""
    applied = [rule for rule in rules if rule.applies(subject, claims)]
    permissions = {
        Action.PUBLISH: tuple(each for rule in applied for each in rule.publish),
        Action.SUBSCRIBE: tuple(each for rule in applied for each in rule.subscribe),
        Action.ADMINISTER: tuple(each for rule in applied for each in rule.administer),
    }
    texts = " ".join(each.where for granted in permissions.values() for each in granted)
    named = {name: claims[name] for name in _VARIABLE.findall(texts) if name in claims}
    return Rights(subject, permissions, expires_ns, named)


def all_rights(subject: str) -> Rights:
    return Rights(subject, dict.fromkeys(Action, (Permission("*"),)))


def denial(subject: str, action: Action, type_name: str) -> str:
    return f"{subject!r} may not {_WORDS[action]} {type_name!r}"


def owner_of(name: str) -> str:
    """The part before the first slash. A client publishes only under its owner's names, so that nobody can
    use up the sequence numbers of another."""
    return name.partition("/")[0]


def owner_named(subject: str) -> str:
    """The subject, with its slashes encoded so that owners are disjoint."""
    return subject.replace("%", "%25").replace("/", "%2F")


def check_name(name: str, subject: str) -> None:
    """`DeniedError` unless a client of this subject may have the name."""
    owner = owner_named(subject)
    if owner_of(name) != owner:
        raise DeniedError(
            "PERMISSION_DENIED",
            f"client {name!r} of subject {subject!r}: expected {owner!r} or {owner + '/...'!r}",
        )


def _has(claim: object, value: object) -> bool:
    values = claim if isinstance(claim, list) else [claim]
    return any(each == value and type(each) is type(value) for each in values)
