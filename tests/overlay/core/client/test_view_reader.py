"""The changes of a view, by arrivals."""

import pytest

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client import view_reader
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.client.view_reader import KINDS, ViewReader

T = EventType("T", {"id": "string", "x": "int64"}, key="id")


class _View:
    """A view of x < $a, which is 5 at first."""

    def __init__(self) -> None:
        self.session = ClientSession("me")
        self.id, _ = self.session.view(parse("x < $a", T), {"a": 5})
        self.reader = ViewReader(self.session, self.id)

    def arrive(self, sequence: int, *rows: tuple[str, int], replayed: bool = False) -> list[tuple[str, str]]:
        events = [{"id": key, "x": x} for key, x in rows]
        batch = EventBatch.from_pylist(T, events, publisher="p", first_sequence=sequence)
        self.reader.arrived(DeliverTo(self.id, batch, 0, replayed, for_views=replayed), lambda: None)
        return self.told()

    def update(self, a: int) -> int:
        (message,) = self.session.update(self.id, {"a": a})
        self.reader.moved()
        return message.epoch

    def told(self) -> list[tuple[str, str]]:
        told = []
        while (changes := self.reader.next()) is not None:
            rows = changes.batch.to_pylist()
            told += [(KINDS[code], row["id"]) for code, row in zip(changes.codes.tolist(), rows, strict=True)]
        return told


def test_what_a_key_was_before_it_left_is_dropped() -> None:
    view = _View()
    assert view.arrive(1, ("k", 1), ("other", 1)) == [("enter", "k"), ("enter", "other")]
    assert view.arrive(3, ("k", 9)) == [("leave", "k")]
    assert view.arrive(1, ("k", 1)) == []  # of a broker that is behind
    assert view.arrive(1, ("k", 1), replayed=True) == []
    view.update(10)
    assert view.arrive(3, ("k", 9), replayed=True) == [("enter", "k")]
    view.update(5)
    assert view.told() == [("leave", "k")]
    assert view.arrive(1, ("k", 1), replayed=True) == []
    assert view.arrive(4, ("k", 2)) == [("enter", "k")]


def test_of_more_keys_than_are_kept_those_that_left_last_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_reader, "_MAX_LEFT", 1)
    view = _View()
    view.arrive(1, ("a", 1), ("b", 1))
    assert view.arrive(3, ("a", 9), ("b", 9)) == [("leave", "a"), ("leave", "b")]
    assert view.arrive(1, ("a", 1), ("b", 1)) == [("enter", "a")]


def test_moves_that_nobody_has_read_take_the_room_of_one() -> None:
    view = _View()
    view.arrive(1, ("k", 1))
    for a in range(10, 110):
        view.update(a)
    assert view.reader.waiting == 1
    view.update(0)
    assert view.told() == [("leave", "k")]
    assert view.reader.waiting == 0


def test_after_a_loss_an_update_has_keys_leave_that_are_not_sent_again() -> None:
    view = _View()
    view.arrive(1, ("gone", 1), ("stays", 1))
    view.session.lost("T")
    epoch = view.update(6)
    assert view.arrive(2, ("stays", 1), replayed=True) == []
    view.reader.answered(epoch - 1)
    assert view.told() == []
    view.reader.answered(epoch)
    assert view.told() == [("leave", "gone")]
    epoch = view.update(7)  # which is answered by what it adds
    view.reader.answered(epoch)
    assert view.told() == []
