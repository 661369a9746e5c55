"""Hostile packets and filters of clients: no violation as it is, and violations if a check is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from draws import DRAWS, SEED

from covey.overlay.core.access.guard import Guard
from covey.overlay.core.endpoint.quotas import Quotas
from covey.overlay.core.link.link import Link
from covey.sim.experiments.fuzz.packets import PacketFuzzResult, fuzz_filters, fuzz_packets


def fuzzed(seed: int, count: int) -> PacketFuzzResult:
    result = PacketFuzzResult()
    for result in fuzz_packets(seed, count):
        if result.violations:
            break
    return result


@pytest.mark.random
def test_hostile_packets_violate_nothing() -> None:
    result = fuzzed(SEED * 1_000, DRAWS["hostile packets"].count)
    assert not result.violations
    assert min(result.refused, result.broken) > 0


@pytest.mark.random
def test_hostile_filters_raise_nothing_else() -> None:
    count = DRAWS["hostile filters"].count
    *_, result = fuzz_filters(SEED, count)
    assert not result.violations
    assert result.texts == count
    assert result.filters > count // 10


def _nothing(*arguments: object) -> None:
    return None


def _any_frame(link: Link, received: int) -> None:
    raise KeyError("a defect")


@pytest.mark.parametrize(
    ("owner", "method", "defect", "violation"),
    [
        (Quotas, "_of_subscription", _nothing, "subscriptions of one client"),
        (Link, "_broken", _any_frame, "KeyError"),
        (Guard, "restricted", lambda guard, message, interface, rights: message, "the reader has"),
    ],
)
def test_defects_are_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, defect: Callable[..., Any], violation: str
) -> None:
    monkeypatch.setattr(owner, method, defect)
    result = fuzzed(0, 2_000)
    assert violation in result.violations[0]
    assert result.violations[0].startswith("seed ")
