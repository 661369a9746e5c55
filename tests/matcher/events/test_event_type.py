"""Schemas of one event type: agreement, union, and batches and filters over them."""

import pickle
import re
from itertools import permutations

import pytest

from covey.matcher import EventBatch, EventError, EventType, EventTypeError, FilterError, parse

NARROW = EventType("Quote", {"firm": "string", "price": "float64"})
WIDE = EventType("Quote", {"firm": "string", "price": "float64", "volume": "int64"})
OTHER = EventType("Quote", {"bid": "int64", "price": "float64"})
CONFLICT = EventType("Quote", {"price": "int64"})


def test_a_schema_includes_those_with_fewer_attributes() -> None:
    assert WIDE.includes(NARROW)
    assert not NARROW.includes(WIDE)
    assert not WIDE.includes(OTHER)
    assert WIDE.agrees(OTHER)
    assert not WIDE.agrees(CONFLICT)
    assert not WIDE.agrees(EventType("Trade", {"firm": "string"}))


def test_the_union_has_the_same_attributes_in_whatever_order_schemas_come() -> None:
    assert NARROW.union(WIDE) is WIDE
    assert WIDE.union(NARROW) is WIDE
    assert NARROW.union(OTHER).names == ("firm", "price", "bid")
    unions = [a.union(b).union(c) for a, b, c in permutations((NARROW, WIDE, OTHER))]
    assert {frozenset(union.attributes.items()) for union in unions} == {
        frozenset({"firm": "string", "price": "float64", "volume": "int64", "bid": "int64"}.items())
    }


def test_a_union_of_schemas_that_do_not_agree_is_an_error() -> None:
    with pytest.raises(
        EventTypeError, match="event type Quote, attribute 'price': kind int64, expected float64"
    ):
        WIDE.union(CONFLICT)
    with pytest.raises(EventTypeError, match="event type 'Trade': expected one of the name 'Quote'"):
        WIDE.union(EventType("Trade", {"firm": "string"}))


def test_a_filter_is_the_same_over_a_wider_schema() -> None:
    narrow, wide = parse("price < $limit", NARROW), parse("price < $limit", WIDE)
    assert narrow == wide
    assert hash(narrow) == hash(wide)
    assert narrow.over(WIDE).event_type is WIDE
    assert narrow.covers(parse("price < $limit and volume > 3", WIDE))
    assert parse("price < 3 or bid > 2", OTHER).covers(parse("price < 2 or volume > 3 and price < 1", WIDE))
    assert not parse("price < 2", NARROW).intersects(parse("price > 3 and bid > 1", OTHER))
    assert narrow != parse("price < $limit", CONFLICT)
    with pytest.raises(FilterError, match=r"'price < \$limit' over Quote: attribute price of kind float64"):
        narrow.over(CONFLICT)


def test_a_batch_under_another_schema_has_its_attributes_by_name() -> None:
    batch = EventBatch.from_pylist(
        WIDE, [{"firm": "IBM", "price": 1.0, "volume": 3}], publisher="p", first_sequence=7, ingress_ns=5
    )
    assert batch.with_schema(WIDE) is batch
    other = batch.with_schema(OTHER)
    assert other == EventBatch.from_pylist(
        OTHER, [{"price": 1.0}], publisher="p", first_sequence=7, ingress_ns=5
    )
    with pytest.raises(EventError, match="expected one of"):
        batch.with_schema(CONFLICT)


KEYED = EventType("Quote", {"firm": "string", "price": "float64"}, key="firm")


def test_a_declaration_without_a_key_agrees_with_every_key() -> None:
    assert KEYED != NARROW
    assert KEYED.includes(NARROW)
    assert not NARROW.includes(KEYED)
    assert NARROW.agrees(KEYED)
    assert NARROW.union(KEYED) is KEYED
    assert OTHER.union(KEYED).union(WIDE).key == "firm"
    assert pickle.loads(pickle.dumps(KEYED)) == KEYED
    assert repr(KEYED) == "EventType('Quote', {'firm': 'string', 'price': 'float64'}, key='firm')"


def test_two_keys_do_not_agree() -> None:
    other = EventType("Quote", {"bid": "int64"}, key="bid")
    assert not KEYED.agrees(other)
    with pytest.raises(EventTypeError, match="event type Quote: key 'bid', expected 'firm'"):
        KEYED.union(other)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("id", "key 'id': expected one of its attributes, firm, price, tags"),
        (3, "key 3: expected one of its attributes, firm, price, tags"),
        ("", "key '': expected one of its attributes, firm, price, tags"),
        ("price", "key 'price': kind float64, expected int64 or string"),
        ("tags", "key 'tags': kind list<string>, expected int64 or string"),
    ],
)
def test_a_key_is_an_integer_or_a_string_among_the_attributes(key: str, expected: str) -> None:
    with pytest.raises(EventTypeError, match=re.escape(f"event type 'Quote', {expected}")):
        EventType("Quote", {"firm": "string", "price": "float64", "tags": "list<string>"}, key=key)
