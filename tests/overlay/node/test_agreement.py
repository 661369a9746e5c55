"""Overlay files that differ in agreed options: refused, with the option and both values."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from running import Brokers, on_a_loop, until

from covey.cli.administration.overlay_checks import overlay_findings
from covey.matcher import EventType
from covey.overlay import Client, RefusedError
from covey.overlay.client.unary import OverviewReader
from covey.overlay.core.endpoint.limits import Limits
from covey.overlay.node.declared_types import as_options, conflicts
from covey.overlay.node.overlay import difference

LINKS = [("b1", "b2"), ("b2", "b3")]


@on_a_loop
async def test_a_neighbour_whose_file_differs_is_refused_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "covey.broker")
    differing = {"b2": {"limits": Limits(max_frame_bytes=100_000)}}
    async with Brokers(LINKS[:1], differing=differing).unlinked() as overlay:
        began = time.monotonic()
        await until(lambda: caplog.text.count("refused a connection") >= 4)
        await until(lambda: "; retrying" in caplog.text)
        assert time.monotonic() > began + 0.15
        refusal = "broker 'b2' has limits.max_frame_bytes '100000': expected '4194304', as broker b1 has"
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


_QUOTE = EventType("Quote", {"firm": "string", "price": "float64"}, key="firm")
_OTHER = EventType("Quote", {"firm": "string", "price": "string", "volume": "int64"})
_CONFLICT = (
    "event type Quote: attribute price is float64 in the file of broker b1 and string in that of broker b2; "
    "events with price do not pass their link"
)


@on_a_loop
async def test_event_types_of_two_files_that_do_not_agree_are_shown(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    files = {"b1": {"event_types": (_QUOTE,)}, "b2": {"event_types": (_OTHER,)}}
    async with (
        Brokers(LINKS[:1], differing=files) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b2")) as me,
    ):
        for own, other in (("b1", "b2"), ("b2", "b1")):
            assert overlay.nodes[own].type_conflicts == {f"broker/{other}": [_CONFLICT]}
            assert f"broker/{other} has another overlay file: {_CONFLICT}" in caplog.text
        (problem,) = (await OverviewReader(overlay.address("b2")).read()).problems
        assert (problem.broker, problem.text) == ("b1", _CONFLICT)
        file = tmp_path / "overlay.yaml"
        brokers = "".join(f'  {name}: {{address: "{overlay.address(name)}"}}\n' for name in ("b1", "b2"))
        file.write_text(f"overlay: test\nbrokers:\n{brokers}links: [[b1, b2]]\n")
        findings = await asyncio.to_thread(lambda: list(overlay_findings(file)))
        assert [each.text for each in findings if each.subject == "event types"] == [_CONFLICT]
        await me.subscribe("Quote", 'price == "9"')
        with pytest.raises(RefusedError, match="at broker b2, attribute price is string, not float64"):
            await feed.advertise(_QUOTE)


def test_event_types_in_a_hello() -> None:
    assert as_options([_OTHER, _QUOTE]) == {"event_types.Quote": "firm:string* price:float64"}
    assert conflicts("b1", [_QUOTE], "b2", as_options([_OTHER])) == [_CONFLICT]
    assert conflicts("b2", [_OTHER], "b1", as_options([_QUOTE])) == [_CONFLICT]
    wider = EventType("Quote", {"firm": "string", "cost": "int64"})
    assert conflicts("b1", [_QUOTE], "b2", as_options([wider])) == []
    assert conflicts("b1", [_QUOTE], "b2", {}) == []
    keyed = EventType("Quote", {"firm": "string", "isin": "string"}, key="isin")
    assert conflicts("b1", [_QUOTE], "b2", as_options([keyed])) == [
        "event type Quote: the key is firm in the file of broker b1 and isin in that of broker b2; "
        "its events do not pass their link"
    ]
    large = EventType("Large", {f"attribute_{number}": "int64" for number in range(1_000)})
    assert as_options([large, _QUOTE]) == as_options([_QUOTE])
    many = [EventType(f"Type{number}", {"value": "int64"}) for number in range(5_000)]
    assert sum(len(name) + len(text) for name, text in as_options(many).items()) <= 16_384
