"""`ClientSession.matches` equals `receive`, undivided by subscription."""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.events.results import Answers
from covey.matcher.filters.filter import parse
from covey.overlay.core.client.actions import DeliverTo, Matches
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Acknowledge, Deliver, Expired

QUOTE = EventType("Quote", {"price": "float64"})
BELOW = parse("price < $limit", QUOTE)


def histories(routing: str) -> tuple[ClientSession, ClientSession]:
    """Two clients with the same past: many subscriptions, some cancelled, some moved."""
    sessions = []
    for _ in range(2):
        session = ClientSession("me", routing=routing, engine="naive")
        for limit in range(40):
            session.subscribe(BELOW, {"limit": float(limit)})
        for cancelled in (3, 17, 40):
            session.unsubscribe(cancelled)
        session.receive(Acknowledge(session.epoch))
        for moved in (5, 6, 30):
            session.update(moved, {"limit": 2.5})
        sessions.append(session)
    return sessions[0], sessions[1]


@pytest.mark.parametrize("routing", ["parametric", "static"])
@pytest.mark.parametrize("seed", range(20))
def test_matches_are_the_deliveries_undivided(routing: str, seed: int) -> None:
    one, other = histories(routing)
    random_ = random.Random(seed)
    for turn in range(5):
        prices = [random_.uniform(-1.0, 45.0) for _ in range(12)]
        first = 1 + random_.randrange(4) + 8 * turn  # some events come twice
        rows = [{"price": price} for price in prices]
        events = EventBatch.from_pylist(QUOTE, rows, publisher="p", first_sequence=first)
        ids_by_event = [sorted(random_.sample(range(1, 44), random_.randrange(10))) for _ in prices]
        offsets = np.cumsum([0, *map(len, ids_by_event)])
        ids = np.array([i for each in ids_by_event for i in each], dtype=np.int64)
        epoch = random_.choice([one.epoch, one.epoch - 2])
        message = Deliver(events, offsets, ids, epoch)

        divided: dict[int, list[Any]] = {}
        spurious: dict[int, int] = {}
        for action in one.receive(message):
            assert isinstance(action, DeliverTo)
            if len(action.batch):
                divided[action.subscription_id] = action.batch.sequences().tolist()
            if action.spurious:
                spurious[action.subscription_id] = action.spurious
        matches = other.matches(message)
        assert matches is not None
        undivided: dict[int, list[Any]] = defaultdict(list)
        for row, subscription_id in zip(matches.rows.tolist(), matches.ids.tolist(), strict=True):
            undivided[subscription_id].append(int(matches.batch.sequences()[row]))
        assert {key: sorted(value) for key, value in undivided.items()} == divided
        assert dict(matches.spurious) == spurious


def test_an_event_type_without_subscriptions_has_no_matches() -> None:
    session = ClientSession("me", engine="naive")
    events = EventBatch.from_pylist(QUOTE, [{"price": 1.0}], publisher="p", first_sequence=1)
    assert session.matches(Deliver(events, np.array([0, 1]), np.array([1]), 0)) is None


def test_dividing_takes_no_result_before_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    events = EventBatch.from_pylist(QUOTE, [{"price": 1.0}, {"price": 2.0}])
    results = events.shared_results()
    for key in range(100):
        results.add(key, Answers(np.array([0, 1]), np.array([True, False])))
    looked_up = []
    positions = Answers.positions
    monkeypatch.setattr(Answers, "positions", lambda *arguments: looked_up.append(1) or positions(*arguments))
    ids = np.arange(1, 101)
    shares = Matches(events, np.ones(100, np.int64), ids, dict.fromkeys(range(50, 200), 1)).divided()
    assert [share.subscription_id for share in shares] == list(range(1, 200))
    assert not looked_up
    for share in shares[:100]:
        answers = share.batch.results.get(share.subscription_id - 1)
        assert (answers.rows.tolist(), answers.truths.tolist()) == ([0], [False])
    assert len(looked_up) == 100


@pytest.mark.parametrize("others", [0, 1])
def test_what_waits_when_a_period_ends_holds_on_the_last_values(others: int) -> None:
    session = ClientSession("me", engine="naive")
    for _ in range(1 + others):
        session.subscribe(BELOW, {"limit": 10.0}, valid_for_ns=1_000)
    session.receive(Acknowledge(session.epoch))

    def arrives(first: int, *prices: float) -> Matches | None:
        rows = [{"price": price} for price in prices]
        events = EventBatch.from_pylist(QUOTE, rows, publisher="p", first_sequence=first)
        ids = np.tile(np.arange(1, 2 + others), len(rows))
        offsets = np.arange(0, len(ids) + 1, 1 + others)
        return session.matches(Deliver(events, offsets, ids, session.epoch))

    early = arrives(1, 3.0, 7.0)
    session.update(1, {"limit": 5.0})
    late = arrives(3, 1.0, 2.0)
    assert early is not None
    assert late is not None
    session.receive(Expired(1, "Quote"))
    too_late = arrives(5, 1.0)
    kept = session.strict(early)
    ended = [row for row, i in zip(kept.rows.tolist(), kept.ids.tolist(), strict=True) if i == 1]
    assert ended == [0], "not what its last values do not match"
    assert kept.spurious == {1: 1}
    assert session.strict(late).ids.tolist() == [*range(1, 2 + others)] * 2
    assert too_late is None or 1 not in too_late.ids, "nothing comes behind the end"
    if others:
        assert kept.ids.tolist().count(2) == 2
    session.forget_expired(1)
    assert 1 not in session.strict(late).ids
