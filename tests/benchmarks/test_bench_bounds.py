"""`python -m benchmarks bounds`: what is counted against a bound is about what the process holds."""

from __future__ import annotations

import json

import pytest
from commands import measure

FIXED_BYTES = 10 << 20
"""What a process needs at first for other reasons: threads, buffers of connections, fragments."""


@pytest.mark.thorough
def test_what_is_counted_is_what_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure("bounds", "--mib", "16", "--json") == 0
    results = json.loads(capsys.readouterr().out)
    assert len(results) == 13
    for result in results:
        if "sessions" in result["filled_by"]:
            continue  # most of it are the connections of these
        assert result["configured"] // 2 < result["counted"] < result["configured"] * 1.1, result
        # a table of keys joins its batches and has them twice for a moment; then it counts three quarters
        often = 3 if result["bound"] == "max_key_bytes" else 1.3
        assert result["held"] < often * result["configured"] + FIXED_BYTES, result
        assert result["held"] > result["counted"] // 2, result
