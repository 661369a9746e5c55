"""Links that move around dead brokers and splits, in random histories, judged by the checkers
(`covey sim fuzz --repair`)."""

from collections.abc import Callable

import pytest
from draws import seeds as seeds_of
from draws import some_seeds
from histories import kind, play_all

from covey.overlay.core.endpoint.repairing import Repairing
from covey.overlay.core.repair.uplink import Uplink, UplinkRule
from covey.sim.experiments.fuzz import FuzzOptions, play_history
from covey.sim.experiments.fuzz import history as fuzz_history

OPTIONS = FuzzOptions(repair=True, steps=30)
Patch = pytest.MonkeyPatch


@some_seeds("fuzzer, repair", parts=8)
def test_histories(seeds: range) -> None:
    expected = play_all(seeds, OPTIONS)
    assert expected > len(seeds)


@pytest.mark.random
@pytest.mark.parametrize(
    "options",
    [
        FuzzOptions(repair=True, gapless=True, content=True),
        FuzzOptions(repair=True, routing="static"),
        FuzzOptions(repair=True, merging="budget", damping=2.0, operators=True),
        FuzzOptions(repair=True, service="two-lanes", widen=True),
        FuzzOptions(repair=True, crashes=False),
    ],
    ids=kind,
)
def test_other_histories(options: FuzzOptions) -> None:
    drawn = seeds_of("fuzzer, repair")
    play_all(drawn[: len(drawn) // 12], options)


def links_upward_and_downward(patch: Patch) -> None:
    """Any broker takes any other, so upward links make cycles."""

    def candidates(self: UplinkRule, broker: str) -> tuple[str, ...]:
        above = [self.parents[broker]] if broker in self.parents else []
        return tuple(dict.fromkeys([*above, *(each for each in self.order if each != broker)]))

    patch.setattr(UplinkRule, "candidates", candidates)
    patch.setattr(fuzz_history, "_LIVELOCK_STEPS", 2_000)


def downward_links_that_stay(patch: Patch) -> None:
    release = Repairing._end

    def end(self: Repairing, interface: str, now_ns: int) -> None:
        if interface == self._chosen:
            release(self, interface, now_ns)

    patch.setattr(Repairing, "_end", end)


def links_that_never_go_back(patch: Patch) -> None:
    patch.setattr(Uplink, "better", lambda *_: None)


def two_upward_links_at_a_time(patch: Patch) -> None:
    patch.setattr(Repairing, "_leave", lambda *_: None)


DEFECTS = (
    links_upward_and_downward,
    downward_links_that_stay,
    links_that_never_go_back,
    two_upward_links_at_a_time,
)


@pytest.mark.thorough
@pytest.mark.parametrize("seed_defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_histories_fail_with_a_defect(seed_defect: Callable[[Patch], None], monkeypatch: Patch) -> None:
    seed_defect(monkeypatch)
    assert any(play_history(seed, OPTIONS).failed for seed in range(60))
