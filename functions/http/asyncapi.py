"""The app's messages as AsyncAPI 3.0: what its queue takes, and what it sends, from the models.

Which types a handler sends, and with which bodies, is known only when it runs: of outputs the
document says how they travel. Servers are left out, because a namespace is a matter of settings.
https://www.asyncapi.com/docs/reference/specification/v3.0.0
"""

import re
from collections.abc import Mapping
from typing import Any

import azure.functions as func
from pydantic.json_schema import models_json_schema

from functions.http.responses import respond
from functions.http.routes import TEXT, HttpRoutes
from shared.domain import message, wire
from shared.domain.access import Right
from shared.domain.handler import Handler, Handlers
from shared.domain.outbox import AppQueues
from shared.domain.reports import FAULT_TYPE, REJECTED_TYPE, TOMBSTONE_TYPE
from shared.domain.saga.record import END_TYPE, EVENT_TYPE, kinds_of
from shared.engine.build import Services

VERSION = "1"
REFERENCE = "#/components/schemas/{model}"
# No model has a name with a dot.
ATTRIBUTES = "lockstep.attributes"


def limit_text(most: int, least: int = 0) -> dict[str, Any]:
    return TEXT | {"minLength": least, "maxLength": most}


WHOLE = {"type": "integer", "minimum": 0}
ID = limit_text(message.ID_CHARACTERS_MAX, 1)
HEADERS: Mapping[str, Mapping[str, Any]] = {
    "specversion": {"const": wire.SPEC_VERSION},
    "id": ID,
    "source": limit_text(message.SOURCE_CHARACTERS_MAX),
    "type": limit_text(message.TYPE_CHARACTERS_MAX, 1),
    "partitionkey": {**ID, "description": "the session"},
    "time": limit_text(message.TIME_CHARACTERS_MAX),
    "producergroup": limit_text(message.GROUP_CHARACTERS_MAX, 1),
    "ownerlevel": {**WHOLE, "maximum": message.OWNER_LEVEL_MAX},
    "producersequence": {**WHOLE, "maximum": message.SEQUENCE_MAX},
    "replyto": limit_text(message.QUEUE_CHARACTERS_MAX),
    "replysession": limit_text(message.ID_CHARACTERS_MAX),
    "correlationid": limit_text(message.ID_CHARACTERS_MAX),
    "reminder": limit_text(message.ID_CHARACTERS_MAX),
    wire.TRACE_HEADER: TEXT,
}
REQUIRED = ("specversion", "id", "type", "partitionkey")
REPORT = {"type": "object", "required": ["reason"], "properties": {"reason": TEXT}}
OWN: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    FAULT_TYPE: ("The copy of a message that failed for good, and why.", REPORT),
    REJECTED_TYPE: ("A delivery that no journal takes, or a piece of it, and why.", REPORT),
    TOMBSTONE_TYPE: ("It stands in the place of an output that no queue takes.", REPORT),
}
routes = HttpRoutes()


@routes.add(
    "asyncapi",
    "GET asyncapi",
    Right.LOOK,
    "The messages that the app takes and sends by queues.",
    {200: "AsyncAPI 3.0."},
)
async def answer_asyncapi(services: Services, _: func.HttpRequest) -> func.HttpResponse:
    return respond(describe_messages(services.handlers, services.readiness.delivery.queues))


def describe_messages(handlers: Handlers, queues: AppQueues) -> dict[str, Any]:
    """The whole document, for an app with these handlers and queues."""
    taken = find_messages(handlers)
    references, schemas = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(one.body for one in taken)],
        ref_template=REFERENCE,
    )
    payloads = {model: schema for (model, _), schema in references.items()}
    messages = {
        name_component(one.message_type): describe_type(one.message_type, payloads[one.body])
        | {"x-sessions": list(one.sessions) or ["*"]}
        for one in taken
    }
    own = {
        name: describe_type(name, schema) | {"summary": summary}
        for name, (summary, schema) in OWN.items()
    }
    output = {
        "summary": "What a handler sends; each handler's own code says of which type.",
        "contentType": wire.CONTENT_TYPE,
        "headers": refer("schemas", ATTRIBUTES),
        "payload": {},
    }
    channels = {
        "input": (queues.here, "receive", [*messages, TOMBSTONE_TYPE]),
        "output": (queues.outputs, "send", ["lockstep.output", TOMBSTONE_TYPE]),
        "errors": (queues.errors, "send", [FAULT_TYPE, REJECTED_TYPE]),
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Lockstep", "version": VERSION},
        "defaultContentType": wire.CONTENT_TYPE,
        "channels": {
            channel: {
                "address": address,
                "description": "A session queue of Service Bus, in every region.",
                "messages": {name: refer("messages", name) for name in names},
            }
            for channel, (address, _, names) in channels.items()
        },
        "operations": {
            channel: {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}
            for channel, (_, action, _) in channels.items()
        },
        "components": {
            "messages": {**messages, **own, "lockstep.output": output},
            "schemas": {**schemas.get("$defs", {}), ATTRIBUTES: describe_attributes()},
        },
    }


def find_messages(handlers: Handlers) -> list[Handler]:
    """The handlers of what anybody may send: nothing that is for a saga's session."""
    of_sagas = kinds_of(handlers) | {EVENT_TYPE, END_TYPE}
    return [one for kind, one in handlers.by_type.items() if kind not in of_sagas]


def name_component(message_type: str) -> str:
    """The type, or an id of it: a component's name is of letters, digits and `._-` only."""
    is_name = re.fullmatch(r"[A-Za-z0-9._-]+", message_type)
    return message_type if is_name else message.derive_id(message_type)


def describe_type(message_type: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose type is known: its application properties, and its body."""
    said = {"properties": {wire.PREFIX + "type": {"const": message_type}}}
    return {
        "name": message_type,
        "contentType": wire.CONTENT_TYPE,
        "headers": {"type": "object", "allOf": [refer("schemas", ATTRIBUTES), said]},
        "payload": payload,
    }


def describe_attributes() -> dict[str, Any]:
    """The CloudEvents attributes, as application properties; those of a number come together."""
    numbering = [wire.PREFIX + name for name in wire.NUMBERING]
    return {
        "type": "object",
        "required": [wire.PREFIX + name for name in REQUIRED],
        "properties": {wire.PREFIX + name: schema for name, schema in HEADERS.items()},
        "dependencies": dict.fromkeys(numbering, numbering),
    }


def refer(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}
