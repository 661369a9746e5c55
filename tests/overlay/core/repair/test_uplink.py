"""When a broker takes another upward link, and when it goes back."""

from covey.overlay.core.repair.uplink import Uplink

S = 1_000_000_000


def test_it_begins_with_the_best_and_probes_the_others_without_a_connection() -> None:
    uplink = Uplink(("b2", "b1", "b3"), S)
    assert uplink.chosen == "b2"
    assert uplink.to_probe(connected=False) == ["b1", "b3"]
    assert uplink.to_probe(connected=True) == []


def test_the_next_that_answers_is_taken() -> None:
    uplink = Uplink(("b2", "b1", "b3"), S)
    uplink.probed("b1", False, 0)
    uplink.probed("b3", True, 0)
    uplink.give_up()
    assert uplink.choose() == "b3"
    assert uplink.to_probe(connected=True) == ["b2", "b1"]
    assert uplink.to_probe(connected=False) == ["b2", "b1"]


def test_nobody_is_chosen_while_nobody_answers() -> None:
    uplink = Uplink(("b2", "b1"), S)
    uplink.give_up()
    assert uplink.choose() is None
    assert uplink.to_probe(connected=False) == ["b2", "b1"]
    uplink.probed("b2", True, 5)
    assert uplink.choose() == "b2"


def test_a_better_one_is_preferred_when_it_has_answered_for_a_while_without_a_pause() -> None:
    uplink = Uplink(("b2", "b1"), S)
    uplink.probed("b1", True, 0)
    uplink.give_up()
    assert uplink.choose() == "b1"
    uplink.linked()
    uplink.probed("b2", True, 10 * S)
    assert uplink.better(10 * S) is None
    uplink.probed("b2", False, 10 * S + 1)
    uplink.probed("b2", True, 11 * S)
    uplink.probed("b2", True, 12 * S - 1)
    assert uplink.better(12 * S - 1) is None
    assert uplink.better(12 * S) == "b2"


def test_one_that_answers_and_does_not_take_the_link_comes_last_and_waits_longer() -> None:
    uplink = Uplink(("b2", "b1", "b3"), S)
    for name in ("b2", "b1", "b3"):
        uplink.probed(name, True, 0)
    uplink.give_up()  # it had not answered when it was chosen, so this counts for nothing
    for name in ("b2", "b1", "b3"):
        uplink.probed(name, True, 0)
    assert uplink.choose() == "b2"
    uplink.give_up()
    uplink.probed("b2", True, 0)
    assert uplink.choose() == "b1"
    uplink.linked()
    assert uplink.better(2 * S - 1) is None
    assert uplink.better(2 * S) == "b2"
    uplink.choose("b2")
    uplink.linked()
    uplink.give_up()
    for name in ("b2", "b1"):
        uplink.probed(name, True, 5 * S)
    assert uplink.choose() == "b2", "a link that breaks is no failure to take it"


def test_new_candidates_keep_the_chosen_one_if_it_is_among_them() -> None:
    uplink = Uplink(("b2", "b1"), S)
    uplink.set_candidates(("b4", "b2", "b1"))
    assert uplink.chosen == "b2"
    assert uplink.to_probe(connected=True) == ["b4"]
    uplink.set_candidates(("b4", "b1"))
    assert uplink.chosen is None
    uplink.set_candidates(())
    assert uplink.choose() is None
