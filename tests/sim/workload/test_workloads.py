"""Workloads: the properties stated in the papers, and determinism by seed."""

import numpy as np
import pytest

from covey.matcher import CoveyError, create_engine
from covey.sim.workload import TEXT_TESTS, WORKLOADS, Domain, Fabret, SubscriptionGroup, Workload
from covey.sim.workload.fabret import W0, W2
from covey.sim.workload.options import find_workload

COUNT = 1000


def everything(groups: list[SubscriptionGroup]) -> list[object]:
    return [(str(g.filter), g.ids.tolist(), {n: c.tolist() for n, c in g.values.items()}) for g in groups]


def matches_per_event(workload: Workload, count: int, events: int = 1000) -> float:
    engine = create_engine("scan", workload.event_type)
    for group in workload.subscriptions(count):
        engine.add_many(group.ids, group.filter, dict(group.values))
    return float(engine.match(workload.events(events)).ordered()[0][-1]) / events


@pytest.mark.parametrize("name", WORKLOADS)
class TestEvery:
    def test_a_seed_says_all_and_ids_count_from_zero(self, name: str) -> None:
        workload = WORKLOADS[name]
        count = 300
        groups, again, other = (workload.subscriptions(count, seed=seed) for seed in (1, 1, 2))
        assert everything(groups) == everything(again) != everything(other)
        assert workload.events(50, seed=1) == workload.events(50, seed=1)
        assert workload.events(50, seed=1) != workload.events(50, seed=2)
        assert sorted(np.concatenate([g.ids for g in groups]).tolist()) == list(range(count))
        assert all((np.diff(g.ids) > 0).all() for g in groups)
        assert all(len(c) == len(g) for g in groups for c in g.values.values())
        assert len({str(g.filter) for g in groups}) == len(groups)

    def test_moves_fit_the_subscriptions(self, name: str) -> None:
        workload = WORKLOADS[name]
        engine = create_engine("naive", workload.event_type)
        for group in workload.subscriptions(60)[:5]:
            engine.add_many(group.ids, group.filter, dict(group.values))
            engine.update_many(group.ids, dict(workload.moves(group)))
        assert workload.moves(workload.subscriptions(60)[0], seed=3)

    def test_none_is_fine(self, name: str) -> None:
        assert WORKLOADS[name].subscriptions(0) == []
        assert len(WORKLOADS[name].events(0)) == 0


def test_w0_is_equality_on_two_fixed_and_three_random_attributes() -> None:
    groups = W0.subscriptions(COUNT)
    used: set[int] = set()
    for group in groups:
        terms = str(group.filter).split(" and ")
        attributes = [int(term.split()[0][1:]) for term in terms]
        assert [term.split()[1] for term in terms] == ["=="] * 5
        assert attributes[:2] == [0, 1]
        assert len(set(attributes)) == 5
        used.update(attributes)
    assert used == set(range(32))
    values = np.concatenate([c for g in groups for c in g.values.values()])
    assert (values.min(), values.max()) == (1, 35)
    assert all(column.null_count == 0 for column in W0.events(100).record_batch.columns)


def test_w2_has_an_inequality_on_the_third_and_two_random_operators() -> None:
    operators: set[str] = set()
    for group in W2.subscriptions(COUNT):
        words = [term.split() for term in str(group.filter).split(" and ")]
        assert [word[:2] for word in words[:3]] == [["a0", "=="], ["a1", "=="], ["a2", "<"]]
        operators.update(word[1] for word in words[3:])
    assert operators == {"==", "<", "<=", ">", ">="}


def test_symbols_have_the_papers_shares() -> None:
    shares = {"<=": 0, ">=": 0, "==": 0, "volume": 0}
    for group in WORKLOADS["SYMBOLS"].subscriptions(50_000):
        text = str(group.filter)
        operator = text.split("price ")[1].split()[0]
        shares[operator] += len(group)
        shares["volume"] += len(group) * ("volume" in text)
    actual = [shares[key] / 50_000 for key in ("<=", ">=", "==", "volume")]
    assert actual == pytest.approx([0.35, 0.33, 0.32, 0.30], abs=0.01)


def test_selective_thresholds_match_about_one_in_a_hundred_of_a_symbol() -> None:
    symbols = WORKLOADS["SYMBOLS"].events(20_000).values("symbol")
    popularity = np.unique(symbols, return_counts=True)[1] / 20_000
    of_a_symbol = 20_000 * float((popularity**2).sum())
    assert matches_per_event(WORKLOADS["SYMBOLS-tail"], 20_000, 5000) / of_a_symbol == pytest.approx(
        0.01, abs=0.004
    )
    assert matches_per_event(WORKLOADS["SYMBOLS"], 20_000) / of_a_symbol == pytest.approx(0.29, abs=0.05)


def test_a_vehicles_box_is_a_ten_thousandth_of_the_city() -> None:
    matches = matches_per_event(WORKLOADS["VEHICLES"], 20_000)
    assert matches == pytest.approx(1.0, abs=0.2)  # half of it by density


def test_boxes_are_three_to_five_ranges() -> None:
    sizes = {}
    for group in WORKLOADS["BOX"].subscriptions(COUNT):
        ranges = str(group.filter).count("between")
        sizes[ranges] = sizes.get(ranges, 0) + len(group)
        for i in range(ranges):
            width = group.values[f"u{i}"] - group.values[f"l{i}"]
            assert ((width > 0.0999) & (width < 0.3001)).all()
    assert set(sizes) == {3, 4, 5}
    assert min(sizes.values()) > COUNT / 4


class TestFabret:
    def test_events_carry_the_attributes_asked_for(self) -> None:
        events = Fabret(event_attributes=12, event_fixed=2).events(200).to_pylist()
        present = [[name for name, value in row.items() if value is not None] for row in events]
        assert all(len(names) == 12 and names[:2] == ["a0", "a1"] for names in present)
        assert len({tuple(names) for names in present}) > 100

    def test_domains_and_skews(self) -> None:
        workload = Fabret(
            domain=Domain(1, 10, skew=1.0),
            domains={0: Domain(5, 6)},
            event_domain=Domain(8, 20),
            event_domains={1: Domain(3, 3)},
        )
        groups = workload.subscriptions(5_000)
        first = np.concatenate([g.values["v0"] for g in groups])
        second = np.concatenate([g.values["v1"] for g in groups])
        assert set(first.tolist()) == {5, 6}
        assert np.mean(second == 1) == pytest.approx(1 / sum(1 / r for r in range(1, 11)), abs=0.02)
        events = workload.events(500).record_batch
        assert set(events.column(1).to_pylist()) == {3}
        assert (min(events.column(0).to_pylist()), max(events.column(0).to_pylist())) == (8, 20)

    def test_a_focus_moves_the_schemas(self) -> None:
        groups = Fabret(focus=8, first_attribute=10).subscriptions(2000)
        names = {term.split()[0] for g in groups for term in str(g.filter).split(" and ")}
        assert names == {f"a{i}" for i in range(10, 18)}

    @pytest.mark.parametrize("count", [1000, 1200, 0])
    def test_batches_of_subscriptions(self, count: int) -> None:
        groups = Fabret().subscriptions(count)
        assert Fabret().arrivals(groups) == [groups]
        batches = Fabret(subscription_batch=400).arrivals(groups)
        sizes = {1000: [400, 400, 200], 1200: [400, 400, 400], 0: [0]}
        assert [sum(map(len, batch)) for batch in batches] == sizes[count]
        for at, batch in enumerate(batches):
            assert all(400 * at <= i < 400 * (at + 1) for group in batch for i in group.ids)

    @pytest.mark.parametrize(
        ("parameters", "complaint"),
        [
            ({"fixed": {"~": 1}}, "operator '~': expected one of == !="),
            ({"fixed": {"==": 6}}, "6 fixed predicates: expected at most 5"),
            ({"attributes": 4}, "5 predicates: expected at most 4"),
            ({"focus": 40}, "focus 40: expected 1..32"),
            ({"first_attribute": 32}, "first attribute 32: expected 0..31"),
            ({"event_attributes": 33}, "33 attributes per event: expected 0..32"),
            ({"operators": ()}, "operators: expected at least one"),
            ({"subscription_batch": 0}, "subscription batch 0: expected at least 1"),
            ({"event_batch": 0}, "event batch 0: expected at least 1"),
        ],
    )
    def test_contradictory_parameters_are_refused(
        self, parameters: dict[str, object], complaint: str
    ) -> None:
        with pytest.raises(ValueError, match=complaint):
            Fabret(**parameters)

    def test_domains_that_contradict(self) -> None:
        with pytest.raises(ValueError, match=r"domain 3\.\.2"):
            Domain(3, 2)
        with pytest.raises(ValueError, match="skew -1"):
            Domain(1, 2, -1)


class TestByName:
    def test_parameters_from_text(self) -> None:
        settings = [
            "predicates=4",
            "fixed=== == <",
            "operators=== >",
            "domain=1..9",
            "domain.a0=2..3",
            "skew=0.5",
        ]
        workload = find_workload("w0", WORKLOADS, [*settings, "event_skew=1", "event_attributes=10"])
        assert isinstance(workload, Fabret)
        assert workload.fixed == {"==": 2, "<": 1}
        assert (workload.predicates, workload.operators, workload.event_attributes) == (4, ("==", ">"), 10)
        assert (workload.domain, workload.domains) == (Domain(1, 9, 0.5), {0: Domain(2, 3)})
        assert workload.event_domain == Domain(1, 9, 1.0)
        assert find_workload("SYMBOLS", WORKLOADS) is WORKLOADS["SYMBOLS"]

    @pytest.mark.parametrize(
        ("name", "setting", "complaint"),
        [
            ("W9", "", "workload 'W9': expected one of W0, W2, SYMBOLS"),
            ("SYMBOLS", "predicates=3", "workload SYMBOLS: it has no parameters"),
            ("MEMBERS", "predicates=3", "parameter 'predicates': expected one of operator, tests"),
            ("MEMBERS", "operator=~", "operator '~': expected one of prefix, suffix"),
            ("MEMBERS", "constants=0", "constants 0: expected 1 to the number of words"),
            ("MEMBERS", "tests=x", "parameter tests: value 'x', expected an integer"),
            ("W0", "predicates", "parameter 'predicates': expected parameter=value"),
            ("W0", "predicates=x", "parameter predicates: value 'x', expected an integer"),
            ("W0", "domain=1..y", r"parameter domain: value '1\.\.y', expected an integer"),
            ("W0", "skew=z", "parameter skew: value 'z', expected a number"),
            ("W0", "skew=nan", "parameter skew: value 'nan', domain skew nan: expected 0"),
            ("W0", "predicates=40", "parameter predicates: value '40', 40 predicates"),
            ("W0", "domain=5", r"parameter domain: value '5', expected lower\.\.upper"),
            ("W0", "domain.a99=1..2", "parameter 'domain.a99': expected one of attributes"),
            ("W0", "pet=cat", "parameter 'pet': expected one of attributes"),
        ],
    )
    def test_mistakes_are_named(self, name: str, setting: str, complaint: str) -> None:
        with pytest.raises(CoveyError, match=complaint):
            find_workload(name, {**WORKLOADS, **TEXT_TESTS}, [setting] if setting else [])
