"""Columns of a key table: regions are answered as filters accept events, in whatever form these came."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventBatch, EventType, Kind, parse
from covey.overlay.core.routing.key_table import KeyTable


def keys_of(table: KeyTable, rows: npt.NDArray[np.int64]) -> set[int]:
    key = table.key
    return {event[key] for batch, _ in table.events(rows) for event in batch.to_pylist()}


@given(st.data())
def test_a_region_of_numbers_is_answered_exactly_and_any_other_is_bounded(data: st.DataObject) -> None:
    plain = data.draw(event_types())
    keyed = EventType("T", {**plain.attributes, "key": Kind.INT64}, key="key")
    table, last = KeyTable("key"), dict[int, dict[str, object]]()
    for _ in range(data.draw(st.integers(1, 3))):
        drawn = data.draw(st.lists(st.tuples(st.integers(0, 9), events(plain)), min_size=1, max_size=8))
        rows = [{**event, "key": key} for key, event in drawn]
        batch = EventBatch.from_pylist(keyed, rows)
        if data.draw(st.booleans()):
            batch = EventBatch.from_arrow(keyed, batch.record_batch)
        table.take(batch, 1)
        last.update(dict(drawn))
        filter = data.draw(filters(plain))
        values = data.draw(values_of(filter.variables))
        everything = table.everything()
        found, exact = table.inside(filter.region(values), everything)
        matching = {key for key, event in last.items() if filter.matches(event, values)}
        assert matching <= keys_of(table, found)
        if exact:
            assert matching == keys_of(table, found)
        numeric = all(plain.attributes[a] not in (Kind.STRING, Kind.STRINGS) for a in plain.attributes)
        assert exact or not numeric or filter.region(values).conjunctions is None


def test_rows_are_read_again_after_their_keys_were_dropped_and_others_came() -> None:
    ship = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
    near, table = parse("x < 3", ship).region({}), KeyTable("id")

    def take(key: int, x: int) -> None:
        table.take(EventBatch.from_pylist(ship, [{"id": key, "x": x}]), 1)

    for key in range(64):
        take(key, key)
    assert keys_of(table, table.inside(near, table.everything())[0]) == {0, 1, 2}
    table.drop(table.everything()[1:])
    (kept,) = keys_of(table, table.everything())
    for key in range(100, 200):
        take(key, 0 if key < 105 else 7)
    take(kept, 1)
    assert keys_of(table, table.inside(near, table.everything())[0]) == {kept, *range(100, 105)}
