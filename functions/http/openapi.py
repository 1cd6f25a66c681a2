"""The HTTP API as OpenAPI 3.1, with the messages that this app takes: made from routes and models.

The operations page is no part of it. What answers hold is told in docs/reference.md, by field.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import azure.functions as func
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from functions.http.access import add_route
from functions.http.error_queue import SKIP_MAX, RepeatBody
from functions.http.operate import STANDSTILLS_MAX, ResolutionBody
from functions.http.requests import IN_QUERY
from functions.http.responses import respond
from shared.domain.access import Right
from shared.domain.handler import Handler, Handlers
from shared.domain.saga.plan import SagaState
from shared.domain.saga.record import END_TYPE, EVENT_TYPE, kinds_of
from shared.domain.standstill import StandstillKind
from shared.engine.build import Services

VERSION = "1"
REFERENCE = "#/components/schemas/{model}"
TEXT = {"type": "string"}
JSON = {"content": {"application/json": {"schema": {"type": "object"}}}}
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


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """One method of a route: its query, what it takes, and the status of each answer."""

    function: str
    method: str
    route: str
    summary: str
    answers: Mapping[int, str]
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs_key: bool = True


LIMIT = {"type": "integer", "minimum": 1, "maximum": STANDSTILLS_MAX}
REFUSED = {400: "What was asked makes no sense."}
OPERATIONS = (
    HttpOperation(
        "ingest",
        "post",
        "sessions/{session}/messages",
        "Accept a message: number it, and publish it to every region.",
        {202: "It is safe.", **REFUSED, 403: "Not for this session.", 409: "Other content."},
        {"type": TEXT, "time": {"type": "string", "format": "date-time"}},
    ),
    HttpOperation(
        "sessions",
        "get",
        "sessions",
        "Sessions by name, page by page, with what the newest entry of each says.",
        {200: "A page, the name that the next one begins behind, its request units.", **REFUSED},
        {"prefix": TEXT, "limit": LIMIT, "after": TEXT},
    ),
    HttpOperation(
        "session",
        "get",
        "sessions/{session}",
        "A session: its newest entry, its state, its fault, and what stands still.",
        {200: "The session.", **REFUSED, 404: "There is nothing of it."},
    ),
    HttpOperation(
        "resolve",
        "post",
        "sessions/{session}/resolution",
        "Carry out a person's decision about what stands still.",
        {200: "The entry that records it.", **REFUSED, 409: "It does not stand still any more."},
    ),
    HttpOperation(
        "faults",
        "get",
        "faults",
        "What stands still in any session, the newest first, page by page.",
        {200: "A page, and where the next one begins.", **REFUSED},
        {
            "kind": {**TEXT, "description": f"some of {', '.join(StandstillKind)}, with commas"},
            "limit": LIMIT,
            "after": TEXT,
        },
    ),
    HttpOperation(
        "errors",
        "get",
        "errors",
        "What this region's error queue holds; nothing of it is taken.",
        {200: "A page, and what to ask for next.", **REFUSED},
        {
            "session": TEXT,
            "after": {"type": "integer", "minimum": 0},
            "skip": {"type": "integer", "minimum": 0, "maximum": SKIP_MAX},
            "limit": LIMIT,
        },
    ),
    HttpOperation(
        "send_again",
        "post",
        "errors/again",
        "Send a rejected delivery of the error queue again, once.",
        {
            200: "The message that was sent.",
            **REFUSED,
            409: "It is not there, or was sent by another decision.",
        },
    ),
    HttpOperation(
        "start_saga",
        "post",
        "sagas/{key}",
        "Start a saga; to start it again changes nothing.",
        {202: "It has started, now or before.", **REFUSED, 409: "Other content, or refused."},
        {"type": TEXT},
    ),
    HttpOperation(
        "show_saga",
        "get",
        "sagas/{key}",
        "A saga: where it stands, with its steps and waits.",
        {200: "The saga.", **REFUSED, 404: "There is no such saga."},
    ),
    HttpOperation(
        "tell_saga",
        "post",
        "sagas/{key}/events/{event}",
        "Keep an event for a saga.",
        {202: "It is kept.", **REFUSED, 409: "It comes too late."},
    ),
    HttpOperation(
        "cancel_saga",
        "post",
        "sagas/{key}/cancel",
        "Make a saga turn back.",
        {202: "It will.", **REFUSED, 409: "There is no way back."},
    ),
    HttpOperation(
        "list_sagas",
        "get",
        "sagas",
        "The sagas that this region's task hub knows.",
        {200: "The sagas.", **REFUSED},
        {"state": {"type": "string", "enum": list(SagaState)}},
    ),
    HttpOperation(
        "health",
        "get",
        "health",
        "Whether this region can read the journal, and what the app found missing.",
        {200: "It can."},
        needs_key=False,
    ),
    HttpOperation("openapi", "get", "openapi", "This document.", {200: "OpenAPI 3.1."}),
    HttpOperation(
        "asyncapi",
        "get",
        "asyncapi",
        "The messages that the app takes and sends by queues.",
        {200: "AsyncAPI 3.0."},
    ),
)


def build_openapi_blueprint(services: Services) -> func.Blueprint:
    """`GET /api/openapi`."""
    bp = func.Blueprint()

    @add_route(bp, services, "GET", "openapi", Right.LOOK)
    async def openapi(request: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001
        return respond(describe_api(services.handlers))

    return bp


def describe_api(handlers: Handlers) -> dict[str, Any]:
    """The whole document, for an app with these handlers."""
    sagas = [handlers.by_type[kind] for kind in sorted(kinds_of(handlers))]
    messages = find_messages(handlers)
    own: list[type[BaseModel]] = [ResolutionBody, RepeatBody]
    models = own + [one.body for one in (*messages, *sagas)]
    references, schemas = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], ref_template=REFERENCE
    )

    def refer(model: type[BaseModel]) -> dict[str, Any]:
        return references[model, "validation"]

    bodies = {
        "resolve": take_json(refer(ResolutionBody)),
        "send_again": take_json(refer(RepeatBody)),
        "ingest": take_one_of(messages, refer),
        "start_saga": take_one_of(sagas, refer),
    }
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        types = {"ingest": messages, "start_saga": sagas}.get(one.function)
        if types == []:
            continue  # the app takes none of them
        described = describe_operation(one)
        for parameter in described["parameters"]:
            if parameter["name"] == "type" and types is not None:
                named = sorted(handler.message_type for handler in types)
                parameter |= {"required": True, "schema": {"type": "string", "enum": named}}
        if one.function in bodies:
            described["requestBody"] = bodies[one.function]
        paths.setdefault(f"/{one.route}", {})[one.method] = described
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


def find_messages(handlers: Handlers) -> list[Handler]:
    """The handlers of what anybody may send: nothing that is for a saga's session."""
    of_sagas = kinds_of(handlers) | {EVENT_TYPE, END_TYPE}
    return [one for kind, one in handlers.by_type.items() if kind not in of_sagas]


def describe_operation(one: HttpOperation) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", one.route)
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        | ({} if name == "event" else {"description": SLASH.format(name=name)})
        for name in names
    ]
    in_query = [{"name": name, "in": "query", "schema": one.query[name]} for name in one.query]
    key = {"name": "Idempotency-Key", "in": "header", "required": True, "schema": TEXT}
    answers: dict[str, Any] = {
        str(status): (PROBLEM if status >= 400 else JSON) | {"description": text}
        for status, text in one.answers.items()
    }
    return {
        "operationId": one.function,
        "summary": one.summary,
        "parameters": [*in_path, *in_query, *([key] if one.function == "ingest" else [])],
        "responses": {**answers, "default": PROBLEM},
        "security": [{"key": []}] if one.needs_key else [],
    }


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
