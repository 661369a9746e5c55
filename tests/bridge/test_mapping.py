"""Mapping files: what they mean, and one sentence for each mistake."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from made_certificates import tls_of

from covey.bridge.mapping import load_mapping
from covey.bridge.to_covey import InwardRule
from covey.matcher import EventType
from covey.matcher.errors import InputError

READING = EventType(
    "Reading",
    {"line": "int64", "sensor": "string", "celsius": "float64", "on": "bool", "tags": "list<string>"},
)


def document() -> dict[str, Any]:
    """A mapping without a mistake."""
    return {
        "name": "plant",
        "mqtt": {"address": "localhost:1883"},
        "event_types": {"Reading": {name: str(kind) for name, kind in READING.attributes.items()}},
        "to_covey": [{"topic": "plant/+/+", "event_type": "Reading", "attributes": {"sensor": "topic.3"}}],
        "to_mqtt": [
            {
                "event_type": "Reading",
                "filter": "celsius > $limit",
                "values": {"limit": 80},
                "variables": {"limit": "plant/limit"},
                "topic": "alarms/{sensor}",
            }
        ],
    }


def write(folder: Path, content: object) -> Path:
    file = folder / "mapping.yaml"
    file.write_text(yaml.safe_dump(content, allow_unicode=True))
    return file


IN, OUT = ("to_covey", 0), ("to_mqtt", 0)
ABSENT = object()
MISTAKES: list[tuple[tuple[str | int, ...], object, str]] = [
    (("name",), ABSENT, "name is missing"),
    (("name",), "", "name is '': expected 1 to 200 printable characters"),
    (("broker",), "x", "broker is unknown: expected one of name, mqtt, event_types, to_covey, to_mqtt"),
    (("mqtt",), ABSENT, "mqtt is missing"),
    (("mqtt", "adress"), "x", "mqtt.adress is unknown: did you mean address?"),
    (("mqtt", "address"), "localhost", "mqtt.address is 'localhost': expected \"host:port\""),
    (("mqtt", "address"), "unix:/run/x", "mqtt.address is 'unix:/run/x': expected \"host:port\""),
    (("mqtt", "address"), 1883, 'mqtt.address is 1883: expected "host:port"'),
    (
        ("mqtt", "session_expiry_s"),
        -1,
        "mqtt.session_expiry_s is -1: expected a number greater than or equal",
    ),
    (("mqtt", "password_file"), "secret", "mqtt.password_file needs username: expected it beside"),
    (("mqtt", "tls"), {"key": "a.key"}, "mqtt.tls.key needs certificate: expected it beside"),
    (
        ("event_types", "Reading", "on"),
        "boolean",
        "event_types.Reading is wrong: event type 'Reading', attribute",
    ),
    (("to_covey",), {}, "to_covey is {}: expected a valid list"),
    ((*IN, "topic"), "plant/#/x", "to_covey[0].topic is 'plant/#/x': expected a topic filter of MQTT"),
    ((*IN, "topic"), 7, "to_covey[0].topic is 7: expected a valid string"),
    ((*IN, "qos"), 2, "to_covey[0].qos is 2: expected a number less than or equal to 1"),
    (
        (*IN, "attributes", "sensr"),
        "topic.3",
        "to_covey[0].attributes.sensr is no attribute of Reading: did you",
    ),
    (
        (*IN, "attributes", "line"),
        "topic.4",
        "to_covey[0].attributes.line is 'topic.4': expected one of the 3",
    ),
    (
        (*IN, "attributes", "line"),
        "topic.0",
        "to_covey[0].attributes.line is 'topic.0': expected topic.N with",
    ),
    (
        (*IN, "attributes", "line"),
        "payload..a",
        "to_covey[0].attributes.line is 'payload..a': expected topic.N",
    ),
    ((*IN, "attributes", "line"), 3, "to_covey[0].attributes.line is 3: expected topic.N with the number of"),
    (
        (*IN, "attributes", "on"),
        "topic.2",
        "to_covey[0].attributes.on is 'topic.2': expected a payload for a bool",
    ),
    ((*OUT, "filter"), "celsius >", "to_mqtt[0].filter is 'celsius >': expected"),
    ((*OUT, "filter"), "heat > 1", "to_mqtt[0].filter is 'heat > 1': Reading has no attribute 'heat'"),
    ((*OUT, "values"), {}, "to_mqtt[0].values is {}: variable $limit has no value"),
    ((*OUT, "values", "limit"), "x", "to_mqtt[0].values is {'limit': 'x'}: variable $limit: value 'x'"),
    (
        (*OUT, "variables", "limits"),
        "a",
        "to_mqtt[0].variables.limits is no variable of the filter: did you mean",
    ),
    ((*OUT, "variables", "limit"), "a/+", "to_mqtt[0].variables.limit is 'a/+': expected a topic of MQTT"),
    (
        (*OUT, "topic"),
        "alarms/{sensr}",
        "to_mqtt[0].topic.{sensr} is no attribute of Reading: did you mean sensor",
    ),
    (
        (*OUT, "topic"),
        "alarms/{celsius}",
        "to_mqtt[0].topic has {celsius}, of kind float64: expected one of kind",
    ),
    (
        (*OUT, "topic"),
        "alarms/{sensor",
        "to_mqtt[0].topic is 'alarms/{sensor': expected the name of an attribute",
    ),
    ((*OUT, "topic"), "alarms/#", "to_mqtt[0].topic is 'alarms/#': expected a topic of MQTT"),
    ((*OUT, "retain"), 1, "to_mqtt[0].retain is 1: expected a valid boolean"),
    (
        (*OUT, "attributes"),
        ["sensor", "x"],
        "to_mqtt[0].attributes[1] is no attribute of Reading: expected one",
    ),
    ((*OUT, "attributes"), [], "to_mqtt[0].attributes is []: expected"),
]


@pytest.mark.parametrize(("path", "value", "sentence"), MISTAKES, ids=[each[2] for each in MISTAKES])
def test_a_mistake_is_one_sentence(
    path: tuple[str | int, ...], value: object, sentence: str, tmp_path: Path
) -> None:
    content: Any = document()
    section = content
    for part in path[:-1]:
        section = section[part]
    if value is ABSENT:
        del section[path[-1]]
    else:
        section[path[-1]] = value
    with pytest.raises(InputError) as caught:
        load_mapping(write(tmp_path, content))
    assert str(caught.value).startswith(f"{tmp_path / 'mapping.yaml'}: {sentence}")
    assert "\n" not in str(caught.value)


def test_a_mapping_without_rules_is_a_mistake(tmp_path: Path) -> None:
    content = {name: value for name, value in document().items() if not name.startswith("to_")}
    with pytest.raises(InputError, match="expected rules in to_covey or to_mqtt"):
        load_mapping(write(tmp_path, content))


def test_types_of_the_overlay_are_checked_once_they_are_known(tmp_path: Path) -> None:
    content = document()
    del content["event_types"]
    file = write(tmp_path, content)
    mapping = load_mapping(file)
    assert mapping.undeclared == ["Reading"]
    assert load_mapping(file, [READING]).types == {"Reading": READING}
    with pytest.raises(InputError, match=r"to_covey\[0\].attributes.sensor is no attribute of Reading"):
        load_mapping(file, [EventType("Reading", {"id": "string", "celsius": "float64"}, key="id")])


def test_files_of_the_mqtt_section_are_read_from_the_folder(tmp_path: Path) -> None:
    content = document()
    content["mqtt"] |= {"username": "plant", "password_file": "secret", "tls": {"authority": "none.pem"}}
    mapping = load_mapping(write(tmp_path, content))
    with pytest.raises(InputError, match="secret: cannot be read: No such file"):
        mapping.mqtt.options(tmp_path)
    (tmp_path / "secret").write_text("geheim\n")
    with pytest.raises(InputError, match=r"mqtt.tls: authority .*none.pem cannot be read: No such file"):
        mapping.mqtt.options(tmp_path)
    del content["mqtt"]["tls"]
    assert load_mapping(write(tmp_path, content)).mqtt.options(tmp_path) == {
        "hostname": "localhost",
        "port": 1883,
        "username": "plant",
        "password": "geheim",
    }


def test_a_key_with_a_passphrase_is_a_mistake(tmp_path: Path) -> None:
    tls = tls_of("alice")
    key = serialization.load_pem_private_key(Path(str(tls.key)).read_bytes(), None)
    encrypted = serialization.BestAvailableEncryption(b"x")
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "encrypted.key").write_bytes(key.private_bytes(*formats, encrypted))
    content = document()
    content["mqtt"]["tls"] = {"certificate": str(tls.certificate), "key": "encrypted.key"}
    mapping = load_mapping(write(tmp_path, content))
    with pytest.raises(
        InputError, match=r"mqtt.tls: .*encrypted.key cannot be used: .* without a passphrase"
    ):
        mapping.mqtt.options(tmp_path)
    content["mqtt"]["tls"] |= {"authority": str(tls.authority), "key": str(tls.key)}
    context = load_mapping(write(tmp_path, content)).mqtt.options(tmp_path)["tls_context"]
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def test_a_rule_that_publishes_where_it_reads_mirrors(tmp_path: Path) -> None:
    content = document()
    content["to_mqtt"].append({"event_type": "Reading", "topic": "plant/{line}/{sensor}"})
    mapping = load_mapping(write(tmp_path, content))
    assert [mapping.mirrors(rule) for rule in mapping.to_mqtt] == [False, True]


def rule(tmp_path: Path, topic: str, **attributes: str) -> InwardRule:
    content = document()
    content["to_covey"] = [{"topic": topic, "event_type": "Reading", "attributes": attributes}]
    mapping = load_mapping(write(tmp_path, content))
    return InwardRule(mapping.to_covey[0], READING)


def test_attributes_come_from_levels_and_fields(tmp_path: Path) -> None:
    inward = rule(tmp_path, "plant/#", line="topic.2", sensor="topic.4", celsius="payload.heat.celsius")
    payload = b'{"heat": {"celsius": 81.5, "unit": "C"}, "on": true, "tags": ["a"], "other": 1}'
    assert inward.row("plant/7/x/oven", payload) == {
        "line": 7, "sensor": "oven", "celsius": 81.5, "on": True, "tags": ["a"],
    }  # fmt: skip
    assert inward.row("plant/7", b"{}") == {"line": 7, "celsius": None, "on": None, "tags": None}
    with pytest.raises(ValueError, match="level 2 is 'seven': expected int64"):
        inward.row("plant/seven", payload)
    for malformed in (b"", b"{", b"\xff", b'{"on": NaN}', b'"\xed\xa0\x80"', b"[" * 100_000, b"12", b"[]"):
        with pytest.raises(ValueError, match=r"JSON object|line 1 column"):
            inward.row("plant/7", malformed)


def test_a_payload_may_be_the_value(tmp_path: Path) -> None:
    names = dict.fromkeys(("line", "on", "tags"), "payload.nothing")
    inward = rule(tmp_path, "plant/+/+", sensor="topic.3", celsius="payload", **names)
    with pytest.raises(ValueError, match="no JSON object"):  # other attributes are fields
        inward.row("plant/1/oven", b"81.5")
    lone = EventType("Lone", {"sensor": "string", "celsius": "float64"})
    section = load_mapping(tmp_path / "mapping.yaml").to_covey[0]
    of_value = section.model_copy(update={"attributes": {"sensor": "topic.3", "celsius": "payload"}})
    assert InwardRule(of_value, lone).row("plant/1/oven", b"81.5") == {"sensor": "oven", "celsius": 81.5}
