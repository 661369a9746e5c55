"""OpenAPI and AsyncAPI agree with the gateway."""

import json
from typing import Any

import pytest

from covey.gateway import application
from covey.gateway.application import PATHS, asyncapi, openapi
from covey.gateway.event_stream import error_response
from covey.gateway.messages import REPLIES, REQUESTS, MessageError, parse_message


def references(document: Any) -> list[str]:
    if isinstance(document, dict):
        own = [document["$ref"]] if "$ref" in document else []
        return own + [each for value in document.values() for each in references(value)]
    return [each for value in document for each in references(value)] if isinstance(document, list) else []


@pytest.mark.parametrize("document", [openapi(), asyncapi()])
def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    json.dumps(document)
    assert references(document)
    for reference in references(document):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def test_paths_are_those_of_the_application() -> None:
    routes = {route.path for route in application("localhost:1").routes}
    document = asyncapi()
    assert routes == {*PATHS, document["channels"]["socket"]["address"]}
    assert {*openapi()["paths"]} == {*PATHS}


def test_an_error_is_as_its_schema_says() -> None:
    schema = openapi()["components"]["schemas"]["Error"]
    error = json.loads(error_response(MessageError("no")).body)
    assert {*schema["required"]} <= {*error} <= {*schema["properties"]}
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"] == {"const": error["kind"]}


def test_messages_are_those_of_the_tables() -> None:
    document = asyncapi()
    for action, table in (("receive", REQUESTS), ("send", REPLIES)):
        listed = [each["$ref"].rpartition("/")[2] for each in document["operations"][action]["messages"]]
        assert listed == [*table]
    for kind, message in document["components"]["messages"].items():
        assert len(message["summary"]) > 20
        schema = document["components"]["schemas"][message["payload"]["$ref"].rpartition("/")[2]]
        assert schema["properties"]["kind"] == {"const": kind}
        assert schema["additionalProperties"] is False


def test_what_the_document_requires_the_parser_requires() -> None:
    document = asyncapi()["components"]["schemas"]
    examples: dict[str, Any] = {
        "request": 1, "subscription": 1, "type": "T", "values": {}, "events": [], "received": 0, "token": "t",
        "valid_for": 1,
    }  # fmt: skip
    for kind, model in REQUESTS.items():
        required = [name for name in document[model.__name__]["required"] if name != "kind"]
        whole = {"kind": kind, **{name: examples[name] for name in required}}
        parse_message(json.dumps(whole))
        for name in required:
            with pytest.raises(MessageError, match=f"{kind}: {name} is missing"):
                parse_message(json.dumps({key: value for key, value in whole.items() if key != name}))
