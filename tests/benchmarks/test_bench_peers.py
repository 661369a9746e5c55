"""`python -m benchmarks peers`: which systems there are, and one short run of Covey."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import peers
from benchmarks.peers import PeerPlan, found, measure_peers
from benchmarks.systems import DURABLE, Covey, body, read_body
from covey.matcher.errors import InputError


def test_systems_that_are_not_there_are_left_out_and_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert [peer.program for peer in found()] == ["covey", "covey"]
    with pytest.raises(InputError, match="mosquitto is not on the PATH: expected an installed server"):
        found(["mosquitto"])
    with pytest.raises(InputError, match="systems 'kafka': expected some of nats-server, "):
        found(["kafka"])
    assert len({peer.label for peer in DURABLE}) == len(DURABLE)


def test_an_event_of_bytes_has_its_number_and_time() -> None:
    assert len(body(1, 2)) == 128
    assert read_body(body(7, -3)) == (7, -3)


@pytest.mark.thorough
def test_covey_loses_and_repeats_nothing_when_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "found", lambda programs: [Covey])
    plan = PeerPlan(rounds=1, events=200, seconds=0.2, away=200)
    (result,) = asyncio.run(measure_peers(plan))
    assert result.events_per_s > 0
    assert (result.lost, result.repeated) == (0, 0)
