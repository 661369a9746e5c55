"""Matching by a walk of the poset equals the engines' (Jayaram et al., section 4.2)."""

import random

import pytest

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.engine import bits_of
from covey.matcher.evaluation.evaluator import Evaluator
from covey.overlay.core.covering.interest import Registry
from covey.overlay.core.matching.event_points import EventPoints
from covey.sim.baselines.diagram import Diagram
from covey.sim.baselines.poset_matching import PosetMatching

MIXED = EventType("Mixed", {"x": "int64", "y": "float64", "s": "string", "flag": "bool"})
TEXTS = (
    "x < $a",
    "x >= $a and y < $b",
    "x between $a and $b",
    "x == $a or y > $b",
    "y != $b",
    's == "p" and x < $a',
    's contains "p" or x > $a',
    's prefix "pq" and not (s suffix "q")',
    "flag == true and x in (1, $a, 5)",
    "not exists y",
    "",
)
WORDS = ("p", "q", "pq", "qp", "pqq", None)


def events(draw: random.Random, count: int) -> EventBatch:
    floats = (None, float("nan"), float("inf"), -0.0, 2.5, 3.0)
    rows = [
        {
            "x": draw.choice((None, *range(8), -(2**63) + 1, 2**63 - 2)),
            "y": draw.choice(floats),
            "s": draw.choice(WORDS),
            "flag": draw.choice((None, True, False)),
        }
        for _ in range(count)
    ]
    return EventBatch.from_pylist(MIXED, rows)


@pytest.mark.parametrize("seed", range(20))
def test_the_walk_matches_as_the_oracle(seed: int) -> None:
    draw = random.Random(seed)
    registry = Registry()
    groups = {"broker/a": Diagram(), "broker/b": Diagram(), "clients": Diagram()}
    numbers = {"broker/a": 3, "broker/b": 70, "clients": 5}
    links = PosetMatching(MIXED, groups, False, Evaluator())
    sessions = PosetMatching(MIXED, groups, True, Evaluator())
    link_oracle, session_oracle = create_engine("naive", MIXED), create_engine("naive", MIXED)
    live = []
    for step in range(60):
        group = draw.choice(list(groups))
        matching, oracle = (sessions, session_oracle) if group == "clients" else (links, link_oracle)
        if live and draw.random() < 0.3:
            group, node = live.pop(draw.randrange(len(live)))
            matching, oracle = (sessions, session_oracle) if group == "clients" else (links, link_oracle)
            matching.discard(node)
            groups[group].change(left=[node])
            oracle.remove(node.uid)
            registry.release(node)
            continue
        filter = parse(draw.choice(TEXTS), MIXED)
        values = filter.check_values({name: draw.randint(0, 7) for name in filter.variables})
        node = registry.make(group, numbers[group], step, filter, values)
        matching.put(node, numbers[group])
        groups[group].change(entered=[node])
        oracle.add(node.uid, filter, values, interface=numbers[group])
        live.append((group, node))
    batch = events(draw, draw.choice((1, 40)))
    offsets, ids = sessions.match(EventPoints(batch)).ordered()
    expected_offsets, expected_ids = session_oracle.match(batch).ordered()
    assert offsets.tolist() == expected_offsets.tolist()
    assert ids.tolist() == expected_ids.tolist()
    bits, expected = links.match_interfaces(EventPoints(batch)), link_oracle.match(batch).interfaces()
    assert (bits == expected[:, : bits.shape[1]]).all()
    assert not expected[:, bits.shape[1] :].any()
    event = EventPoints(batch.slice(0, 1))
    assert sessions.decide(event)[1].tolist() == session_oracle.match(event.batch).ordered()[1].tolist()
    assert links.event_interfaces(event) == bits_of(expected[:1])


def test_a_single_event_is_tested_against_roots_where_they_have_moved_to() -> None:
    registry, poset = Registry(), Diagram()
    links = PosetMatching(MIXED, {"broker/a": poset}, False, Evaluator())
    filter = parse("x < $a", MIXED)
    node = registry.make("broker/a", 3, 0, filter, {"a": 5})
    links.put(node, 3)
    poset.change(entered=[node])
    event = EventBatch.from_pylist(MIXED, [{"x": 6}])
    assert links.event_interfaces(EventPoints(event)) == 0
    assert node.move({"a": 7})
    poset.change(moved=[node])
    assert links.event_interfaces(EventPoints(event)) == 1 << 3
    assert links.event_interfaces(EventPoints(event), exclude=3) == 0
