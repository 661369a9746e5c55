"""The schema of overlay files. Invariant: names and addresses are unique, and links join the brokers as a
tree, since the routing of Jayaram et al. (section 3) needs an acyclic overlay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from covey.matcher.engine import engine_names
from covey.matcher.expressions.tokens import TEXT_LIMIT
from covey.overlay.core.access.rights import Permission, Rule
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, SessionLimits
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.merging.budget_merger import MERGING_BUDGET, MERGINGS
from covey.overlay.core.operators.operator_limits import OperatorLimits
from covey.overlay.core.repair.uplink import UplinkRule
from covey.overlay.core.routing.key_table import MAX_KEY_BYTES
from covey.overlay.core.routing.ring import MAX_REPLAY_BYTES
from covey.overlay.documents import EventTypes, Section, complaint, one_of, text_keys
from covey.overlay.node.authentication import ClientRules, TokenOptions
from covey.overlay.node.broker_storage import Retention
from covey.overlay.node.overlay import REPLAY_EVENTS, BrokerAddress, Overlay, TlsFiles
from covey.overlay.transport.address import TcpAddress, parse_address, split_addresses
from covey.overlay.transport.rpc_server import ConnectionLimits

ROUTINGS = ("parametric", "static")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_EVERY = "*"
"""All brokers that are not named."""
_MAX_DELAY_MS = 3_600_000.0


def check_address(value: str) -> str:
    """`ValueError` unless "host:port" or "unix:path"."""
    parse_address(value)
    return value


def check_addresses(value: str) -> str:
    """`ValueError` unless addresses separated by commas."""
    for address in split_addresses(value):
        parse_address(address)
    return value


def check_tcp_address(value: str) -> str:
    """`ValueError` unless "host:port"."""
    if not isinstance(parse_address(value), TcpAddress):
        raise ValueError('expected "host:port"')
    return value


def check_file(value: str) -> str:
    """`ValueError` unless it can be a path."""
    if not value or "\0" in value:
        raise ValueError("expected a path")
    return value


Address = Annotated[str, AfterValidator(check_address)]
FilePath = Annotated[str, AfterValidator(check_file)]
MetricsAddress = Annotated[str, AfterValidator(check_tcp_address)]
Addresses = Annotated[str, AfterValidator(check_addresses)]
DelayMs = Annotated[float, Field(ge=0, le=_MAX_DELAY_MS)]
Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class BrokerSection(Section):
    """`fallbacks` are, in order, the brokers to link to without its parent in the tree (docs/repair.md)."""

    address: Address
    listen: Addresses | None = None
    fallbacks: list[str] | None = None


class LinkSection(Section):
    """A pair of brokers, or a mapping with the pair as `ends`. `delay_ms` is for the simulator."""

    ends: list[Any]
    delay_ms: DelayMs | None = None

    @model_validator(mode="before")
    @classmethod
    def _pair(cls, value: object) -> object:
        return value if isinstance(value, dict) else {"ends": value}

    @field_validator("ends", mode="before")
    @classmethod
    def _two(cls, value: object) -> object:
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError("expected a pair of brokers")
        return value


class LimitsSection(Section):
    max_event_bytes: Positive = Limits().max_event_bytes
    max_batch_events: Annotated[int, Field(gt=0, lt=1 << 32)] = Limits().max_batch_events  # as hellos have it
    max_frame_bytes: Positive = Limits().max_frame_bytes
    session_lease_s: Annotated[float, Field(gt=0, le=1e9)] = SessionLimits().lease_s
    session_queue_events: Positive = SessionLimits().queue_events
    session_queue_bytes: Positive = SessionLimits().queue_bytes
    session_stall_limit_s: Annotated[float, Field(gt=0, le=1e9)] = SessionLimits().stall_limit_s
    link_queue_bytes: Positive = LinkLimits().queue_bytes
    link_held_bytes: Positive = LinkLimits().held_bytes
    max_connections: Positive = ConnectionLimits().total
    max_connections_per_address: Positive = ConnectionLimits().per_address
    max_sessions: Positive = Bounds().sessions
    max_client_sessions: Positive = Bounds().client_sessions
    max_session_subscriptions: Positive = Bounds().session_subscriptions
    max_session_types: Positive = Bounds().session_types
    max_types: Positive = Bounds().types
    max_type_views: Positive = Bounds().type_views
    max_key_bytes: Positive = MAX_KEY_BYTES
    max_replay_bytes: Positive = MAX_REPLAY_BYTES
    max_filter_bytes: Annotated[int, Field(gt=0, le=TEXT_LIMIT)] = Bounds().filter_bytes
    max_filter_depth: Annotated[int, Field(gt=0, le=Bounds().filter_depth)] = Bounds().filter_depth
    max_filter_conjunctions: Positive | None = None
    max_session_updates_per_s: Positive | None = None
    max_session_events_per_s: Positive | None = None
    max_session_event_bytes_per_s: Positive | None = None

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        least = self.max_event_bytes + 4_096
        if not least <= self.max_frame_bytes < 1 << 30:
            raise complaint(
                f"is {self.max_frame_bytes}: expected at least max_event_bytes + 4096 ({least}) "
                "and less than 1 GiB",
                "max_frame_bytes",
            )
        return self


def _limits(section: LimitsSection, kind: type[Any], prefix: str) -> dict[str, Any]:
    return {field.name: getattr(section, prefix + field.name) for field in fields(kind)}


def check_module(name: str) -> str:
    """`ValueError` unless the name of a Python module."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError("expected the name of a Python module, such as company.operators")
    return name


_OPERATORS = OperatorLimits()


class OperatorsSection(Section):
    modules: list[Annotated[str, AfterValidator(check_module)]] = Field(default_factory=list)
    deadline_ms: Annotated[float, Field(gt=0, le=60_000)] = _OPERATORS.deadline_ms
    turn_ms: Annotated[float, Field(gt=0, le=60_000)] = _OPERATORS.turn_ms
    operator_share: Share = _OPERATORS.operator_share
    call_share: Share = _OPERATORS.call_share
    faults_in_a_row: Positive = _OPERATORS.faults_in_a_row
    abandoned_calls: Positive = _OPERATORS.abandoned_calls
    first_suspension_s: Annotated[float, Field(gt=0, le=1e9)] = _OPERATORS.first_suspension_s
    longest_suspension_s: Annotated[float, Field(gt=0, le=1e9)] = _OPERATORS.longest_suspension_s

    def limits(self) -> OperatorLimits:
        return OperatorLimits(**self.model_dump(exclude={"modules"}))


class TlsSection(Section):
    """PEM files; `{name}` stands for the broker, relative paths start at the file's folder."""

    certificate: FilePath
    key: FilePath
    authority: FilePath


class PermissionSection(Section):
    """A glob of event types, and a policy that their events must match. Text alone is the glob."""

    types: Annotated[str, Field(min_length=1)]
    where: str = ""

    @model_validator(mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return {"types": value} if isinstance(value, str) else value

    def content(self) -> Permission:
        return Permission(self.types, self.where)


class RuleSection(Section):
    subjects: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=lambda: ["*"])
    claims: Annotated[dict[str, str | int | bool], BeforeValidator(text_keys)] = Field(default_factory=dict)
    publish: list[PermissionSection] = Field(default_factory=list)
    subscribe: list[PermissionSection] = Field(default_factory=list)
    administer: list[PermissionSection] = Field(default_factory=list)

    def content(self) -> Rule:
        permissions = (self.publish, self.subscribe, self.administer)
        granted = [tuple(each.content() for each in permission) for permission in permissions]
        return Rule(tuple(self.subjects), self.claims, *granted)


class TokensSection(Section):
    """A relative path starts at the file's folder."""

    key: FilePath
    subject: Annotated[str, Field(min_length=1)] = "sub"
    issuer: str = ""
    audience: str = ""


class ClientsSection(Section):
    tokens: TokensSection | None = None
    permissions: list[RuleSection] = Field(default_factory=list)

    def content(self, folder: Path) -> ClientRules:
        tokens = self.tokens
        options = None
        if tokens is not None:
            options = TokenOptions(str(folder / tokens.key), tokens.subject, tokens.issuer, tokens.audience)
        return ClientRules(options, tuple(rule.content() for rule in self.permissions))


def _addresses(value: object) -> object:
    """By broker; a single address is every broker's."""
    return {_EVERY: value} if isinstance(value, str) else text_keys(value)


class RetentionSection(Section):
    retain_bytes: Positive = Retention().max_bytes
    retain_s: Annotated[float, Field(gt=0, le=1e10)] = Retention().max_age_s


def _collector(url: str) -> str:
    try:
        fits = url.startswith(("http://", "https://")) and bool(urlsplit(url).hostname)
    except ValueError:
        fits = False
    if url and not fits:
        raise ValueError("expected an address of a collector, such as http://127.0.0.1:4318")
    return url


def _retentions(value: object) -> object:
    """By durable type; an empty value means the defaults."""
    return {name: {} if each is None else each for name, each in text_keys(value).items()}


def _one_or_several(value: object) -> object:
    return [value] if isinstance(value, str) else value


class OverlayFile(Section):
    overlay: Annotated[str, Field(min_length=1)]
    brokers: Annotated[dict[str, BrokerSection], BeforeValidator(text_keys)]
    links: list[LinkSection] = Field(default_factory=list)
    routing: Annotated[str, one_of(*ROUTINGS)] = "parametric"
    event_types: EventTypes = ()
    limits: LimitsSection = LimitsSection()
    client_delay_ms: DelayMs = 0.0
    replay_events: Annotated[int, Field(ge=0)] = REPLAY_EVENTS
    key_max_age_s: Annotated[
        dict[str, Annotated[float, Field(ge=0.001, le=1e9)]], BeforeValidator(text_keys)
    ] = Field(default_factory=dict)
    engine: Annotated[str, one_of(*engine_names())] = "cluster"
    damping: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    merging: Annotated[str, one_of(*MERGINGS)] = "off"
    merging_budget: Positive = MERGING_BUDGET
    operators: OperatorsSection = OperatorsSection()
    log_level: Annotated[str, one_of(*LOG_LEVELS)] = "INFO"
    metrics: Annotated[dict[str, MetricsAddress], BeforeValidator(_addresses)] = Field(default_factory=dict)
    tls: TlsSection | None = None
    insecure: bool = False
    clients: ClientsSection | None = None
    repair_after_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    durable: Annotated[dict[str, RetentionSection], BeforeValidator(_retentions)] = Field(
        default_factory=dict
    )
    storage: Annotated[str, AfterValidator(lambda path: path and check_file(path))] = ""
    tickets: Annotated[list[FilePath], BeforeValidator(_one_or_several)] = Field(
        default_factory=list, max_length=2
    )
    tracing: Annotated[str, AfterValidator(_collector)] = ""

    @field_validator("merging", mode="before")
    @classmethod
    def _bare_off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads a bare off as False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.routing == "static" and self.damping:
            raise complaint(f"is {self.damping:g}: expected 0 with static routing", "damping")
        if self.routing == "static" and self.merging != "off":
            raise complaint(f"is {self.merging!r}: expected off with static routing", "merging")
        if self.durable and self.repair_after_s:
            # A link that moves drops what waits for it.
            raise complaint(f"is {self.repair_after_s:g}: expected 0 with durable types", "repair_after_s")
        if self.clients is not None and self.clients.tokens is None and self.tls is None:
            raise complaint("recognises nobody: expected tokens, or a section tls", "clients")
        if not self.brokers:
            raise complaint("is empty: expected at least one broker", "brokers")
        names_by_address: dict[str, str] = {}
        for name, broker in self.brokers.items():
            if not name.isprintable() or not name or len(name) > 200:
                raise complaint(
                    "is no name for a broker: expected 1 to 200 printable characters", "brokers", name
                )
            other = names_by_address.setdefault(broker.address, name)
            if other != name:
                raise complaint(
                    f"is {broker.address!r}: broker {other} has it, expected another",
                    "brokers",
                    name,
                    "address",
                )
        for name in self.metrics:
            if name not in self.brokers and name != _EVERY:
                known = ", ".join(self.brokers)
                raise complaint(f"is of no broker: expected one of {known}", "metrics", name)
        keyless = {event_type.name for event_type in self.event_types if event_type.key is None}
        for name in self.key_max_age_s:
            if name in keyless:
                why = "is of a type without a key: expected one that has views"
                raise complaint(why, "key_max_age_s", name)
        _check_tree(list(self.brokers), [link.ends for link in self.links])
        self._check_fallbacks()
        return self

    def _fallbacks(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(broker.fallbacks)
            for name, broker in self.brokers.items()
            if broker.fallbacks is not None
        }

    def _check_fallbacks(self) -> None:
        for name, names in self._fallbacks().items():
            if not self.repair_after_s:
                text = "needs repair_after_s: expected it beside"
                raise complaint(text, "brokers", name, "fallbacks")
            try:
                links = [(link.ends[0], link.ends[1]) for link in self.links]
                UplinkRule(tuple(self.brokers), links, {name: names})
            except ValueError as error:
                raise complaint(str(error), "brokers", name, "fallbacks") from None

    def content(self, folder: Path) -> Overlay:
        """`folder` is the file's, for relative paths."""
        tls = None
        if self.tls is not None:
            files = (self.tls.authority, self.tls.certificate, self.tls.key)
            tls = TlsFiles(*(str(folder / file) for file in files))
        limits = self.limits
        links = {(link.ends[0], link.ends[1]): link.delay_ms for link in self.links}
        return Overlay(
            name=self.overlay,
            routing=self.routing,
            event_types=self.event_types,
            brokers={
                name: BrokerAddress(name, broker.address, broker.listen or broker.address)
                for name, broker in self.brokers.items()
            },
            links=tuple(links),
            limits=Limits(**_limits(limits, Limits, "")),
            sessions=SessionLimits(**_limits(limits, SessionLimits, "session_")),
            link_limits=LinkLimits(**_limits(limits, LinkLimits, "link_")),
            delays_ms={link: delay_ms for link, delay_ms in links.items() if delay_ms is not None},
            client_delay_ms=self.client_delay_ms,
            replay_events=self.replay_events,
            key_max_age_s=self.key_max_age_s,
            max_key_bytes=limits.max_key_bytes,
            max_replay_bytes=limits.max_replay_bytes,
            engine=self.engine,
            damping=self.damping,
            merging=self.merging,
            merging_budget=self.merging_budget,
            bounds=Bounds(**_limits(limits, Bounds, "max_")),
            connections=ConnectionLimits(limits.max_connections, limits.max_connections_per_address),
            operator_limits=self.operators.limits(),
            operator_modules=tuple(self.operators.modules),
            log_level=self.log_level,
            metrics={
                name: self.metrics.get(name, self.metrics.get(_EVERY, ""))
                for name in self.brokers
                if name in self.metrics or _EVERY in self.metrics
            },
            tls=tls,
            insecure=self.insecure,
            clients=None if self.clients is None else self.clients.content(folder),
            repair_after_s=self.repair_after_s,
            fallbacks=self._fallbacks(),
            durable={
                name: Retention(each.retain_bytes, each.retain_s) for name, each in self.durable.items()
            },
            storage=str(folder / self.storage) if self.storage else "",
            tickets=tuple(str(folder / path) for path in self.tickets),
            tracing=self.tracing,
        )


def _check_tree(brokers: Sequence[str], links: Sequence[Sequence[Any]]) -> None:
    component = {name: [name] for name in brokers}
    for position, (a, b) in enumerate(links):
        for end in (a, b):
            if not isinstance(end, str) or end not in component:
                raise complaint(f"names {end!r}: expected one of {', '.join(brokers)}", "links", position)
        if a == b:
            raise complaint(f"joins {a} with itself: expected two brokers", "links", position)
        if component[a] is component[b]:
            cycle = " - ".join([*_path(links[:position], a, b), a])
            raise complaint(f"closes a cycle, {cycle}: expected a tree", "links", position)
        small, large = sorted((component[a], component[b]), key=len)
        large += small
        component.update(dict.fromkeys(small, large))
    apart = [name for name in brokers if component[name] is not component[brokers[0]]]
    if apart:
        raise complaint(
            f"do not reach {', '.join(apart)} from {brokers[0]}: expected a connected overlay", "links"
        )


def _path(links: Sequence[Sequence[str]], start: str, end: str) -> list[str]:
    """From end to start; the links have no cycle."""
    towards_start = {start: start}
    reached = [start]
    for broker in reached:
        for a, b in links:
            for here, there in ((a, b), (b, a)):
                if here == broker and there not in towards_start:
                    towards_start[there] = broker
                    reached.append(there)
    path = [end]
    while path[-1] != start:
        path.append(towards_start[path[-1]])
    return path[::-1]
