"""Frames of batches: values of every kind, encoded once for all browsers with the same events."""

import json
import math
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from covey.gateway.encoding import EncodedBatch
from covey.gateway.messages import REPLIES
from covey.matcher import EventBatch, EventType

KINDS = ("int64", "float64", "string", "bool", "timestamp", "list<string>")
TYPE = EventType("All", {f"a{number}": kind for number, kind in enumerate(KINDS)})
NOON = datetime(2026, 1, 2, 12, 0, 0, 250_000, tzinfo=UTC)
ROWS = [
    {"a0": 2**53, "a1": 0.1, "a2": 'é"\n\U0001f600', "a3": True, "a4": NOON, "a5": ["x", ""]},
    {},
    {"a0": -1, "a1": math.nan, "a2": "", "a3": False},
    {"a1": math.inf, "a2": "a" * 100},
]


@pytest.mark.parametrize("repeated", [1, 10])
def test_values_of_every_kind(repeated: int) -> None:
    rows = ROWS * repeated
    batch = EventBatch.from_pylist(TYPE, rows, publisher="p", first_sequence=5, ingress_ns=1_500_000)
    chosen = np.array([0, 2, 3])
    encoded = EncodedBatch(batch, replayed=True)
    message = json.loads(encoded.frame(chosen, 4, "json").data)
    REPLIES["events"].model_validate({name: value for name, value in message.items() if name != "kind"})
    assert (message["subscription"], message["sequences"]) == (4, [5, 7, 8])
    assert (message["ingress_ms"], message["replayed"]) == (1.5, True)
    first, second, third = message["events"]
    assert datetime.fromisoformat(first.pop("a4")) == NOON
    assert first == {"a0": 2**53, "a1": 0.1, "a2": 'é"\n\U0001f600', "a3": True, "a5": ["x", ""]}
    assert (second["a1"], second["a5"], third["a1"]) == (None, None, None)

    frame = encoded.frame(chosen, 4, "arrow")
    assert isinstance(frame.data, bytes)
    length = int.from_bytes(frame.data[:4], "little")
    assert (length + 4) % 8 == 0
    assert json.loads(frame.data[4 : 4 + length])["sequences"] == [5, 7, 8]
    with pa.ipc.open_stream(frame.data[4 + length :]) as stream:
        received = EventBatch.from_arrow(TYPE, stream.read_all())
    assert str(received.to_pylist()) == str(batch.take(chosen).to_pylist())  # NaN differs from itself


def test_equal_frames_are_one() -> None:
    encoded = EncodedBatch(EventBatch.from_pylist(TYPE, ROWS), replayed=False)
    frame = encoded.frame(np.array([0, 1]), 1, "json")
    assert encoded.frame(np.array([0, 1]), 1, "json") is frame
    assert encoded.frame(np.array([0, 1]), 2, "json") is not frame
    assert encoded.frame(np.array([0, 2]), 1, "json") is not frame
    assert "replayed" not in json.loads(frame.data)
