"""The overlay file: valid content, and one clear sentence for everything else."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_certificates import files_as, overlay_files

from covey.matcher import EventType
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, SessionLimits
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.operators.operator_limits import OperatorLimits
from covey.overlay.documents import ConfigError
from covey.overlay.node.config import check_certificate, import_operators, load_overlay, select_broker
from covey.overlay.transport.rpc_server import ConnectionLimits
from covey.overlay.transport.tls import Tls

FIVE = Path(__file__).parents[3] / "examples" / "five.yaml"
TWO = """
overlay: two
brokers:
  b1: {address: "127.0.0.1:7001"}
  b2: {address: "127.0.0.1:7002", listen: "0.0.0.0:7002"}
links: [[b1, b2]]
"""
MOVING = """
overlay: three
repair_after_s: {seconds}
brokers:
  b1: {{address: "127.0.0.1:7001"}}
  b2: {{address: "127.0.0.1:7002"}}
  b3: {{address: "127.0.0.1:7003", fallbacks: {fallbacks}}}
links: [[b2, b1], [b1, b3]]
"""


def load(tmp_path: Path, text: str, **environment: str):
    path = tmp_path / "overlay.yaml"
    path.write_text(text)
    return load_overlay(path, environment)


def test_the_example_has_five_brokers_in_three_levels() -> None:
    overlay = load_overlay(FIVE, {})
    assert overlay.name == "five"
    assert list(overlay.brokers) == ["b1", "b2", "b3", "b4", "b5"]
    assert overlay.neighbours("b1") == {"b2": False, "b3": False}
    assert overlay.neighbours("b3") == {"b1": True, "b5": False}
    assert (overlay.limits, overlay.sessions) == (Limits(), SessionLimits())


def test_every_field_of_an_overlay_file_is_read(tmp_path: Path) -> None:
    overlay = load(
        tmp_path,
        TWO
        + """
routing: static
event_types:
  Quote: {firm: string, price: float64, at: timestamp}
  Vehicle: {key: id, id: string, x: float64}
  Setting: {key: string, value: float64}
limits: {max_event_bytes: 100, max_batch_events: 10, max_frame_bytes: 10000, session_lease_s: 0.5,
         session_queue_events: 7}
""",
    )
    assert overlay.routing == "static"
    assert overlay.event_types == (
        EventType("Quote", {"firm": "string", "price": "float64", "at": "timestamp"}),
        EventType("Vehicle", {"id": "string", "x": "float64"}, key="id"),
        EventType("Setting", {"key": "string", "value": "float64"}),
    )
    assert overlay.limits == Limits(100, 10, 10000)
    assert overlay.sessions == SessionLimits(0.5, 7)
    assert overlay.brokers["b1"].listen == "127.0.0.1:7001"
    assert overlay.brokers["b2"].listen == "0.0.0.0:7002"


def test_every_limit_can_be_set_and_has_a_default(tmp_path: Path) -> None:
    overlay = load(
        tmp_path,
        TWO
        + """
limits: {session_queue_events: 1, session_queue_bytes: 2, session_stall_limit_s: 3.5, session_lease_s: 4,
         link_queue_bytes: 5, link_held_bytes: 6, max_connections: 7, max_connections_per_address: 8,
         max_sessions: 9, max_session_subscriptions: 10, max_session_types: 11, max_types: 12,
         max_filter_bytes: 13, max_filter_depth: 14, max_filter_conjunctions: 15,
         max_session_updates_per_s: 16, max_session_events_per_s: 17, max_session_event_bytes_per_s: 18,
         max_client_sessions: 19, max_type_views: 20, max_key_bytes: 21, max_replay_bytes: 22}
""",
    )
    assert overlay.sessions == SessionLimits(4, 1, 2, 3.5)
    assert overlay.link_limits == LinkLimits(5, 6)
    assert overlay.connections == ConnectionLimits(7, 8)
    assert overlay.bounds == Bounds(9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
    assert (overlay.max_key_bytes, overlay.max_replay_bytes) == (21, 22)
    default = load(tmp_path, TWO)
    assert (default.sessions, default.link_limits) == (SessionLimits(), LinkLimits())
    assert (default.connections, default.bounds) == (ConnectionLimits(), Bounds())


def test_keys_of_a_type_with_views_or_a_durable_one_may_have_a_maximal_age(tmp_path: Path) -> None:
    overlay = load(tmp_path, f"{TWO}\n{KEYED}: {{Vehicle: 60, Ship: 0.5}}")
    assert overlay.key_max_age_s == {"Vehicle": 60.0, "Ship": 0.5}
    for types in ("", "event_types: {Vehicle: {id: string, key: id}}"):
        text = f"{TWO}\n{types}\ndurable: {{Vehicle: {{}}}}\nkey_max_age_s: {{Vehicle: 60}}"
        assert load(tmp_path, text).key_max_age_s == {"Vehicle": 60.0}


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    overlay = load(tmp_path, f"{TWO}\ninsecure: true\n", COVEY_ROUTING="static")
    assert overlay.routing == "static"
    for listen in ("[::]:9", "[::]:9, unix:/run/b1"):
        assert select_broker(overlay, "b1", {"COVEY_LISTEN": listen}).listen == listen


KEYED = "event_types: {Vehicle: {id: string, key: id}, Quote: {firm: string}}\nkey_max_age_s"
RING = "overlay: ring\nbrokers:\n{}links: [[b1, b2], [b4, b1], [b2, b3], [b3, b5], [b3, b4]]\n".format(
    "".join(f'  b{i}: {{address: "h:{i}"}}\n' for i in range(1, 6))
)


def moving(fallbacks: str, seconds: float = 2.5) -> str:
    return MOVING.format(seconds=seconds, fallbacks=fallbacks)


def also(text: str) -> tuple[str, str]:
    return "overlay: two", f"overlay: two\n{text}"


NO_VALUES = (
    *("insecure: !!bool maybe", "storage: !!timestamp x", "replay_events: !!int ''", "tls: !!map [a]"),
    f"foo: {'[' * 1_000}{']' * 1_000}",
)
"""PyYAML raises Python's own errors for them."""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("links: [[b1, b2]]", "links: []"), "links do not reach b2 from b1: expected a connected overlay"),
        (("[[b1, b2]]", "[[b1, b3]]"), r"links\[0\] names 'b3': expected one of b1, b2"),
        (("[[b1, b2]]", "[[b1, b1]]"), r"links\[0\] joins b1 with itself: expected two brokers"),
        (("[[b1, b2]]", "[b1]"), r"links\[0\].ends is 'b1': expected a pair of brokers"),
        (("[[b1, b2]]", "b1"), "links is 'b1': expected a valid list"),
        (("[[b1, b2]]", "[[b1, b2], [b2, b1]]"), r"links\[1\] closes a cycle, b2 - b1 - b2: expected a tree"),
        (("127.0.0.1:7002", "127.0.0.1:7001"), "brokers.b2.address is '127.0.0.1:7001': broker b1 has it"),
        (('{address: "127.0.0.1:7001"}', "{}"), "brokers.b1.address is missing"),
        (("127.0.0.1:7001", "7001"), "brokers.b1.address is '7001': expected \"host:port\""),
        (("127.0.0.1:7001", "x:70000"), "brokers.b1.address is 'x:70000': expected \"host:port\""),
        (("listen:", "listens:"), "brokers.b2.listens is unknown: did you mean listen?"),
        (("overlay: two", "overlay: 2"), "overlay is 2: expected a valid string"),
        (("overlay: two", ""), "overlay is missing"),
        (also("foo: 1"), "foo is unknown: expected one of overlay, brokers, links, routing"),
        (also("routing: fast"), "routing is 'fast': expected one of parametric, static"),
        (also("limits: {max_frame_bytes: 1}"), "limits.max_frame_bytes is 1"),
        (also("client_delay_ms: -1"), "client_delay_ms is -1: expected a number greater than or equal to 0"),
        (also("limits: {session_lease_s: no}"), "limits.session_lease_s is False"),
        (also("limits: {session_lease_s: .nan}"), "limits.session_lease_s is nan"),
        (also("limits: {session_lease_s: .inf}"), "limits.session_lease_s is inf"),
        (also("limits: {max_batch_events: 1.5}"), "limits.max_batch_events is 1.5: expected a valid integer"),
        *((also(text), "no YAML: a value does not fit its tag") for text in NO_VALUES),
        (also('storage: "a\\0"'), r"storage is 'a\\x00': expected a path"),
        (also('clients: {tokens: {key: "a\\0"}}'), r"clients.tokens.key is 'a\\x00': expected a path"),
        (also('tickets: ["a\\0"]'), r"tickets\[0\] is 'a\\x00': expected a path"),
        (also("tracing: 'http://['"), r"tracing is 'http://\[': expected an address of a collector"),
        (also("tracing: collector"), "tracing is 'collector': expected an address of a collector"),
        (also(f"limits: {{max_batch_events: {1 << 32}}}"), "expected a number less than 4294967296"),
        (also("event_types: {Q: {a: text}}"), "event_types.Q is wrong: .*kind 'text'"),
        (
            also("event_types: {Q: {key: b, a: string}}"),
            "event_types.Q is wrong: .*key 'b': expected one of its attributes, a",
        ),
        (
            also("event_types: {Q: {key: [a], a: string}}"),
            r"event_types.Q is wrong: .*key \['a'\]: expected one of its attributes, a",
        ),
        (
            also("event_types: {Q: {key: a, a: float64}}"),
            "event_types.Q is wrong: .*key 'a': kind float64, expected int64 or string",
        ),
        (also("event_types: {Q: [a]}"), r"event_types.Q is \['a'\]: expected a mapping from"),
        (also("overlay: three"), "no YAML at line 3, column 1: overlay is there twice"),
        (("overlay: two", "overlay: [two"), "no YAML at line "),
        (("overlay: two", "overlay: 2001-13-45"), "no YAML: month must be in 1..12"),
        (
            also("operators: {call_share: 1.5}"),
            "operators.call_share is 1.5: expected a number less than or equal to 1",
        ),
        (
            also("operators: {modules: [no module]}"),
            r"operators.modules\[0\] is 'no module': expected the name of a Python module",
        ),
        ((TWO, "- 1"), r"the document is \[1\]: expected a mapping"),
        ((TWO, "overlay: x\nbrokers: {}"), "brokers is empty"),
        (("b1: {", "1: {"), "brokers has the key 1: expected text"),
        (("b1: {", "[a, b]: {"), "no YAML at line 4, column 3: a key is a list: expected text"),
        (("b1: {", "{a: b}: {"), "no YAML at line 4, column 3: a key is a mapping: expected text"),
        ((TWO, RING), r"links\[4\] closes a cycle, b3 - b2 - b1 - b4 - b3: expected a tree"),
        (also("metrics: {b9: '127.0.0.1:9102'}"), "metrics.b9 is of no broker: expected one of b1, b2"),
        (also("metrics: {b1: 'unix:/tmp/m'}"), 'metrics.b1 is .unix:/tmp/m.: expected "host:port"'),
        (also("metrics: 9100"), "metrics is 9100: expected"),
        (also("log_level: LOUD"), "log_level is 'LOUD': expected one of .*DEBUG"),
        (also("damping: 8\nrouting: static"), "damping is 8: expected 0 with static routing"),
        (also("merging: budget\nmerging_budget: 0"), "merging_budget is 0: expected a number greater than 0"),
        (also("merging: all"), "merging is 'all': expected"),
        (
            also("durable: {T: {}}\nstorage: s\nrepair_after_s: 2"),
            "repair_after_s is 2: expected 0 with durable",
        ),
        (also("merging: budget\nrouting: static"), "merging is 'budget': expected off with static routing"),
        (also(f"{KEYED}: {{Quote: 1}}"), "key_max_age_s.Quote is of a type without a key: expected one that"),
        (also(f"{KEYED}: {{Vehicle: 0}}"), "key_max_age_s.Vehicle is 0: expected"),
        ((TWO, moving("[b3]")), "brokers.b3.fallbacks names 'b3': expected brokers .* before b3: b1, b2"),
        ((TWO, moving("[b9]")), "brokers.b3.fallbacks names 'b9': expected brokers"),
        ((TWO, moving("[b1]", 0)), "brokers.b3.fallbacks needs repair_after_s: expected it beside"),
        ((TWO, moving("[b1]", -1)), "repair_after_s is -1: expected a number greater than or equal to 0"),
    ],
)
def test_mistakes(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        load(tmp_path, TWO.replace(*change))
    assert str(raised.value).startswith(str(tmp_path / "overlay.yaml"))
    assert "\n" not in str(raised.value)


def test_a_broker_that_is_not_there_and_a_wrong_environment(tmp_path: Path) -> None:
    overlay = load(tmp_path, TWO)
    with pytest.raises(ConfigError, match="broker 'b9' is not in overlay 'two': it has b1, b2"):
        select_broker(overlay, "b9", {})
    with pytest.raises(ConfigError, match="COVEY_LISTEN is 'x': expected \"host:port\""):
        select_broker(overlay, "b1", {"COVEY_LISTEN": "x"})
    with pytest.raises(ConfigError, match="COVEY_ROUTING is 'x': expected one of parametric, static"):
        load(tmp_path, TWO, COVEY_ROUTING="x")
    with pytest.raises(ConfigError, match=r"nowhere.yaml: cannot be read: No such file"):
        load_overlay(tmp_path / "nowhere.yaml", {})


def test_damping_goes_with_parametric_routing_alone(tmp_path: Path) -> None:
    text = f"{TWO}\ndamping: 8\n"
    assert load(tmp_path, text).damping == 8

    with pytest.raises(ConfigError, match="COVEY_ROUTING is 'static': expected parametric with damping 8"):
        load(tmp_path, text, COVEY_ROUTING="static")


def test_merging_is_read_and_goes_with_parametric_routing_alone(tmp_path: Path) -> None:
    plain = load(tmp_path, TWO)
    assert (plain.merging, plain.merging_budget) == ("off", 64)
    assert load(tmp_path, f"{TWO}\nmerging: off\n").merging == "off"
    text = f"{TWO}\nmerging: budget\nmerging_budget: 12\n"
    merging = load(tmp_path, text)
    assert (merging.merging, merging.merging_budget) == ("budget", 12)

    with pytest.raises(ConfigError, match="COVEY_ROUTING is 'static': expected parametric with"):
        load(tmp_path, text, COVEY_ROUTING="static")


def test_operators_have_limits_and_modules(tmp_path: Path) -> None:
    plain = load(tmp_path, TWO)
    assert (plain.operator_limits, plain.operator_modules) == (OperatorLimits(), ())
    overlay = load(
        tmp_path,
        TWO
        + """
operators: {modules: [json, company.operators], deadline_ms: 1, turn_ms: 2, operator_share: 0.5,
            call_share: 1, faults_in_a_row: 5, abandoned_calls: 6, first_suspension_s: 7,
            longest_suspension_s: 8}
""",
    )
    assert overlay.operator_limits == OperatorLimits(1, 2, 0.5, 1, 5, 6, 7, 8)
    assert overlay.operator_modules == ("json", "company.operators")
    assert overlay.shared_options() == plain.shared_options()


def test_a_module_of_operators_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_operators.py").write_text("1 / 0")
    (tmp_path / "whole_operators.py").write_text("")
    import_operators(load(tmp_path, f"{TWO}\noperators: {{modules: [whole_operators]}}"))
    for name, why in (("broken_operators", "ZeroDivisionError"), ("no_operators", "ModuleNotFoundError")):
        overlay = load(tmp_path, f"{TWO}\noperators: {{modules: [{name}]}}")
        complaint = f"operators.modules names '{name}': expected a module that can be imported .{why}"
        with pytest.raises(ConfigError, match=complaint):
            import_operators(overlay)


def test_metrics_have_an_address_per_broker_or_one_for_all(tmp_path: Path) -> None:
    assert load(tmp_path, TWO).metrics == {}
    one = load(tmp_path, TWO + "metrics: {b2: '127.0.0.1:9102'}")
    assert one.metrics == {"b2": "127.0.0.1:9102"}
    every = load(tmp_path, TWO + "metrics: '0.0.0.0:9100'")
    assert every.metrics == {"b1": "0.0.0.0:9100", "b2": "0.0.0.0:9100"}


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "b1:1", "10.0.0.7:1", "127.0.0.1:1, [::]:2"])
def test_a_broker_beyond_this_machine_needs_tls_or_a_word(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigError, match=r"in plain text: expected a section tls .*, or insecure: true"):
        select_broker(load(tmp_path, TWO), "b1", {"COVEY_LISTEN": listen})
    for told in ("insecure: true", "tls: {certificate: c, key: k, authority: a}"):
        overlay = load(tmp_path, f"{TWO}\n{told}\n")
        assert select_broker(overlay, "b1", {"COVEY_LISTEN": listen}).listen == listen
    with pytest.raises(ConfigError, match=r"listens at 0\.0\.0\.0:7002"):
        select_broker(load(tmp_path, TWO), "b2", {})


@pytest.mark.parametrize(
    "listen", ["127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/run/b1", "[::ffff:127.0.0.1]:1"]
)
def test_a_broker_of_this_machine_needs_none(tmp_path: Path, listen: str) -> None:
    assert select_broker(load(tmp_path, TWO), "b1", {"COVEY_LISTEN": listen}).listen == listen


def test_the_files_of_tls_are_relative_to_the_overlay_file(tmp_path: Path) -> None:
    overlay = load(tmp_path, f'{TWO}\ntls: {{certificate: "c/{{name}}.pem", key: /k, authority: a.pem}}\n')
    assert overlay.tls.of("b1") == Tls(f"{tmp_path}/a.pem", f"{tmp_path}/c/b1.pem", "/k")
    with pytest.raises(ConfigError, match=r"tls\.key is missing"):
        load(tmp_path, f"{TWO}\ntls: {{certificate: c, authority: a}}\n")


def test_the_certificate_of_a_broker_names_it_and_is_valid(tmp_path: Path) -> None:
    overlay = load(tmp_path, TWO.replace("two", "test"))
    check_certificate(overlay, "b1")
    overlay = replace(overlay, tls=overlay_files())
    check_certificate(overlay, "b1")
    files = files_as("b2")
    with pytest.raises(ConfigError, match=r"b2.pem does not name broker b1: expected covey://test/broker/b1"):
        check_certificate(replace(overlay, tls=files), "b1")
    with pytest.raises(ConfigError, match=r"expired.pem has expired"):
        check_certificate(replace(overlay, tls=files_as("expired")), "b1")


def test_where_links_move_the_lower_end_dials_and_has_fallbacks(tmp_path: Path) -> None:
    overlay = load(tmp_path, moving("[b2]"))

    assert overlay.repair_after_s == 2.5
    assert overlay.neighbours("b2") == {"b1": True}, "whatever the order in the file"
    assert overlay.rule().candidates("b3") == ("b1", "b2")
