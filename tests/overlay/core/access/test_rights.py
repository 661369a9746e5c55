"""Rules' permissions, names' owners, and the guard's refusals."""

import pytest

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.access.guard import Guard
from covey.overlay.core.access.identity import (
    Certified,
    DeniedError,
    broker_uri,
    client_uri,
    neighbour_denial,
)
from covey.overlay.core.access.rights import (
    Action,
    Permission,
    Rights,
    Rule,
    all_rights,
    check_name,
    owner_named,
    rights_of,
)
from covey.overlay.core.messages import Advertise, Publish, Refuse, Subscribe, Update
from covey.overlay.core.routing.broker import Broker

QUOTE = EventType("Quote", {"price": "float64"})
RULES = [
    Rule(publish=(Permission("Status"),)),
    Rule(("trader-*",), subscribe=(Permission("Quote*"),)),
    Rule(claims={"role": "exchange", "grade": 2}, publish=(Permission("Quote"),)),
    Rule(("root",), administer=(Permission("*"),)),
]


def new_guard() -> Guard:
    return Guard(Broker("b1").tables, lambda *_: None)


def events(publisher: str, first: int = 1) -> Publish:
    rows = [{"price": 1.0}] * 2
    return Publish(EventBatch.from_pylist(QUOTE, rows, publisher=publisher, first_sequence=first))


def test_rules_that_apply_count_together() -> None:
    trader = rights_of("trader-1", {"role": ["exchange", "clerk"], "grade": 2}, RULES)
    assert trader.may(Action.PUBLISH, "Status")
    assert trader.may(Action.PUBLISH, "Quote")
    assert trader.may(Action.SUBSCRIBE, "QuoteOfDay")
    assert not trader.may(Action.SUBSCRIBE, "Status")
    assert not trader.may(Action.ADMINISTER, "Quote")
    true_for_one = {"role": "exchange", "grade": [True, 2.0]}  # equal in Python, and not the same value
    for claims in (
        *(true_for_one, {"role": "exchange"}, {"role": "exchange", "grade": "2"}),
        *({"role": "ex", "grade": 2}, {}),
    ):
        assert not rights_of("trader-1", claims, RULES).may(Action.PUBLISH, "Quote")
    assert not rights_of("other", {}, RULES).may(Action.SUBSCRIBE, "Quote")
    assert rights_of("root", {}, RULES).may_all(Action.ADMINISTER)
    assert not trader.may_all(Action.SUBSCRIBE)
    assert all(all_rights("b1").may_all(action) for action in Action)
    assert rights_of("trader-1", {}, RULES, 5) == rights_of("trader-1", {}, RULES, 9), "but for their end"
    assert rights_of("trader-1", {}, RULES) != rights_of("trader-1", {"role": "exchange", "grade": 2}, RULES)


def test_names_belong_to_subjects() -> None:
    for name in ("alice", "alice/1", "alice/1/2"):
        check_name(name, "alice")
    for name in ("bob", "alice2", "", "alic", "al/ice"):
        with pytest.raises(DeniedError, match=r"expected 'alice' or 'alice/\.\.\.'"):
            check_name(name, "alice")
    assert owner_named("a/b%") == "a%2Fb%25"
    with pytest.raises(DeniedError):
        check_name("a/b", "a/b")  # it is of the subject a


def test_a_client_publishes_under_its_own_name_alone() -> None:
    guard = new_guard()
    for name, publisher in (("alice", "alice/1f"), ("alice/2", "alice/3/4"), ("alice", "")):
        assert guard.refusal(events(publisher), f"client/{name}", None) is None
    for publisher in ("bob/1f", "bob", "alicee/1", "/alice"):
        assert guard.refusal(events(publisher, 2**62), "client/alice/7", None) == Refuse(
            0,
            "PERMISSION_DENIED",
            f"2 events of publisher {publisher!r}: expected 'alice' or 'alice/...', from client 'alice/7'",
            0,
            "Quote",
            2**62,
            2,
        )
    assert guard.denials == {"publisher": 4}


def test_the_refusal_is_one_sentence_whether_the_type_exists_or_not() -> None:
    guard, rights = new_guard(), rights_of("alice", {}, RULES)
    everything = parse("price > 1", QUOTE)
    for message in (Subscribe(7, 3, everything, {}), Advertise(7, QUOTE), events("alice/1")):
        refuse = guard.refusal(message, "client/alice", rights)
        assert refuse.status == "PERMISSION_DENIED"
        assert guard.refusal(message, "client/alice", None) is None
    assert guard.denials == {"subscribe": 1, "publish": 2}
    unknown = Refuse(7, "NOT_FOUND", "event type 'Quote' is not known here", 3, "Quote")
    wrong = Refuse(7, "INVALID_ARGUMENT", "unknown attribute 'cost': expected one of price", 3, "Quote")
    denied = guard.refusal(Subscribe(7, 3, everything, {}), "client/alice", rights)
    assert guard.instead(unknown, rights) == guard.instead(wrong, rights) == denied
    assert guard.instead(wrong, None) == wrong
    may = Rights("alice", dict.fromkeys(Action, (Permission("Q*"),)))
    assert guard.instead(wrong, may) == wrong
    assert guard.refusal(Update(8, 3, {}), "client/alice", rights) is None


def test_a_neighbour_is_who_its_certificate_names() -> None:
    uri = broker_uri("o/1", "b 2")
    assert uri == "covey://o%2F1/broker/b%202"
    certified = Certified(frozenset([uri, "https://b2"]), 5)
    assert neighbour_denial("o/1", "b 2", certified) is None
    assert certified.broker("o/1") == "b 2"
    for overlay, broker, peer, status in (
        ("o/1", "b 2", None, "UNAUTHENTICATED"),
        ("o/1", "b 3", certified, "PERMISSION_DENIED"),
        ("o", "b 2", certified, "PERMISSION_DENIED"),
        ("o/1", "b 2", Certified(frozenset([client_uri("o/1", "b 2")]), 5), "PERMISSION_DENIED"),
    ):
        denied = neighbour_denial(overlay, broker, peer)
        assert denied.status == status
    two = Certified(frozenset([client_uri("o", "a"), client_uri("o", "b")]), 5)
    assert two.client("o") is None
    assert two.any_client() is None
    assert Certified(frozenset([client_uri("o", "a/b")]), 5).any_client() == "a/b"
