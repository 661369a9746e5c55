"""A broker's configuration: the overlay file that all brokers share, and the environment. Every mistake is a
`ConfigError` of one sentence with the file, the field, the value and what was expected."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from covey.overlay.documents import ConfigError, parse_document, read_text, validated
from covey.overlay.node.authentication import TokenVerifier, read_ticket_keys
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.node.overlay_file import ROUTINGS, OverlayFile, check_addresses
from covey.overlay.transport.address import is_local, parse_address, split_addresses
from covey.overlay.transport.tls import TlsError, check_broker


def load_overlay(path: str | Path, environment: Mapping[str, str] | None = None) -> Overlay:
    """COVEY_ROUTING and COVEY_STORAGE override the file. `ConfigError` for any mistake."""
    return parse_overlay(read_text(path, ConfigError), path, environment)


def parse_overlay(text: str, path: str | Path, environment: Mapping[str, str] | None = None) -> Overlay:
    """`path` is for messages and relative paths."""
    environment = os.environ if environment is None else environment
    file = validated(OverlayFile, parse_document(text, path, ConfigError), path, ConfigError)
    overlay = file.content(Path(path).parent)
    overlay = replace(overlay, storage=environment.get("COVEY_STORAGE") or overlay.storage)
    routing = environment.get("COVEY_ROUTING")
    if routing:
        if routing not in ROUTINGS:
            raise ConfigError(f"COVEY_ROUTING is {routing!r}: expected one of {', '.join(ROUTINGS)}")
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
    """COVEY_LISTEN overrides the address. `ConfigError` for an unknown broker, or plain text beyond this
    machine."""
    environment = os.environ if environment is None else environment
    broker = overlay.brokers.get(name)
    if broker is None:
        raise ConfigError(
            f"broker {name!r} is not in overlay {overlay.name!r}: it has {', '.join(overlay.brokers)}"
        )
    listen = environment.get("COVEY_LISTEN")
    if listen:
        try:
            broker = replace(broker, listen=check_addresses(listen))
        except ValueError as error:
            raise ConfigError(f"COVEY_LISTEN is {listen!r}: {error}") from None
    if overlay.tls is None and not overlay.insecure:
        for address in split_addresses(broker.listen):
            if not is_local(parse_address(address)):
                raise ConfigError(
                    f"broker {name} listens at {address}, beyond this machine, in plain text: expected a "
                    "section tls in the overlay file (covey certs makes certificates), or insecure: true"
                )
    return broker


def check_certificate(overlay: Overlay, name: str) -> None:
    """`ConfigError` unless neighbours would accept the broker's certificate."""
    if overlay.tls is None:
        return
    try:
        check_broker(overlay.tls.of(name), overlay.name, name)
    except TlsError as error:
        raise ConfigError(str(error)) from None


def check_tokens(overlay: Overlay) -> None:
    """`ConfigError` for an unusable key."""
    if overlay.clients is not None and overlay.clients.tokens is not None:
        TokenVerifier(overlay.clients.tokens)


def check_tickets(overlay: Overlay) -> None:
    """`ConfigError` for an unusable key."""
    read_ticket_keys(overlay.tickets)


def check_storage(overlay: Overlay) -> None:
    """`ConfigError` for durable types without a directory."""
    if overlay.durable and not overlay.storage:
        names = ", ".join(overlay.durable)
        raise ConfigError(
            f"durable names {names}: expected a directory, as storage in the overlay file or in COVEY_STORAGE"
        )


def tracing_installed() -> bool:
    # find_spec imports the package around a module, so it is looked for first.
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None


def check_tracing(overlay: Overlay) -> None:
    """`ConfigError` for a collector without OpenTelemetry."""
    if overlay.tracing and not tracing_installed():
        raise ConfigError("tracing has a collector: expected OpenTelemetry; pip install 'covey[otel]'")


def import_operators(overlay: Overlay) -> None:
    """`ConfigError` if an import fails. Code comes from this machine only."""
    for name in overlay.operator_modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # of code that Covey does not know
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(
                f"operators.modules names {name!r}: expected a module that can be imported ({why})"
            ) from None
