"""`<entity>/$management`: requests about an entity's messages, locks and sessions.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from proton import Array, Data, Message, int32, timestamp

from local.servicebus.broker import Broker
from local.servicebus.encoding import Undecodable
from local.servicebus.entity import Entity, PlainEntity, SessionEntity
from local.servicebus.gate import Attempt, Wire
from local.servicebus.message import DeadLetter, Settlement, StoredMessage
from local.servicebus.refusal import Condition, Refused
from local.servicebus.requests import Respond
from local.servicebus.sections import read_message, write_delivery

STATUS_OK, STATUS_NO_CONTENT = 200, 204
STATUS_OF = {
    Condition.NOT_FOUND: 404,
    Condition.MESSAGE_NOT_FOUND: 404,
    Condition.MESSAGE_LOCK_LOST: 410,
    Condition.SESSION_LOCK_LOST: 410,
    Condition.NOT_IMPLEMENTED: 501,
    Condition.SERVER_BUSY: 503,
}
STATUS_BAD_REQUEST = 400

SETTLEMENTS = {
    "completed": Settlement.COMPLETE,
    "abandoned": Settlement.ABANDON,
    "defered": Settlement.DEFER,  # the service's own spelling
    "suspended": Settlement.DEAD_LETTER,
}

type Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """A request: the name it is counted under, and what does it."""

    counted_as: str
    perform: Callable[[Body, float], Body]


class Management:
    """One client's requests about one entity."""

    def __init__(self, entity: Entity, broker: Broker, wire: Wire) -> None:
        self._entity = entity
        self._broker = broker
        self._wire = wire
        self._operations = {
            "schedule-message": Operation("schedule", self._schedule),
            "cancel-scheduled-message": Operation("cancel-scheduled", self._cancel),
            "peek-message": Operation("peek", self._peek),
            "renew-lock": Operation("renew-lock", self._renew_locks),
            "renew-session-lock": Operation("renew-session-lock", self._renew_session),
            "get-session-state": Operation("get-session-state", self._get_state),
            "set-session-state": Operation("set-session-state", self._set_state),
            "receive-by-sequence-number": Operation("receive-deferred", self._receive_deferred),
        }

    def respond(self, request: Message, respond: Respond) -> None:
        """Do what is asked, or say by name that it is not honoured."""
        properties: Body = dict(request.properties or {})
        name = str(properties.get("operation", ""))
        body = request.body if isinstance(request.body, dict) else {}
        operation = self._find(name.removeprefix("com.microsoft:"), body)
        self._broker.gate.run(
            Attempt(
                operation.counted_as,
                lambda: self._perform(operation, body),
                lambda result: respond(write_response(result)),
                self._wire,
            )
        )

    def _find(self, name: str, body: Body) -> Operation:
        if name == "update-disposition":
            settlement = SETTLEMENTS.get(str(body.get("disposition-status")))
            if settlement is not None:
                return Operation(
                    settlement.value, lambda body, now: self._settle(settlement, body, now)
                )
        return self._operations.get(name) or Operation("unknown", lambda _, __: refuse(name))

    def _perform(self, operation: Operation, body: Body) -> Body:
        now = self._broker.now()
        try:
            return self._entity.act(now, lambda: operation.perform(body, now))
        except (KeyError, TypeError, ValueError, Undecodable) as error:
            raise Refused(Condition.ARGUMENT_ERROR, f"malformed request: {error!r}") from error

    # Messages

    def _schedule(self, body: Body, now: float) -> Body:
        if self._entity.takes_no_messages:
            raise Refused(Condition.NOT_ALLOWED, "A dead-letter queue cannot be sent to")
        messages = [read_message(bytes(entry["message"])) for entry in body["messages"]]
        numbers = self._entity.store.send(messages, now)
        return {"sequence-numbers": Array(None, Data.LONG, *numbers)}

    def _cancel(self, body: Body, now: float) -> Body:  # noqa: ARG002
        self._entity.store.cancel(elements(body["sequence-numbers"]))
        return {}

    def _peek(self, body: Body, now: float) -> Body:  # noqa: ARG002
        found = self._entity.store.peek(
            int(body["from-sequence-number"]), int(body["message-count"]), body.get("session-id")
        )
        return {"messages": [{"message": write_delivery(stored)} for stored in found]}

    def _receive_deferred(self, body: Body, now: float) -> Body:
        numbers = elements(body["sequence-numbers"])
        match self._entity:
            case SessionEntity() as entity:
                session_id = body["session-id"]
                holder = entity.holder_on(self._wire, session_id)
                found = entity.queue.receive_deferred(numbers, session_id, holder)
            case PlainEntity() as entity:
                found = entity.queue.receive_deferred(numbers, now)
            case _:
                found = []
        answer = {"messages": [locked(stored) for stored in found]}
        if int(body.get("receiver-settle-mode", 1)) == 0:
            for stored in answer["messages"]:
                self._entity.store.settle(stored["lock-token"], Settlement.COMPLETE, now)
        return answer

    # Locks

    def _settle(self, settlement: Settlement, body: Body, now: float) -> Body:
        why = DeadLetter(body.get("deadletter-reason"), body.get("deadletter-description"))
        for token in elements(body["lock-tokens"]):
            self._entity.store.settle(UUID(str(token)), settlement, now, why)
        return {}

    def _renew_locks(self, body: Body, now: float) -> Body:
        if not isinstance(self._entity, PlainEntity):
            raise Refused(Condition.NOT_ALLOWED, "Renew the lock of the session instead")
        tokens = [UUID(str(token)) for token in elements(body["lock-tokens"])]
        times = self._entity.queue.renew(tokens, now)
        return {"expirations": Array(None, Data.TIMESTAMP, *map(milliseconds, times))}

    # Sessions

    def _renew_session(self, body: Body, now: float) -> Body:
        entity, session_id = self._session_entity(), body["session-id"]
        holder = entity.holder_on(self._wire, session_id)
        return {"expiration": milliseconds(entity.queue.renew(session_id, holder, now))}

    def _get_state(self, body: Body, now: float) -> Body:  # noqa: ARG002
        entity, session_id = self._session_entity(), body["session-id"]
        holder = entity.holder_on(self._wire, session_id)
        return {"session-state": entity.queue.held(session_id, holder).state}

    def _set_state(self, body: Body, now: float) -> Body:  # noqa: ARG002
        entity, session_id = self._session_entity(), body["session-id"]
        state = body["session-state"]
        holder = entity.holder_on(self._wire, session_id)
        entity.queue.set_state(session_id, holder, None if state is None else bytes(state))
        return {}

    def _session_entity(self) -> SessionEntity:
        if not isinstance(self._entity, SessionEntity):
            raise Refused(Condition.NOT_ALLOWED, f"{self._entity.name} has no sessions")
        return self._entity


def refuse(name: str) -> Body:
    """There is no such operation."""
    raise Refused(Condition.NOT_IMPLEMENTED, f"the operation {name!r} is not honoured")


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


def write_response(result: Body | Refused) -> Message:
    """The response to a request: a status, and a body if there is something to say."""
    if isinstance(result, Refused):
        properties = {
            "statusCode": int32(STATUS_OF.get(result.condition, STATUS_BAD_REQUEST)),
            "statusDescription": result.description,
            "errorCondition": result.condition.value,
        }
        return Message(properties=properties)
    empty = result.get("messages") == []
    status = STATUS_NO_CONTENT if empty else STATUS_OK
    properties = {"statusCode": int32(status), "statusDescription": "OK"}
    return Message(body=result, properties=properties)
