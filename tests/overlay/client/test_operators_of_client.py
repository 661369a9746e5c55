"""Named operators in the process of a client."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from running import on_a_loop

from covey.matcher import EventType
from covey.matcher.errors import FilterError
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter
from covey.matcher.operators.table import register, unregister
from covey.overlay import Client, Notice
from covey.sim.experiments.local_overlay import LocalOverlay, chain

READING = EventType("Reading", {"x": "float64"})
pytestmark = pytest.mark.usefixtures("brokers_in_process")


def odd(x: Any) -> Any:
    if (x.to_numpy() > 100).any():
        raise ValueError("too large")
    return x.to_numpy() % 2 == 1


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    register(NamedOperator("odd", (Parameter("x", NUMBERS),), odd))
    register(NamedOperator("with_state", (Parameter("x", NUMBERS),), lambda _, x: odd(x), state=object))
    yield
    unregister("odd")
    unregister("with_state")


def test_the_reader_evaluates_operators_with_state_and_is_told_of_faults(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        notices: list[Notice] = []
        async with (
            LocalOverlay(chain(2), event_types=[READING]) as overlay,
            Client(overlay.addresses["b1"]) as publisher,
            Client(overlay.addresses["b2"], on_notice=notices.append) as subscriber,
            Client(overlay.addresses["b2"], name="logging") as logging_one,
        ):
            await publisher.advertise(READING)
            subscription = await subscriber.subscribe(READING, "with_state(x) and x > $least", least=2)
            logged = await logging_one.subscribe(READING, "with_state(x)")
            other = await subscriber.subscribe(READING, "x > 100")
            for values in (range(8), [101], [9]):
                await publisher.publish_batch("Reading", [{"x": float(x)} for x in values])
                await publisher.flush()
            async with asyncio.timeout(60):
                assert [(await anext(subscription))["x"] for _ in range(4)] == [3, 5, 7, 9]
                assert (await anext(other))["x"] == 101
                assert [(await anext(logged))["x"] for _ in range(5)] == [1, 3, 5, 7, 9]
            (notice,) = notices
            assert notice == Notice(
                "with_state", "", "raised ValueError: too large", notice.count, (subscription.id,)
            )
            assert [*subscription.notices] == [notice]
            assert not other.notices
            account = subscriber.operator_accounts()["with_state"]
            assert (account["failures"], account["undecided"], account["true"]) == (1, 1, 4)
            assert account["took_ns"] > 0

    with caplog.at_level(logging.WARNING, "covey.client"):
        asyncio.run(run())
    line = (
        "client logging: operator with_state in this client: raised ValueError: too large, 1 event undecided"
    )
    assert line in caplog.messages


@on_a_loop
async def test_an_unknown_operator_is_refused_before_anything_is_sent() -> None:
    async with (
        LocalOverlay(chain(2), event_types=[READING]) as overlay,
        Client(overlay.addresses["b2"]) as subscriber,
    ):
        epoch = subscriber.session.epoch
        with pytest.raises(FilterError, match="unknown operator 'odds': did you mean odd"):
            await subscriber.subscribe("Reading", "odds(x)")
        assert subscriber.session.epoch == epoch
