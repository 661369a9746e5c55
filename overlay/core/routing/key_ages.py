"""When the keys of which types are looked through for those without an event for too long.

A type is looked through once its oldest key may be too old, and at most sixteen times per maximal age; so a
key is retired between its maximal age and a sixteenth more after its last event.
"""

from __future__ import annotations

from collections.abc import Mapping

_TIMES = 16


class KeyAges:
    """`max_age_ns` has the maximal age of the keys of some types, by name; the keys of others have none."""

    def __init__(self, max_age_ns: Mapping[str, int]) -> None:
        self.max_age_ns = max_age_ns
        self.next_ns = 0
        """When the next type is due; 0 while none is."""
        self._due: dict[str, int] = {}

    def stored(self, type_name: str, now_ns: int) -> None:
        """Events of a type were stored."""
        if type_name in self.max_age_ns and type_name not in self._due:
            self._set(type_name, now_ns + self.max_age_ns[type_name])

    def due(self, now_ns: int) -> list[str]:
        """The types to look through now; `looked` is to follow for each that has keys left."""
        names = [name for name, due_ns in self._due.items() if now_ns >= due_ns]
        for name in names:
            del self._due[name]
        self.next_ns = min(self._due.values(), default=0)
        return names

    def looked(self, type_name: str, oldest_ns: int, now_ns: int) -> None:
        """A type was looked through; the oldest of its keys has its event since `oldest_ns`."""
        age_ns = self.max_age_ns[type_name]
        self._set(type_name, max(oldest_ns + age_ns, now_ns + age_ns // _TIMES))

    def _set(self, type_name: str, due_ns: int) -> None:
        self._due[type_name] = due_ns
        self.next_ns = min(self._due.values())
