"""Ranks keep the order of strings, whatever the order of constants and however narrow the gaps."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.ranks import SPAN, Ranks
from covey.matcher.events.int64 import FIRST, LAST, MISSING

near = st.text(alphabet="ab\0\x7f\x80é\ud7ff\ue000\uffff\U0010ffff", max_size=4)
texts = st.one_of(near, st.text(max_size=6))


def strings(values: list[str | None]) -> pa.StringArray:
    return pa.array(values, pa.string())


def ranks_of(ranks: Ranks, values: list[str | None]) -> list[int]:
    keys = np.zeros((len(values), 2), dtype=np.int64)
    ranks.encode(strings(values), 1, keys)
    return [int(key) for key in keys[:, 1]]


@examples(300)
@given(
    st.lists(st.lists(texts, min_size=1, max_size=8), max_size=12),
    st.lists(texts, max_size=20),
    st.booleans(),
)
def test_ranks_have_the_order_of_strings(groups: list[list[str]], others: list[str], narrow: bool) -> None:
    """Bounds are stored and relabelled as those of rows are."""
    ranks = Ranks(400) if narrow else Ranks()
    lows: dict[tuple[str, bool], int] = {}
    highs: dict[tuple[str, bool], int] = {}
    for group in groups:
        relabelling = ranks.enter(strings(list(group)))
        if relabelling is not None:
            for bounds, lower in ((lows, True), (highs, False)):
                keys = relabelling.bounds(np.array([FIRST, LAST, *bounds.values()], np.int64), lower=lower)
                assert keys[:2].tolist() == [FIRST, LAST]
                bounds.update(zip(bounds, keys[2:].tolist(), strict=True))
        for text, label in zip(group, ranks.labels(strings(list(group))).tolist(), strict=True):
            for strict in (False, True):
                lows[text, strict], highs[text, strict] = label + strict, label - strict
    known = {text for group in groups for text in group}
    assert len(ranks) == len(known)
    events = [*known, *others]
    for event, rank in zip(events, ranks_of(ranks, list(events)), strict=True):
        for (text, strict), low in lows.items():
            assert (rank >= low) is (event > text if strict else event >= text)
            assert (rank <= highs[text, strict]) is (event < text if strict else event <= text)


def test_a_missing_string_has_no_rank() -> None:
    ranks = Ranks()
    assert ranks_of(ranks, [None, ""]) == [MISSING, -SPAN]
    ranks.enter(strings(["b"]))
    assert ranks_of(ranks, [None, "a", None]) == [MISSING, -SPAN, MISSING]


@pytest.mark.parametrize("step", [1, -1])
def test_constants_in_their_order_leave_room_for_more(step: int) -> None:
    ranks = Ranks()
    ranks.enter(strings(["a", "z"]))
    for i in range(900)[::step]:
        assert ranks.enter(strings([f"m{i:04}"])) is None
    assert len(ranks) == 902


def test_single_constants_do_not_copy_the_others() -> None:
    ranks = Ranks()
    ranks.enter(strings([f"{i:04}" for i in range(5000)]))
    singles = [f"{i * 37 % 5000:04}+" for i in range(200)]
    entered = [strings([text]) for text in singles]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for text in entered:
            assert ranks.enter(text) is None
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert most < ranks.memory_bytes() // 4
    for text in entered:
        assert ranks.enter(text) is None
    assert len(ranks) == 5200
    ordered = ranks_of(ranks, [*sorted([*singles, "0000", "4999", "37", "a"])])
    assert ordered == sorted(ordered)
    assert (np.diff(ranks_of(ranks, [*sorted([*singles, *(f"{i:04}" for i in range(5000))])])) >= 2).all()


def test_a_full_gap_makes_new_labels() -> None:
    ranks = Ranks()
    old: Keys = np.zeros(0, np.int64)
    entered: list[str | None] = []
    for i in range(200):  # towards the middle from both sides
        text = "a" * i + ("a" if i % 2 else "c")
        entered.append(text + "b")
        relabelling = ranks.enter(strings(entered[-1:]))
        if relabelling is not None:
            assert relabelling.old.tolist() == old.tolist()
            assert len(relabelling.new) == len(ranks) - 1
        old = np.sort(np.array(ranks_of(ranks, entered), np.int64))
    assert (np.diff(old) >= 2).all()


@given(st.lists(texts, min_size=1, max_size=12, unique=True), st.data())
def test_constants_out_of_use_are_dropped(constants: list[str], data: st.DataObject) -> None:
    ranks = Ranks()
    ranks.enter(strings(list(constants)))
    kept = data.draw(st.lists(st.sampled_from(constants), unique=True))
    labels = ranks.labels(strings(list(kept)))
    lows, highs = np.concatenate([labels + 1, [FIRST]]), np.concatenate([labels[:1] - 1, [LAST]])
    assert ranks.labels_of_bounds(lows, highs).tolist() == sorted(labels)
    ranks.keep(labels)
    assert len(ranks) == len(kept)
    assert ranks.labels(strings(list(kept))).tolist() == labels.tolist()
    only: Ranks = Ranks()
    only.enter(strings(list(kept)))
    probes = [*constants, *(text + "\0" for text in constants)]
    places = [np.unique(ranks_of(each, [*probes]), return_inverse=True)[1].tolist() for each in (ranks, only)]
    assert places[0] == places[1], "as if the others had never been"


def test_an_interval_of_ranks_is_described_by_its_strings() -> None:
    ranks = Ranks()
    ranks.enter(strings(["ab", "ac"]))
    ab, ac = ranks.labels(strings(["ab", "ac"])).tolist()
    assert ranks.describe(ab, ac - 1) == ("at least 'ab'", "below 'ac'")
    assert ranks.describe(ab + 1, ac) == ("above 'ab'", "at most 'ac'")
    assert ranks.describe(FIRST, ab)[1] == "at most 'ab'"
    assert ranks.describe(ac, LAST)[0] == "at least 'ac'"
