"""Mapping files: what they mean, and one sentence for each mistake."""

import re
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


ABSENT = "is not there"
ADDRESS = 'expected "host:port"'
MISTAKES: list[tuple[str, object, str]] = [
    # place, its value, and the sentence behind the place, or behind "PLACE is VALUE: "
    ("name", ABSENT, " is missing"),
    ("name", "", "expected 1 to 200 printable characters"),
    ("broker", "x", " is unknown: expected one of name, mqtt, event_types, to_covey, to_mqtt"),
    ("mqtt", ABSENT, " is missing"),
    ("mqtt.adress", "x", " is unknown: did you mean address?"),
    ("mqtt.address", "localhost", ADDRESS),
    ("mqtt.address", "unix:/run/x", ADDRESS),
    ("mqtt.address", 1883, ADDRESS),
    ("mqtt.session_expiry_s", -1, "expected a number greater than or equal"),
    ("mqtt.password_file", "secret", " needs username: expected it beside"),
    ("mqtt.tls", {"key": "a.key"}, ".key needs certificate: expected it beside"),
    ("event_types.Reading", {"on": "boolean"}, " is wrong: event type 'Reading', attribute"),
    ("to_covey", {}, "expected a valid list"),
    ("to_covey[0].topic", "plant/#/x", "expected a topic filter of MQTT"),
    ("to_covey[0].topic", 7, "expected a valid string"),
    ("to_covey[0].qos", 2, "expected a number less than or equal to 1"),
    ("to_covey[0].attributes.sensr", "topic.3", " is no attribute of Reading: did you"),
    ("to_covey[0].attributes.line", "topic.4", "expected one of the 3"),
    ("to_covey[0].attributes.line", "topic.0", "expected topic.N with"),
    ("to_covey[0].attributes.line", "payload..a", "expected topic.N"),
    ("to_covey[0].attributes.line", 3, "expected topic.N with the number of"),
    ("to_covey[0].attributes.on", "topic.2", "expected a payload for a bool"),
    ("to_mqtt[0].filter", "celsius >", "expected"),
    ("to_mqtt[0].filter", "heat > 1", "Reading has no attribute 'heat'"),
    ("to_mqtt[0].values", {}, "variable $limit has no value"),
    ("to_mqtt[0].values", {"limit": "x"}, "variable $limit: value 'x'"),
    ("to_mqtt[0].variables.limits", "a", " is no variable of the filter: did you mean"),
    ("to_mqtt[0].variables.limit", "a/+", "expected a topic of MQTT"),
    ("to_mqtt[0].topic", "alarms/{sensr}", ".{sensr} is no attribute of Reading: did you mean sensor"),
    ("to_mqtt[0].topic", "alarms/{celsius}", " has {celsius}, of kind float64: expected one of kind"),
    ("to_mqtt[0].topic", "alarms/{sensor", "expected the name of an attribute"),
    ("to_mqtt[0].topic", "alarms/#", "expected a topic of MQTT"),
    ("to_mqtt[0].retain", 1, "expected a valid boolean"),
    ("to_mqtt[0].attributes", ["sensor", "x"], "[1] is no attribute of Reading: expected one"),
    ("to_mqtt[0].attributes", [], "expected"),
]


@pytest.mark.parametrize(("place", "value", "rest"), MISTAKES, ids=str)
def test_a_mistake_is_one_sentence(place: str, value: object, rest: str, tmp_path: Path) -> None:
    content: Any = document()
    section = content
    *way, last = [int(part) if part.isdigit() else part for part in re.split(r"\]?\.|\[", place)]
    for part in way:
        section = section[part]
    if value == ABSENT:
        del section[last]
    else:
        section[last] = value
    with pytest.raises(InputError) as caught:
        load_mapping(write(tmp_path, content))
    sentence = f"{place}{rest}" if rest[0] in " .[" else f"{place} is {value!r}: {rest}"
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
