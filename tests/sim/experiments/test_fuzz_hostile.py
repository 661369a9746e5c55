"""Hostile frames, packets and filters: no violation, but violations where a check is missing."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from draws import DRAWS, SEED

from covey.overlay.core.access.guard import Guard
from covey.overlay.core.endpoint.quotas import Quotas
from covey.overlay.core.link.link import Link
from covey.overlay.http2.connection import Http2Connection
from covey.overlay.http2.frames import ConnectionRuleError, HeaderReader
from covey.overlay.http2.messages import MessageReader
from covey.sim.experiments.fuzz.frames import fuzz_frames
from covey.sim.experiments.fuzz.packets import fuzz_filters, fuzz_packets


def fuzzed(fuzz: Callable[..., Any], seed: int, count: int) -> Any:
    """The first result with a violation, or the last one."""
    for result in fuzz(seed, count):
        if result.violations:
            break
    return result


@pytest.mark.random
def test_hostile_frames_violate_nothing() -> None:
    result = fuzzed(fuzz_frames, SEED, DRAWS["hostile frames"].count)
    assert not result.violations
    assert {"PROTOCOL_ERROR", "FRAME_SIZE_ERROR", "ENHANCE_YOUR_CALM"} <= set(result.closed)


def test_hostile_frames_get_far() -> None:
    """From a stated seed: the number of accepted messages differs tenfold between seeds."""
    assert fuzzed(fuzz_frames, 0, 20_000).messages > 1_000


@pytest.mark.random
def test_hostile_packets_violate_nothing() -> None:
    result = fuzzed(fuzz_packets, SEED * 1_000, DRAWS["hostile packets"].count)
    assert not result.violations
    assert min(result.refused, result.broken) > 0


@pytest.mark.random
def test_hostile_filters_raise_nothing_else() -> None:
    count = DRAWS["hostile filters"].count
    *_, result = fuzz_filters(SEED, count)
    assert not result.violations
    assert result.texts == count
    assert result.filters > count // 10


_add = HeaderReader.add


def _endless_headers(reader: HeaderReader, fragment: bytes) -> None:
    with suppress(ConnectionRuleError):
        _add(reader, fragment)


def _raising(*arguments: object) -> None:
    raise KeyError("a defect")


def _any_message(reader: MessageReader, most: int) -> tuple[list[bytes], int]:
    reader.drop()
    return [bytes(1 << 20)], 0


@pytest.mark.parametrize(
    ("fuzz", "count", "owner", "method", "defect", "violation"),
    [
        (fuzz_frames, 50_000, HeaderReader, "add", _endless_headers, "bytes of the peer are pending"),
        (fuzz_frames, 50_000, Http2Connection, "_read_ping", _raising, "KeyError"),
        (fuzz_frames, 50_000, MessageReader, "cut", _any_message, "a message of"),
        (fuzz_packets, 2_000, Quotas, "_of_subscription", lambda *_: None, "subscriptions of one client"),
        (fuzz_packets, 2_000, Link, "_broken", _raising, "KeyError"),
        (fuzz_packets, 2_000, Guard, "restricted", lambda guard, message, *_: message, "the reader has"),
    ],
)
def test_defects_are_found(
    monkeypatch: pytest.MonkeyPatch,
    fuzz: Callable[..., Any],
    count: int,
    owner: type,
    method: str,
    defect: Callable[..., Any],
    violation: str,
) -> None:
    monkeypatch.setattr(owner, method, defect)
    result = fuzzed(fuzz, 0, count)
    assert violation in result.violations[0]
    assert result.violations[0].startswith("seed ")
