"""`<entity>/$management`: requests about an entity's messages, locks, sessions and rules.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from proton import UNDESCRIBED, Array, Data, Message, int32, symbol, timestamp

from local.servicebus.amqp.errors import (
    STATUS_BAD_REQUEST,
    STATUS_OF_CONDITION,
    AmqpError,
    ErrorCondition,
)
from local.servicebus.amqp.message_format import (
    Undecodable,
    identify,
    read_message,
    write_delivery,
)
from local.servicebus.broker import Broker, ClientConnection, ClientOperation
from local.servicebus.entities.entity import MessagingEntity
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import Queue
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.store import SessionState
from local.servicebus.links.outgoing import encode_properties, read_dead_letter_reason
from local.servicebus.links.request_response import SendResponse
from local.servicebus.message import Disposition, Settlement, StoredMessage
from local.servicebus.rules import RuleSet, UnsupportedRule, read_rule, write_rule

LAST_UPDATED_ANY = 253_402_300_799_000  # the end of the year 9999: all sessions
COUNT_MAX = 2**31 - 1
STATUS_OK, STATUS_NO_CONTENT = 200, 204
LISTS = ("messages", "sessions-ids")  # a response with an empty one has no content
SETTLEMENTS = {
    "completed": Settlement.COMPLETE,
    "abandoned": Settlement.ABANDON,
    "defered": Settlement.DEFER,  # the service's own spelling
    "suspended": Settlement.DEAD_LETTER,
}

type RequestBody = dict[str, Any]
type PerformRequest = Callable[[RequestBody, float], RequestBody]


@dataclass(frozen=True, slots=True)
class ManagementOperation:
    """A request: the name it is counted under, what does it, and how its lock can be lost."""

    name: str
    perform: PerformRequest
    expire_lock: PerformRequest | None = None


class ManagementNode:
    def __init__(
        self, entity: MessagingEntity, broker: Broker, connection: ClientConnection
    ) -> None:
        self._entity = entity
        self._broker = broker
        self._connection = connection
        expire = self._expire_session_lock
        self._operations = {
            "schedule-message": ManagementOperation("schedule", self._schedule),
            "cancel-scheduled-message": ManagementOperation("cancel-scheduled", self._cancel),
            "peek-message": ManagementOperation("peek", self._peek),
            "renew-lock": ManagementOperation("renew-lock", self._renew_locks, self._expire_locks),
            "renew-session-lock": ManagementOperation(
                "renew-session-lock", self._renew_session_lock, expire
            ),
            "get-session-state": ManagementOperation("get-session-state", self._get_state, expire),
            "set-session-state": ManagementOperation("set-session-state", self._set_state, expire),
            "receive-by-sequence-number": ManagementOperation(
                "receive-deferred", self._receive_deferred
            ),
            "get-message-sessions": ManagementOperation("list-sessions", self._list_sessions),
            "add-rule": ManagementOperation("add-rule", self._add_rule),
            "remove-rule": ManagementOperation("remove-rule", self._remove_rule),
            "enumerate-rules": ManagementOperation("list-rules", self._list_rules),
        }

    def handle_request(self, request: Message, send_response: SendResponse) -> None:
        """Do what is asked, or respond by name that it is not supported."""
        given: Any = request.properties
        properties: RequestBody = given if isinstance(given, dict) else {}
        name = str(properties.get("operation", "")).removeprefix("com.microsoft:")
        body = request.body if isinstance(request.body, dict) else {}
        operation = self._operations.get(name)
        settlement = SETTLEMENTS.get(str(body.get("disposition-status")))
        if name == "update-disposition" and settlement is not None:
            operation = ManagementOperation(
                settlement.value,
                lambda body, now: self._settle(settlement, body, now),
                self._expire_locks,
            )
        if operation is None:
            operation = ManagementOperation("unknown", lambda _, __: refuse_operation(name))
        expire_lock = operation.expire_lock
        self._broker.interceptor.execute(
            ClientOperation(
                operation.name,
                self._entity.name,
                lambda: self._perform(operation.perform, body),
                lambda result: send_response(write_response(result)),
                self._connection,
                expire_lock=expire_lock and (lambda: self._perform(expire_lock, body)),
            )
        )

    def _perform(self, perform: PerformRequest, body: RequestBody) -> RequestBody:
        now = self._broker.now()
        try:
            with self._entity.dispatching(now):
                return perform(body, now)
        except UnsupportedRule as error:
            raise AmqpError(ErrorCondition.NOT_IMPLEMENTED, str(error)) from error
        except (KeyError, TypeError, ValueError, OverflowError, Undecodable) as error:
            description = f"malformed request: {error!r}"
            raise AmqpError(ErrorCondition.ARGUMENT_ERROR, description) from error

    def _schedule(self, body: RequestBody, now: float) -> RequestBody:
        if not self._entity.takes_messages:
            kind = self._entity.kind.value
            raise AmqpError(ErrorCondition.NOT_ALLOWED, f"Nothing can be sent to {kind}")
        encoded = [read_binary(entry["message"]) for entry in body["messages"]]
        messages = [identify(read_message(one)) for one in encoded]
        numbers = self._entity.send(messages, now)
        return {"sequence-numbers": plain_array(Data.LONG, numbers)}

    def _cancel(self, body: RequestBody, now: float) -> RequestBody:  # noqa: ARG002
        self._entity.cancel_scheduled(elements(body["sequence-numbers"]))
        return {}

    def _peek(self, body: RequestBody, now: float) -> RequestBody:  # noqa: ARG002
        first, count = int(body["from-sequence-number"]), read_count(body["message-count"])
        found = self._entity.peek(first, count, body.get("session-id"))
        return {"messages": [{"message": write_delivery(stored)} for stored in found]}

    def _receive_deferred(self, body: RequestBody, now: float) -> RequestBody:
        queue, numbers = self._require_queue(), elements(body["sequence-numbers"])
        found: list[StoredMessage] = []
        if isinstance(queue, SessionQueue):
            session_id = body["session-id"]
            holder = queue.holder_on(self._connection, session_id)
            found = queue.receive_deferred(numbers, session_id, holder)
        elif isinstance(queue, PlainQueue):
            found = queue.receive_deferred(numbers, now)
        messages: list[RequestBody] = [
            {"lock-token": stored.lock.token, "message": write_delivery(stored)}
            for stored in found
            if stored.lock is not None
        ]
        if int(body.get("receiver-settle-mode", 1)) == 0:  # receive and delete
            for message in messages:
                queue.settle(message["lock-token"], Disposition(Settlement.COMPLETE), now)
        return {"messages": messages}

    def _settle(self, settlement: Settlement, body: RequestBody, now: float) -> RequestBody:
        texts = body.get("deadletter-reason"), body.get("deadletter-description")
        changes = encode_properties(body.get("properties-to-modify") or {})
        disposition = Disposition(settlement, read_dead_letter_reason(*texts), changes)
        for token in elements(body["lock-tokens"]):
            self._require_queue().settle(UUID(str(token)), disposition, now)
        return {}

    def _renew_locks(self, body: RequestBody, now: float) -> RequestBody:
        if not isinstance(self._entity, PlainQueue):
            raise AmqpError(ErrorCondition.NOT_ALLOWED, "Renew the lock of the session instead")
        tokens = [UUID(str(token)) for token in elements(body["lock-tokens"])]
        times = self._entity.renew(tokens, now)
        return {"expirations": plain_array(Data.TIMESTAMP, map(milliseconds, times))}

    def _expire_locks(self, body: RequestBody, now: float) -> RequestBody:
        for token in elements(body["lock-tokens"]):
            self._require_queue().expire_lock(UUID(str(token)), now)
        return {}

    def _expire_session_lock(self, body: RequestBody, now: float) -> RequestBody:
        self._require_sessions().expire_session_lock(body["session-id"], now)
        return {}

    def _renew_session_lock(self, body: RequestBody, now: float) -> RequestBody:
        queue, session_id = self._require_sessions(), body["session-id"]
        holder = queue.holder_on(self._connection, session_id)
        return {"expiration": milliseconds(queue.renew(session_id, holder, now))}

    def _get_state(self, body: RequestBody, now: float) -> RequestBody:  # noqa: ARG002
        queue, session_id = self._require_sessions(), body["session-id"]
        holder = queue.holder_on(self._connection, session_id)
        state = queue.held_session(session_id, holder).state
        return {"session-state": None if state is None else state.content}

    def _set_state(self, body: RequestBody, now: float) -> RequestBody:
        queue, session_id = self._require_sessions(), body["session-id"]
        content = body["session-state"]
        holder = queue.holder_on(self._connection, session_id)
        state = None if content is None else SessionState(read_binary(content), now)
        queue.set_state(session_id, holder, state)
        return {}

    def _list_sessions(self, body: RequestBody, now: float) -> RequestBody:  # noqa: ARG002
        after = int(body["last-updated-time"])
        skip, top = read_count(body["skip"]), read_count(body["top"])
        updated_after = None if after >= LAST_UPDATED_ANY else after / 1000
        found = self._require_sessions().session_ids(updated_after)[skip : skip + top]
        names: Any = plain_array(Data.STRING, found) if found else []
        return {"skip": int32(skip + len(found)), "sessions-ids": names}

    def _add_rule(self, body: RequestBody, now: float) -> RequestBody:  # noqa: ARG002
        self._require_rules().add(read_rule(str(body["rule-name"]), body["rule-description"]))
        return {}

    def _remove_rule(self, body: RequestBody, now: float) -> RequestBody:  # noqa: ARG002
        self._require_rules().remove(str(body["rule-name"]))
        return {}

    def _list_rules(self, body: RequestBody, now: float) -> RequestBody:  # noqa: ARG002
        first, count = read_count(body.get("skip") or 0), read_count(body["top"])
        rules = self._require_rules().rules[first : first + count]
        return {"rules": [write_rule(rule) for rule in rules]}

    def _require_queue(self) -> Queue:
        if not isinstance(self._entity, Queue):
            raise AmqpError(ErrorCondition.NOT_ALLOWED, f"{self._entity.name} holds no messages")
        return self._entity

    def _require_sessions(self) -> SessionQueue:
        if not isinstance(self._entity, SessionQueue):
            raise AmqpError(ErrorCondition.NOT_ALLOWED, f"{self._entity.name} has no sessions")
        return self._entity

    def _require_rules(self) -> RuleSet:
        if (rules := self._require_queue().rules) is None:
            description = f"{self._entity.name} is not a subscription"
            raise AmqpError(ErrorCondition.NOT_ALLOWED, description)
        return rules


def refuse_operation(name: str) -> RequestBody:
    raise AmqpError(ErrorCondition.NOT_IMPLEMENTED, f"the operation {name!r} is not honoured")


def write_response(result: RequestBody | AmqpError) -> Message:
    if isinstance(result, AmqpError):
        properties = {
            "statusCode": int32(STATUS_OF_CONDITION.get(result.condition, STATUS_BAD_REQUEST)),
            "statusDescription": result.description,
            "errorCondition": symbol(result.condition.value),
        }
        return Message(properties=properties)
    is_empty = any(key in result and not elements(result[key]) for key in LISTS)
    status = STATUS_NO_CONTENT if is_empty else STATUS_OK
    properties = {"statusCode": int32(status), "statusDescription": "OK"}
    return Message(body=result, properties=properties)


def read_binary(value: Any) -> bytes:
    """The bytes of a binary; raises TypeError. Of a number `bytes` would make so many zeros."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{value!r} is no binary")
    return bytes(value)


def read_count(value: Any) -> int:
    """A whole number that an AMQP int can hold, and not below zero; raises ValueError."""
    count = int(value)
    if not 0 <= count <= COUNT_MAX:
        raise ValueError(f"{value!r} is no count")
    return count


def elements(value: Any) -> list[Any]:
    return list(value.elements if isinstance(value, Array) else value)


def plain_array(kind: int, values: Iterable[Any]) -> Array:
    """An array without a descriptor; one whose descriptor is null is more than .NET can read."""
    return Array(cast(Any, UNDESCRIBED), kind, *values)


def milliseconds(seconds: float) -> timestamp:
    return timestamp(int(seconds * 1000))
