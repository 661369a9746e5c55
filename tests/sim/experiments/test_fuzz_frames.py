"""Hostile HTTP/2 peers: no violation as it is, and violations if a bound is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from draws import DRAWS, SEED

from covey.overlay.http2.connection import Http2Connection
from covey.overlay.http2.frames import HeaderReader
from covey.overlay.http2.messages import MessageReader
from covey.sim.experiments.fuzz.frames import FrameFuzzResult, fuzz_frames


def fuzzed(seed: int, count: int) -> FrameFuzzResult:
    result = FrameFuzzResult()
    for result in fuzz_frames(seed, count):
        if result.violations:
            break
    return result


@pytest.mark.random
def test_hostile_peers_violate_nothing() -> None:
    count = DRAWS["hostile frames"].count
    result = fuzzed(SEED, count)
    assert not result.violations
    assert {"PROTOCOL_ERROR", "FRAME_SIZE_ERROR", "ENHANCE_YOUR_CALM"} <= set(result.closed)


def test_hostile_peers_get_far() -> None:
    """From a stated seed: how many messages get through differs tenfold between seeds."""
    result = fuzzed(0, 20_000)
    assert result.messages > 1_000


def _endless_headers(reader: HeaderReader, fragment: bytes) -> None:
    reader._fragments.append(fragment)


def _raising(connection: Http2Connection, flags: int, stream_id: int, payload: bytes) -> None:
    raise KeyError("a defect")


def _any_message(reader: MessageReader, most: int) -> tuple[list[bytes], int]:
    reader.drop()
    return [bytes(1 << 20)], 0


@pytest.mark.parametrize(
    ("owner", "method", "defect", "violation"),
    [
        (HeaderReader, "add", _endless_headers, "bytes of the peer are pending"),
        (Http2Connection, "_read_ping", _raising, "KeyError"),
        (MessageReader, "cut", _any_message, "a message of"),
    ],
)
def test_defects_are_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, defect: Callable[..., object], violation: str
) -> None:
    monkeypatch.setattr(owner, method, defect)
    result = fuzzed(0, 50_000)
    assert violation in result.violations[0]
    assert result.violations[0].startswith("seed ")
