"""Responses of `$management`: a status, and a body if there is something to say."""

from typing import Any

from proton import Array, Message, int32, timestamp

from local.servicebus.message import StoredMessage
from local.servicebus.refusal import Condition, Refused
from local.servicebus.sections import write_delivery

STATUS_OK, STATUS_NO_CONTENT = 200, 204
STATUS_OF = {
    Condition.UNAUTHORIZED: 401,
    Condition.NOT_FOUND: 404,
    Condition.MESSAGE_NOT_FOUND: 404,
    Condition.TIMEOUT: 408,
    Condition.ENTITY_ALREADY_EXISTS: 409,
    Condition.MESSAGE_LOCK_LOST: 410,
    Condition.SESSION_LOCK_LOST: 410,
    Condition.INTERNAL_ERROR: 500,
    Condition.NOT_IMPLEMENTED: 501,
    Condition.SERVER_BUSY: 503,
}
STATUS_BAD_REQUEST = 400
LISTS = ("messages", "sessions-ids")  # an answer with an empty one has no content

type Body = dict[str, Any]


def write_response(result: Body | Refused) -> Message:
    """The response to a request."""
    if isinstance(result, Refused):
        properties = {
            "statusCode": int32(STATUS_OF.get(result.condition, STATUS_BAD_REQUEST)),
            "statusDescription": result.description,
            "errorCondition": result.condition.value,
        }
        return Message(properties=properties)
    empty = any(key in result and not elements(result[key]) for key in LISTS)
    status = STATUS_NO_CONTENT if empty else STATUS_OK
    properties = {"statusCode": int32(status), "statusDescription": "OK"}
    return Message(body=result, properties=properties)


def locked(stored: StoredMessage) -> Body:
    """A message that was locked by request, as it is answered."""
    token = None if stored.lock is None else stored.lock.token
    return {"lock-token": token, "message": write_delivery(stored)}


def elements(value: Any) -> list[Any]:
    """The elements of an AMQP array or list."""
    return list(value.elements if isinstance(value, Array) else value)


def milliseconds(seconds: float) -> timestamp:
    """A time as AMQP has it."""
    return timestamp(int(seconds * 1000))
