"""The HTTP API as OpenAPI 3.1, with the messages that this app takes: made from routes and models.

The operations page is no part of it. What answers hold is told in docs/reference.md, by field.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import azure.functions as func
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from functions.http import asyncapi, bulk, error_queue, find, ingest, operate, sagas, watch
from functions.http.asyncapi import REFERENCE, VERSION, find_messages
from functions.http.bulk import BulkBody, CancelBody
from functions.http.error_queue import RepeatBody
from functions.http.operate import ResolutionBody
from functions.http.requests import IN_QUERY
from functions.http.responses import respond
from functions.http.routes import TEXT, HttpRoute, HttpRoutes
from shared.domain.access import Right
from shared.domain.handler import Handler, Handlers
from shared.domain.saga.record import kinds_of
from shared.engine.build import Services

JSON = {"content": {"application/json": {"schema": {"type": "object"}}}}
EVENTS = {"content": {"text/event-stream": {"schema": TEXT}}}
# The headers that functions read, whether one has to be there, and what it holds.
HEADERS = (
    ("ingest", "Idempotency-Key", True, TEXT),
    ("ingest", "Prefer", False, TEXT | {"example": "wait=10", "description": "RFC 7240"}),
    ("changes", "Last-Event-ID", False, TEXT),
    ("state", "If-None-Match", False, TEXT),
)
SLASH = f"where it has a slash, put {IN_QUERY!r} here and it into the query parameter {{name!r}}"
PROBLEM = {
    "description": "Problem details; the type names the error, and the docs explain it at `help`.",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["type", "status", "detail", "help"],
                "properties": {
                    "type": TEXT,
                    "status": {"type": "integer"},
                    "detail": TEXT,
                    "help": TEXT,
                },
            }
        }
    },
}


routes = HttpRoutes()


@routes.add("openapi", "GET openapi", Right.LOOK, "This document.", {200: "OpenAPI 3.1."})
async def answer_openapi(services: Services, _: func.HttpRequest) -> func.HttpResponse:
    return respond(describe_api(services.handlers))


# What the document describes, and after it what it does where the app has sagas.
DESCRIBED = (
    *(*ingest.routes.declared, *operate.routes.declared, *bulk.routes.declared),
    *find.routes.declared,
    *watch.routes.declared,
    *(*error_queue.routes.declared, *routes.declared, *asyncapi.routes.declared),
)


def describe_api(handlers: Handlers) -> dict[str, Any]:
    """The whole document, for an app with these handlers."""
    kinds = [handlers.by_type[kind] for kind in sorted(kinds_of(handlers))]
    messages = find_messages(handlers)
    own: list[type[BaseModel]] = [ResolutionBody, BulkBody, CancelBody, RepeatBody]
    models = own + [one.body for one in (*messages, *kinds)]
    answering = {one.message_type: one.answer for one in messages if one.answer is not None}
    described: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
        **{(model, "validation"): None for model in models},
        **{(model, "serialization"): None for model in answering.values()},
    }
    references, schemas = models_json_schema([*described], ref_template=REFERENCE)

    def refer(model: type[BaseModel]) -> dict[str, Any]:
        return references[model, "validation"]

    bodies = {
        "resolve": take_json(refer(ResolutionBody)),
        "decide": take_json(refer(BulkBody)),
        "cancel_decision": take_json(refer(CancelBody)),
        "send_again": take_json(refer(RepeatBody)),
        "ingest": take_one_of(messages, refer),
        "start_saga": take_one_of(kinds, refer),
    }
    paths: dict[str, dict[str, Any]] = {}
    for one in (*DESCRIBED, *(sagas.routes.declared if kinds else ())):
        types = {"ingest": messages, "start_saga": kinds}.get(one.name)
        if types == []:
            continue  # the app takes none of them
        operation = describe_operation(one)
        for parameter in operation["parameters"]:
            if parameter["name"] == "type" and types is not None:
                named = sorted(handler.message_type for handler in types)
                parameter |= {"required": True, "schema": {"type": "string", "enum": named}}
        if one.name == "ingest":
            refs = {name: references[model, "serialization"] for name, model in answering.items()}
            operation["responses"]["200"]["content"] = describe_answers(refs)
        if one.name in bodies:
            operation["requestBody"] = bodies[one.name]
        paths.setdefault(f"/{one.path}", {})[one.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lockstep", "version": VERSION},
        "servers": [{"url": "/api"}],
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-functions-key"}
            },
        },
    }


def describe_operation(one: HttpRoute) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", one.path)
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        | ({} if name == "event" else {"description": SLASH.format(name=name)})
        for name in names
    ]
    in_query = [{"name": name, "in": "query", "schema": one.query[name]} for name in one.query]
    in_header = [
        {"name": header, "in": "header", "required": is_needed, "schema": schema}
        for name, header, is_needed, schema in HEADERS
        if name == one.name
    ]
    success = EVENTS if one.name == "changes" else JSON
    answers: dict[str, Any] = {
        str(status): (PROBLEM if status >= 400 else {} if status == 304 else success)
        | {"description": text}
        for status, text in one.answers.items()
    }
    return {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [*in_path, *in_query, *in_header],
        "responses": {**answers, "default": PROBLEM},
        "security": [{"key": []}] if one.right else [],
    }


def describe_answers(models: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to whoever asks; `x-types` has the model of each type that declares one."""
    answers = [*{str(one["$ref"]): one for one in models.values()}.values()]
    known = {"anyOf": [*answers, {"type": "null"}], "x-types": dict(models)} if answers else {}
    fields = {
        "session": TEXT,
        "message": TEXT,
        "answer": known,
        "position": {"type": "integer"},
        "version": {"type": ["integer", "null"]},
    }
    schema = {"type": "object", "required": [*fields], "properties": fields}
    return {"application/json": {"schema": schema}}


def take_json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def take_one_of(handlers: Iterable[Handler], refer: Any) -> dict[str, Any]:
    """A body whose model follows from the type: `x-types` has the model and sessions of each."""
    types = {
        one.message_type: {**refer(one.body), "x-sessions": list(one.sessions) or ["*"]}
        for one in handlers
    }
    models = list({str(one["$ref"]): {"$ref": one["$ref"]} for one in types.values()}.values())
    return take_json({"anyOf": models, "x-types": types})
