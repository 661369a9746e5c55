"""The JavaScript client in Node: lost sessions, throwing callbacks and invalid arguments."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "gateway" / "browser" / "covey.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed (Debian: nodejs)")


def outcome(case: str) -> Any:
    steps = Path(__file__).parent / "lost_sessions.mjs"
    command = (str(NODE), "--no-warnings", str(steps), SCRIPT.as_uri(), case)
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout)


def test_two_sessions_that_are_lost_in_a_row() -> None:
    second, third, fourth, rest, published, states, values, views = outcome("twice")
    assert second[:3] == [["subscribe", 1], ["view", 2], ["subscribe", 3]]
    assert second[3:] == [["unsubscribe", 3], ["publish", None], ["update", 1]]
    # Each once, in the old order, without cancelled ones.
    assert third == fourth[:3] == [["subscribe", 1], ["view", 2], ["update", 1]]
    assert rest == [1_000, 400, 400]
    assert published.startswith("ABORTED: the session was lost")
    assert states == ["afresh", "lost", "afresh", "lost", "afresh", "lost", "afresh"]
    assert values == {"limit": 1}
    assert views == []


def test_a_renewal_that_the_lost_session_has_had() -> None:
    second, period, rest = outcome("renewal")
    assert second == [["subscribe", 1], ["renew", 1]]
    assert period == 60
    assert rest == 30


def test_a_new_session_that_finds_no_broker_for_a_time() -> None:
    asked, notices, kinds = outcome("away")
    assert asked == ["view,1"]
    assert [(each["subscription"], each["status"]) for each in notices] == [
        (1, "UNAVAILABLE"),
        (2, "INVALID_ARGUMENT"),
    ]
    assert kinds == ["enter", "leave"]


def test_what_is_asked_for_while_a_new_session_finds_no_broker() -> None:
    sent, changes, values, expired, notices = outcome("changed")
    assert sent == 3  # two subscriptions and an update, which the gateway refuses
    assert changes == [["subscribe", 1], ["update", 2], ["update", 3], ["renew", None]]
    assert values == {"limit": 3}
    assert not expired
    assert notices == ["UNAVAILABLE", "UNAVAILABLE"]


def test_a_callback_that_throws_ends_no_view() -> None:
    assert outcome("callback") == [["of the page"], []]


def test_what_json_does_not_have_is_refused() -> None:
    early, value, asked = outcome("json")
    assert early.startswith("INVALID_ARGUMENT: publish: Do not know how to serialize a BigInt")
    assert value.startswith("INVALID_ARGUMENT: subscribe: Do not know how to serialize a BigInt")
    assert asked == [["publish", None]]


def test_arguments_that_have_changed_places() -> None:
    assert outcome("arguments") == [
        "INVALID_ARGUMENT: subscribe: filter is function: expected string",
        "INVALID_ARGUMENT: subscribe: values is function: expected object",
        "INVALID_ARGUMENT: view: onChanges is object: expected function",
        "INVALID_ARGUMENT: view: filter is null: expected string",
        "INVALID_ARGUMENT: subscribe: type is object: expected string",
    ]


def test_a_socket_that_is_refused_by_the_page() -> None:
    why = "FAILED_PRECONDITION: ws://gateway/socket: an insecure connection"
    assert outcome("socket") == [why, why]


def test_a_token_that_is_not_to_be_had_for_a_time() -> None:
    notice, states, asked, other = outcome("token")
    why = "the token: fetch failed"
    assert notice == {"kind": "error", "status": "UNAUTHENTICATED", "message": why}
    assert states == ["afresh", "lost", "afresh"]
    assert asked == [["publish", None]]
    assert other == f"UNAUTHENTICATED: {why}"


def test_a_client_that_is_closed_tells_nothing_more() -> None:
    assert outcome("closed") == [[], []]
