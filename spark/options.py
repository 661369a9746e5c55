"""The options of the format `covey`, checked before anything connects; Spark passes them as text, under names
in any case. Invariant: each mistake is one sentence with the option, its value and what was expected; for an
unknown name it suggests the closest known one."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from covey.matcher.errors import CoveyError, closest_of
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.documents import Section, complaint, one_of, validated
from covey.overlay.transport.address import parse_address, split_addresses
from covey.overlay.transport.credentials import Credentials, Token, TokenFile, credentials
from covey.overlay.transport.tls import Tls


class SourceError(CoveyError, ValueError):
    """An option, a schema or a column does not fit, or a query needs events that are gone."""


_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
OF_SPARK = frozenset({"path", "checkpointlocation", "queryname"})
"""Options that Spark adds; ignored by purposes that do not use them."""


def _addresses(text: str) -> str:
    try:
        for address in split_addresses(text):
            parse_address(address)
    except ValueError:
        raise ValueError("expected HOST:PORT or unix:PATH, several separated by commas") from None
    return text


def _mapping(text: str) -> str:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError('expected a JSON object, such as {"limit": 9}')
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("expected up to 64 letters, digits, '.', '_' or '-'")
    return text


class _Options(Section):
    model_config = ConfigDict(strict=False, frozen=True)


class BrokerOptions(_Options):
    """Options of readers and writers of live events. The event type is the overlay file's if there is one,
    else the broker's."""

    broker: Annotated[str, AfterValidator(_addresses)]
    type: Annotated[str, Field(min_length=1)]
    overlay: str | None = None
    name: Annotated[str, AfterValidator(_name)] = Field(
        default_factory=lambda: f"spark-{secrets.token_hex(4)}"
    )
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """For an answer of a broker, and for a subscription or an advertisement to take effect."""
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    token: str | None = Field(default=None, repr=False)
    token_file: str | None = None

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        if (self.certificate is None) is not (self.key is None) or (self.key and not self.authority):
            field = "key" if self.certificate is None else "certificate"
            raise complaint("is alone: expected certificate and key, with authority", field)
        if self.token is not None and self.token_file is not None:
            raise complaint("is there beside token: expected one of them", "token_file")
        return self

    @property
    def tls(self) -> Tls | None:
        return None if self.authority is None else Tls(self.authority, self.certificate, self.key)

    @property
    def bearer(self) -> Token | None:
        return self.token if self.token_file is None else TokenFile(self.token_file)

    @property
    def credentials(self) -> Credentials:
        return credentials(self.tls, self.bearer)

    async def client_name(self) -> str:
        return await self.owned(self.name)

    async def owned(self, name: str) -> str:
        """A name below the owner in the token or certificate, which a broker with rules for clients
        requires."""
        owner = await self.credentials.owner()
        return name if owner is None else f"{owner}/{name}"

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(split_addresses(self.broker)))


class StreamOptions(BrokerOptions):
    filter: str = ""
    values: Annotated[str, AfterValidator(_mapping)] = "{}"
    metadata: bool = False
    gaps: Annotated[str, one_of("log", "rows")] = "log"
    slow_consumer: Annotated[str, one_of(*(policy.value for policy in SlowConsumer))] = "block"
    buffer_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 40)] = 64 << 20
    batch_events: Annotated[int, Field(ge=1)] = 1_000_000
    on_loss: Annotated[str, one_of("report", "fail")] = "report"

    @property
    def variables(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.values)
        return values


class SinkOptions(BrokerOptions):
    @property
    def publisher(self) -> str:
        """The prefix of a query's publishers: the name, if there is one. A random one would change with each
        micro-batch, for which Spark reads the options anew."""
        return self.name if "name" in self.model_fields_set else "spark"

    @property
    def address(self) -> str:
        """The broker; `SourceError` for several."""
        if len(self.brokers) > 1:
            raise SourceError(f"option broker is {self.broker!r}: expected one broker to publish to")
        return self.brokers[0]


class HistoryOptions(_Options):
    path: Annotated[str, Field(min_length=1)]
    table: str = "events"


O = TypeVar("O", bound=_Options)  # noqa: E741


def read_options(kind: type[O], given: Mapping[str, str]) -> O:
    known = kind.model_fields
    values: dict[str, str] = {}
    for name, value in given.items():
        key = name.lower()
        if key == "broker" and "path" in known:
            raise SourceError("option broker is for spark.readStream: spark.read reads a trace at `path`")
        if key in known:
            values[key] = value
        elif key not in OF_SPARK:
            raise SourceError(f"option {name!r} is unknown{closest_of(key, known)}")
    try:
        return validated(kind, values, "option", SourceError)
    except SourceError as error:
        raise SourceError(str(error).replace("option: ", "option ", 1)) from None
