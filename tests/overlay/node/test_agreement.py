"""Brokers whose overlay files differ where they must agree: refused, with the option and both values."""

import time
from dataclasses import replace

import pytest
from running import Brokers, on_a_loop, until

from covey.overlay.core.endpoint.limits import Limits
from covey.overlay.node.overlay import difference

LINKS = [("b1", "b2"), ("b2", "b3")]


@on_a_loop
@pytest.mark.parametrize(
    ("option", "value", "name", "b1_has", "b2_has", "refusals"),
    [
        ("limits", Limits(max_frame_bytes=100_000), "limits.max_frame_bytes", "4194304", "100000", 5),
        ("routing", "static", "routing", "parametric", "static", 1),
        ("links", LINKS, "links", "b1-b2", "b1-b2 b2-b3", 1),
    ],
)
async def test_a_neighbour_whose_file_differs_is_refused_with_growing_pauses(
    option: str,
    value: object,
    name: str,
    b1_has: str,
    b2_has: str,
    refusals: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "covey.broker")
    refusal = f"broker 'b2' has {name} {b2_has!r}: expected {b1_has!r}, as broker b1 has"
    async with Brokers(LINKS[:1], differing={"b2": {option: value}}).unlinked() as overlay:
        began = time.monotonic()
        await until(lambda: caplog.text.count("refused a connection") >= refusals)
        await until(lambda: "; retrying" in caplog.text)
        assert refusals == 1 or time.monotonic() > began + 0.3
        assert refusal in caplog.text
        (retrying,) = [record for record in caplog.records if "; retrying" in record.getMessage()]
        assert retrying.levelname == "WARNING", "no other attempt succeeds"
        assert not overlay.nodes["b1"].queues["broker/b2"].connected


def test_shared_options() -> None:
    overlay = Brokers(LINKS).overlay("b1")
    options = overlay.shared_options()
    assert options == {
        "routing": "parametric",
        "links": "b1-b2 b2-b3",
        "durable": "none",
        "limits.max_event_bytes": "65536",
        "limits.max_batch_events": "4096",
        "limits.max_frame_bytes": "4194304",
        "repair_after_s": "0",
    }
    turned = replace(overlay, links=(("b3", "b2"), ("b2", "b1")))
    assert turned.shared_options() == options, "who dials does not matter"
    long = replace(overlay, links=tuple((f"b{i}", f"b{i + 1}") for i in range(100)))
    assert long.shared_options()["links"].startswith("100 with digest ")
    moving = replace(overlay, repair_after_s=2.5, fallbacks={"b3": ("b1",)}).shared_options()
    assert (moving["repair_after_s"], moving["order"]) == ("2.5", "b1 b2 b3")
    assert moving["fallbacks"] == "b3: b1"


def test_options_of_brokers_of_different_versions() -> None:
    assert difference({"a": "1"}, {}) is None
    assert difference({}, {"a": "1"}) is None
    assert difference({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == ("b", "2", "3")
