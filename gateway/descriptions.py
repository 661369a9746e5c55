"""OpenAPI of what is HTTP, and AsyncAPI of what is not, made of the tables that the gateway itself uses."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from covey.gateway.event_stream import ChangesQuery, EventsQuery, Query
from covey.gateway.messages import REPLIES, REQUESTS, Error, Message
from covey.overlay import __version__

PATHS = {
    "/events/{type}": "Events of a type that match a filter, as server-sent events: the data of each is a "
    "message to the browser, as in /asyncapi.json. Last-Event-ID goes on behind that event.",
    "/views/{type}": "A view as server-sent events: changes, which first have an enter for each key inside, "
    "an answer behind these, then what enters, changes and leaves. Last-Event-ID goes on behind that event; "
    "where it cannot, the welcome has resumed false, and what is inside comes again.",
    "/health": "The numbers of sessions and connections, and of what was dropped and refused.",
    "/openapi.json": "This document.",
    "/asyncapi.json": "The messages of the WebSocket at /socket, as AsyncAPI.",
    "/covey.js": "The client for browsers and Node: a module without dependencies.",
    "/covey.d.ts": "Its types.",
}
"""By path, what a GET returns."""
_QUERIES: dict[str, type[Query]] = {"/events/{type}": EventsQuery, "/views/{type}": ChangesQuery}
"""Of those that stream."""
_ERRORS = {
    "400": "A parameter is wrong.",
    "401": "The token is not accepted.",
    "403": "The token does not permit this.",
    "404": "No such event type.",
    "429": "A bound of the gateway or its broker is reached.",
    "503": "The broker is out of reach. Who accepts text/event-stream gets this error as a stream that ends.",
    "504": "The broker has not answered in time. As for 503.",
}


@cache
def openapi() -> dict[str, Any]:
    """The document of all that is HTTP."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Covey gateway", "version": __version__},
        "paths": {path: {"get": _operation(path, text)} for path, text in PATHS.items()},
        "components": {
            "schemas": {"Error": _with_kind(Error, Error.model_json_schema())},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(path: str, text: str) -> dict[str, Any]:
    streamed = _QUERIES.get(path)
    media = {"/covey.js": "text/javascript", "/covey.d.ts": "text/plain"}.get(path, "application/json")
    content: dict[str, Any] = {("text/event-stream" if streamed else media): {}}
    operation: dict[str, Any] = {
        "summary": text,
        "responses": {"200": {"description": "OK", "content": content}},
    }
    if streamed is not None:
        described = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        errors = {status: {"description": why, "content": described} for status, why in _ERRORS.items()}
        operation["responses"] |= errors
        operation["security"] = [{}, {"token": []}]
        query = streamed.model_json_schema()["properties"]
        text_of = {"schema": {"type": "string"}}
        operation["parameters"] = [
            {"name": "type", "in": "path", "required": True, **text_of},
            *({"name": name, "in": "query", "schema": schema} for name, schema in query.items()),
            {"name": "Last-Event-ID", "in": "header", **text_of},
        ]
    return operation


def _with_kind(model: type[Message], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a message as it is sent, with its name."""
    return schema | {
        "properties": {"kind": {"const": model.kind}, **schema.get("properties", {})},
        "required": ["kind", *schema.get("required", [])],
    }


@cache
def asyncapi() -> dict[str, Any]:
    """The document of the WebSocket."""
    tables: tuple[dict[str, type[Message]], ...] = (REQUESTS, REPLIES)
    models = [model for table in tables for model in table.values()]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    definitions = schemas["$defs"]
    for model in models:
        definitions[model.__name__] = _with_kind(model, definitions[model.__name__])
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Covey gateway", "version": __version__},
        "defaultContentType": "application/json",
        "channels": {
            "socket": {
                "address": "/socket",
                "messages": {m.kind: {"$ref": f"#/components/messages/{m.kind}"} for m in models},
            }
        },
        "operations": {
            action: {
                "action": action,
                "channel": {"$ref": "#/channels/socket"},
                "messages": [{"$ref": f"#/channels/socket/messages/{kind}"} for kind in table],
            }
            for action, table in (("receive", REQUESTS), ("send", REPLIES))
        },
        "components": {
            "messages": {
                m.kind: {
                    "name": m.kind,
                    "summary": " ".join((m.__doc__ or "").split()),
                    "payload": {"$ref": f"#/components/schemas/{m.__name__}"},
                }
                for m in models
            },
            "schemas": definitions,
        },
    }
