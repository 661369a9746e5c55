"""`covey subscribe`: values of variables from words, and output about operators."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer
from running import until

from covey.cli.subscribe import _subscribe, check_validity, read_values, split_words
from covey.cli.support.options import NO_ACCESS
from covey.matcher import EventType, parse
from covey.matcher.errors import VariableError
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter
from covey.matcher.operators.table import register, unregister
from covey.overlay import Client, Motion
from covey.sim.experiments.local_overlay import LocalOverlay, chain

READING = EventType("Reading", {"x": "float64"})
QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
TIMED = EventType("Timed", {"time": "timestamp", "price": "float64"})
FILTER = parse("firm == $firm and price < $limit", QUOTE)


def test_values_are_numbers_where_the_filter_accepts_them_and_text_elsewhere() -> None:
    assert read_values(["limit=90", "$firm=7"], FILTER) == {"limit": 90, "firm": "7"}
    assert read_values(["limit=100-0.5*t"], FILTER) == {"limit": Motion(100.0, -0.5)}


@pytest.mark.parametrize("text", ["cheap", "[1]", "[" * 100_000])
def test_an_invalid_value_is_refused_with_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(VariableError, match=r"\$limit: value .*, expected a number"):
        read_values([f"limit={text}"], FILTER)


def test_values_contain_spaces() -> None:
    polygon = "POLYGON ((0 0, 1 1, 1 0, 0 0))"
    assert split_words(f"p={polygon} limit=3 $firm=A B") == [f"p={polygon}", "limit=3", "$firm=A B"]
    assert split_words(" low=1  high=5 ") == ["low=1", "high=5"]
    assert read_values(split_words("limit = 3 firm=A B"), FILTER) == {"limit": 3, "firm": "A B"}


def test_a_motion_in_a_call_is_refused_as_one() -> None:
    text = 'time_of_day(time, $start, "12:00") and within(price, price, $k, 0, 1)'
    later = parse(text, TIMED)
    with pytest.raises(VariableError, match=r"\$k moves, and stands in a call of within"):
        read_values(["k=1+2*t"], later)
    with pytest.raises(VariableError, match=r"\$k: value 'x', expected a number"):
        read_values(["k=x"], later)
    assert read_values(["start=10:00"], later) == {"start": "10:00"}


async def no_lines() -> AsyncIterator[str]:
    for line in ():
        yield line


@pytest.mark.usefixtures("brokers_in_process")
def test_a_notice_of_an_operator_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(x: Any) -> Any:
        if (x.to_numpy() > 100).any():
            raise ValueError("too\nlarge")
        return x.to_numpy() % 2 == 1

    async def run() -> None:
        async with (
            LocalOverlay(chain(2), event_types=[READING]) as overlay,
            Client(overlay.addresses["b1"]) as publisher,
        ):
            await publisher.advertise(READING)
            listeners = await publisher.listeners("Reading")
            printing = asyncio.create_task(
                _subscribe(
                    "Reading", "odd(x)", overlay.addresses["b2"], [], None, 1, "me", True, False, NO_ACCESS
                )
            )
            await until(lambda: bool(listeners))
            async with asyncio.timeout(60):
                await publisher.publish("Reading", x=101.0, confirm=True)
                await publisher.publish("Reading", x=3.0, confirm=True)
                await printing

    monkeypatch.setattr("covey.cli.subscribe.stdin_lines", no_lines)
    register(NamedOperator("odd", (Parameter("x", NUMBERS),), odd))
    try:
        asyncio.run(run())
    finally:
        unregister("odd")
    printed = capsys.readouterr()
    assert printed.out == '{"x": 3.0}\n'
    for where in ("at broker b1", "at broker b2", "in this client"):
        assert f"\noperator odd {where}: raised ValueError: too large, 1 event undecided\n" in printed.err


@pytest.mark.usefixtures("brokers_in_process")
def test_the_command_ends_with_its_subscription(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with LocalOverlay(chain(2), event_types=[READING]) as overlay:
            address = overlay.addresses["b1"]
            async with asyncio.timeout(60):
                await _subscribe("Reading", "", address, [], None, None, "me", True, False, NO_ACCESS, 0.2)

    monkeypatch.setattr("covey.cli.subscribe.stdin_lines", no_lines)
    asyncio.run(run())
    assert "the subscription has ended after 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize("valid_for", [0.0, -3.0, 1e12])
def test_a_period_that_is_none_is_refused_before_anything_is_sent(valid_for: float) -> None:
    with pytest.raises(typer.BadParameter, match=r"expected seconds from 0.001 to 315360000 \(ten years\)"):
        check_validity(valid_for)
