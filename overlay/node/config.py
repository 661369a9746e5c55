"""The configuration of an overlay: one YAML file that all its brokers share, plus the environment.

Invariant: what `load_overlay` returns is sound: names and addresses are unique, links join known brokers,
and the links form a tree, since the routing of Jayaram et al. (section 3) holds for acyclic overlays. Every
mistake is a `ConfigError` of one sentence that names the file, the field, the value and what was expected.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from covey.matcher.engine import engine_names
from covey.matcher.errors import CoveyError, EventTypeError
from covey.matcher.events.event_type import EventType
from covey.overlay.core.merging.mergers import MERGING_BUDGET, MERGINGS
from covey.overlay.node.documents import read_document
from covey.overlay.transport.limits import Limits, SessionLimits

ROUTINGS = ("parametric", "static")
REPLAY_EVENTS = 10_000


class ConfigError(CoveyError, ValueError):
    """The overlay file or the environment is wrong."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is reached, and the address it listens at."""

    name: str
    address: str
    listen: str


@dataclass(frozen=True, slots=True)
class Overlay:
    """All that an overlay file says. In a link, the second broker dials the first. `engine`, `merging` and
    `merging_budget` are those of the brokers' cores.

    `delays_ms` and `client_delay_ms` are one-way delays of links and of clients' connections; only the
    simulator uses them, brokers delay nothing. Each broker keeps the last
    `replay_events` events of each type for updates without gaps; 0 for none. `damping` is how many typical
    steps wider clients' bounds are announced, so that movement within costs no message; 0 for off. It and
    `merging` go with parametric routing alone.
    """

    name: str
    routing: str
    event_types: tuple[EventType, ...]
    brokers: Mapping[str, BrokerAddress]
    links: tuple[tuple[str, str], ...]
    limits: Limits
    sessions: SessionLimits
    delays_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    client_delay_ms: float = 0.0
    replay_events: int = REPLAY_EVENTS
    engine: str = "cluster"
    damping: float = 0.0
    merging: str = "off"
    merging_budget: int = MERGING_BUDGET

    def delay_ms(self, a: str, b: str) -> float:
        """The delay one way of the link between two brokers, in either order; 0 where the file names none."""
        return self.delays_ms.get((a, b), self.delays_ms.get((b, a), 0.0))

    def neighbours(self, broker: str) -> dict[str, bool]:
        """The neighbours of a broker, each with whether the broker is the one that dials."""
        found = {}
        for listener, dialer in self.links:
            if broker == dialer:
                found[listener] = True
            elif broker == listener:
                found[dialer] = False
        return found


def load_overlay(path: str | Path, environment: Mapping[str, str] | None = None) -> Overlay:
    """The overlay that a file describes, COVEY_ROUTING taken into account. `ConfigError` for any mistake."""
    environment = os.environ if environment is None else environment
    overlay = _Reader(str(path)).overlay(read_document(path, ConfigError))
    routing = environment.get("COVEY_ROUTING")
    if routing:
        if routing not in ROUTINGS:
            raise ConfigError(f"COVEY_ROUTING is {routing!r}: expected {' or '.join(ROUTINGS)}")
        if routing == "static" and overlay.merging != "off":
            raise ConfigError(
                f"COVEY_ROUTING is {routing!r}: expected parametric with merging {overlay.merging}"
            )
        if routing == "static" and overlay.damping:
            raise ConfigError(
                f"COVEY_ROUTING is {routing!r}: expected parametric with damping {overlay.damping:g}"
            )
        overlay = replace(overlay, routing=routing)
    return overlay


def select_broker(overlay: Overlay, name: str, environment: Mapping[str, str] | None = None) -> BrokerAddress:
    """The broker of this name, COVEY_LISTEN taken into account. `ConfigError` if the overlay has none."""
    environment = os.environ if environment is None else environment
    broker = overlay.brokers.get(name)
    if broker is None:
        raise ConfigError(
            f"broker {name!r} is not in overlay {overlay.name!r}: it has {_list(overlay.brokers)}"
        )
    listen = environment.get("COVEY_LISTEN")
    if listen:
        _check_address(listen, "COVEY_LISTEN")
        broker = replace(broker, listen=listen)
    return broker


class _Reader:
    """Reads one document; every complaint begins with the file and the field."""

    def __init__(self, path: str) -> None:
        self.path = path

    def overlay(self, document: object) -> Overlay:
        known = ["overlay", "routing", "event_types", "brokers", "links", "limits", "client_delay_ms"]
        known += ["replay_events", "engine", "damping", "merging", "merging_budget"]
        top = self.mapping(document, "", known)
        for required in ("overlay", "brokers"):
            if required not in top:
                raise self.error(required, "is missing")
        name = top["overlay"]
        if not isinstance(name, str) or not name:
            raise self.error("overlay", f"is {name!r}: expected the overlay's name")
        routing = top.get("routing", "parametric")
        if routing not in ROUTINGS:
            raise self.error("routing", f"is {routing!r}: expected {' or '.join(ROUTINGS)}")
        brokers = self.brokers(top["brokers"])
        links, delays_ms = self.links(top.get("links") or [], brokers)
        event_types = self.event_types(top.get("event_types") or {})
        limits, sessions = self.limits(top.get("limits") or {})
        client_ms = self.delay(top.get("client_delay_ms", 0.0), "client_delay_ms")
        replay = top.get("replay_events", REPLAY_EVENTS)
        if not isinstance(replay, int) or isinstance(replay, bool) or replay < 0:
            raise self.error("replay_events", f"is {replay!r}: expected a whole number from 0 up")
        engine = self.choice(top.get("engine", "cluster"), "engine", engine_names())
        damping = top.get("damping", 0.0)
        if not isinstance(damping, int | float) or isinstance(damping, bool) or not 0 <= damping <= 1e6:
            raise self.error("damping", f"is {damping!r}: expected a number of steps, from 0 for off to 1e6")
        if damping and routing == "static":
            raise self.error("damping", f"is {damping!r}: expected 0 with static routing")
        given = top.get("merging", "off")
        merging = self.choice("off" if given is False else given, "merging", MERGINGS)  # YAML's bare off
        if merging != "off" and routing == "static":
            raise self.error("merging", f"is {merging!r}: expected off with static routing")
        budget = top.get("merging_budget", MERGING_BUDGET)
        if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
            raise self.error("merging_budget", f"is {budget!r}: expected a whole number from 1 up")
        return Overlay(
            name=name,
            routing=routing,
            event_types=event_types,
            brokers=brokers,
            links=links,
            limits=limits,
            sessions=sessions,
            delays_ms=delays_ms,
            client_delay_ms=client_ms,
            replay_events=replay,
            engine=engine,
            damping=float(damping),
            merging=merging,
            merging_budget=budget,
        )

    def brokers(self, value: object) -> dict[str, BrokerAddress]:
        found: dict[str, BrokerAddress] = {}
        by_address: dict[str, str] = {}
        for name, entry in self.mapping(value, "brokers").items():
            field = f"brokers.{name}"
            if not name.isprintable() or not name or len(name) > 200:
                raise self.error(field, "is no name for a broker: expected 1 to 200 printable characters")
            entry = self.mapping(entry, field, ["address", "listen"])
            if "address" not in entry:
                raise self.error(f"{field}.address", "is missing")
            address = self.address(entry["address"], f"{field}.address")
            listen = self.address(entry.get("listen", address), f"{field}.listen")
            if address in by_address:
                raise self.error(
                    f"{field}.address", f"is {address!r}: that is broker {by_address[address]}'s"
                )
            by_address[address] = name
            found[name] = BrokerAddress(name, address, listen)
        if not found:
            raise self.error("brokers", "is empty: expected at least one broker")
        return found

    def links(
        self, value: object, brokers: Mapping[str, BrokerAddress]
    ) -> tuple[tuple[tuple[str, str], ...], dict[tuple[str, str], float]]:
        if not isinstance(value, list):
            raise self.error("links", f"is {value!r}: expected a list of pairs of brokers")
        links: list[tuple[str, str]] = []
        delays_ms: dict[tuple[str, str], float] = {}
        parts = {name: [name] for name in brokers}  # which brokers the links so far join
        for position, entry in enumerate(value):
            field = f"links[{position}]"
            pair, delay_ms = self.link(entry, field)
            for end in pair:
                if not isinstance(end, str) or end not in brokers:
                    raise self.error(field, f"names {end!r}: expected one of {_list(brokers)}")
            a, b = pair
            if a == b:
                raise self.error(field, f"joins {a} with itself: expected two brokers")
            if parts[a] is parts[b]:
                path = _path(links, a, b)
                raise self.error(field, f"closes a cycle, {' - '.join([*path, a])}: expected a tree")
            small, large = sorted((parts[a], parts[b]), key=len)
            large += small
            parts.update(dict.fromkeys(small, large))
            links.append((a, b))
            if delay_ms is not None:
                delays_ms[a, b] = delay_ms
        first = next(iter(brokers))
        apart = [name for name in brokers if parts[name] is not parts[first]]
        if apart:
            raise self.error(
                "links", f"do not reach {', '.join(apart)} from {first}: expected a connected overlay"
            )
        return tuple(links), delays_ms

    def link(self, entry: object, field: str) -> tuple[list[Any], float | None]:
        """Either a pair of brokers, or a mapping with the pair as `ends` and perhaps `delay_ms`."""
        delay_ms = None
        if isinstance(entry, dict):
            known = self.mapping(entry, field, ["ends", "delay_ms"])
            if "ends" not in known:
                raise self.error(f"{field}.ends", "is missing")
            entry = known["ends"]
            if "delay_ms" in known:
                delay_ms = self.delay(known["delay_ms"], f"{field}.delay_ms")
        if not isinstance(entry, list) or len(entry) != 2:
            raise self.error(field, f"is {entry!r}: expected a pair of brokers")
        return entry, delay_ms

    def choice(self, value: object, field: str, known: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in known:
            raise self.error(field, f"is {value!r}: expected one of {', '.join(known)}")
        return value

    def delay(self, value: object, field: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 3_600_000:
            raise self.error(field, f"is {value!r}: expected milliseconds, from 0 to an hour")
        return float(value)

    def event_types(self, value: object) -> tuple[EventType, ...]:
        found = []
        for name, attributes in self.mapping(value, "event_types").items():
            field = f"event_types.{name}"
            try:
                found.append(EventType(name, self.mapping(attributes, field)))
            except EventTypeError as error:
                raise self.error(field, f"is wrong: {error}") from None
        return tuple(found)

    def limits(self, value: object) -> tuple[Limits, SessionLimits]:
        sizes = [f.name for f in fields(Limits)]
        given = self.mapping(value, "limits", [*sizes, "session_lease_s", "session_queue_events"])
        for name, number in given.items():
            whole = name != "session_lease_s"
            good = isinstance(number, int if whole else (int, float)) and not isinstance(number, bool)
            if not good or not number > 0:  # nor is .nan
                kind = "whole number" if whole else "number"
                raise self.error(f"limits.{name}", f"is {number!r}: expected a positive {kind}")
        limits = Limits(**{name: given[name] for name in sizes if name in given})
        if limits.max_frame_bytes < limits.max_event_bytes + 4_096 or limits.max_frame_bytes >= 1 << 30:
            raise self.error(
                "limits.max_frame_bytes",
                f"is {limits.max_frame_bytes}: expected at least max_event_bytes + 4096 "
                f"({limits.max_event_bytes + 4_096}) and less than 1 GiB",
            )
        sessions = SessionLimits(
            float(given.get("session_lease_s", SessionLimits().lease_s)),
            given.get("session_queue_events", SessionLimits().queue_events),
        )
        return limits, sessions

    def mapping(self, value: object, field: str, known: list[str] | None = None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(field, f"is {value!r}: expected a mapping")
        for key in value:
            if not isinstance(key, str):
                raise self.error(field, f"has the key {key!r}: expected text (quote it)")
            if known is not None and key not in known:
                raise self.error(
                    f"{field}.{key}".lstrip("."), f"is unknown: expected one of {', '.join(known)}"
                )
        return value

    def address(self, value: object, field: str) -> str:
        return _check_address(value, f"{self.path}: {field}")

    def error(self, field: str, complaint: str) -> ConfigError:
        return ConfigError(f"{self.path}: {field or 'the document'} {complaint}")


def _check_address(value: object, field: str) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise ConfigError(f'{field} is {value!r}: expected "host:port" with a port from 1 to 65535')
    assert isinstance(value, str)
    return value


def _path(links: list[tuple[str, str]], start: str, end: str) -> list[str]:
    """The brokers from start to end over these links, which have no cycle; empty if there is no way."""
    trail = {start: start}
    reached = [start]
    for at in reached:
        for a, b in links:
            for here, there in ((a, b), (b, a)):
                if here == at and there not in trail:
                    trail[there] = at
                    reached.append(there)
    if end not in trail:
        return []
    path = [end]
    while path[-1] != start:
        path.append(trail[path[-1]])
    return path[::-1]


def _list(names: Mapping[str, object]) -> str:
    return ", ".join(names)
