"""`covey bench change`: its books, and one short run over real brokers."""

from __future__ import annotations

import asyncio

import pytest

from covey.sim.experiments.bench.change import ChangePlan, measure_changes
from covey.sim.experiments.bench.ledger import Ledger


def same(sort: int, value: int) -> bool:
    return sort == value


def test_an_event_is_owed_from_the_last_settled_version_up_to_its_delivery() -> None:
    books = Ledger(same, 0)
    first, second, third = books.publish(0), books.publish(1), books.publish(0)
    assert (books.owed, books.published) == (2, 3)
    books.deliver(third, 10)
    assert (books.missed, books.delivered) == (1, 1), f"{third} came, so {first} will not come any more"
    version = books.change(1, 20)
    books.publish(1)
    assert books.owed == 2, "the change has not taken effect"
    books.settle(version)
    kept = books.publish(1)
    assert books.owed == 3
    books.deliver(second, 25)
    assert books.first_new_ns == [5]
    books.deliver(second, 26)
    books.deliver(first, 27)
    assert (books.duplicate, books.stale) == (1, 1)
    books.deliver(kept, 28)
    books.publish(1)
    books.change(0, 30)
    books.close()
    assert books.missed == 1, "a change excuses what it does not match"
    books.publish(0)
    books.settle(books.change(0, 40))
    books.publish(0)
    books.close()
    assert books.missed == 2


@pytest.mark.usefixtures("local_brokers")
def test_parametric_updates_over_real_brokers_miss_repeat_and_hand_out_nothing_stale() -> None:
    plan = ChangePlan(("parametric",), ("both", "disjoint"), (300,), (50,), 1.0)
    results = asyncio.run(measure_changes(plan))
    assert [(r.missed, r.duplicate, r.stale) for r in results] == [(0, 0, 0)] * 2
    both, disjoint = results
    assert both.owed == both.delivered == both.published == 300
    assert disjoint.owed > 0
    assert disjoint.first_new_p50_ms is not None


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match="modes: 'paramtric', expected one of parametric, subscribe-first"):
        ChangePlan(modes=("paramtric",))
