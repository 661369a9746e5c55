"""The configuration of a broker: the YAML file that all brokers of an overlay share, plus the environment.

Every mistake is a `ConfigError` of one sentence that names the file, the field, the value and what was
expected.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from covey.matcher.errors import CoveyError
from covey.overlay.documents import read_document, validated
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.node.overlay_file import ROUTINGS, OverlayFile, check_addresses


class ConfigError(CoveyError, ValueError):
    """The overlay file or the environment is wrong."""


def load_overlay(path: str | Path, environment: Mapping[str, str] | None = None) -> Overlay:
    """The overlay of a file; COVEY_ROUTING overrides its routing. `ConfigError` for any mistake."""
    environment = os.environ if environment is None else environment
    overlay = validated(OverlayFile, read_document(path, ConfigError), path, ConfigError).content()
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
    """The broker of this name; COVEY_LISTEN overrides its address. `ConfigError` if the overlay has none."""
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
    return broker


def import_operators(overlay: Overlay) -> None:
    """Import the modules of the overlay file whose operators filters may call. `ConfigError` for one that
    cannot be imported; code comes from this machine alone, never from another broker.
    """
    for name in overlay.operator_modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # of code that Covey does not know
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(
                f"operators.modules names {name!r}: expected a module that can be imported ({why})"
            ) from None
