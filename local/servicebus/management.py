"""`<entity>/$management`: requests about an entity's messages, locks and sessions.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from proton import Array, Data, Message, int32

from local.servicebus.broker import Broker
from local.servicebus.encoding import Undecodable
from local.servicebus.entity import Entity, PlainEntity, QueueEntity, SessionEntity
from local.servicebus.gate import Attempt, Wire
from local.servicebus.message import DeadLetter, Settlement
from local.servicebus.outlet import text
from local.servicebus.refusal import Condition, Refused
from local.servicebus.requests import Respond
from local.servicebus.responses import Body, elements, locked, milliseconds, write_response
from local.servicebus.rules import NotHonoured
from local.servicebus.rules_wire import read_rule, write_rule
from local.servicebus.sections import read_message, write_delivery
from local.servicebus.topic import Subscription

LAST_UPDATED_ANY = 253_402_300_799_000  # the end of the year 9999: any session with messages

SETTLEMENTS = {
    "completed": Settlement.COMPLETE,
    "abandoned": Settlement.ABANDON,
    "defered": Settlement.DEFER,  # the service's own spelling
    "suspended": Settlement.DEAD_LETTER,
}


type Perform = Callable[[Body, float], Body]


@dataclass(frozen=True, slots=True)
class Operation:
    """A request: the name it is counted under, what does it, and how to lose its lock, if any."""

    counted_as: str
    perform: Perform
    lose_lock: Perform | None = None


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
            "renew-lock": Operation("renew-lock", self._renew_locks, self._lose_locks),
            "renew-session-lock": Operation(
                "renew-session-lock", self._renew_session, self._lose_session
            ),
            "get-session-state": Operation(
                "get-session-state", self._get_state, self._lose_session
            ),
            "set-session-state": Operation(
                "set-session-state", self._set_state, self._lose_session
            ),
            "receive-by-sequence-number": Operation("receive-deferred", self._receive_deferred),
            "get-message-sessions": Operation("list-sessions", self._list_sessions),
            "add-rule": Operation("add-rule", self._add_rule),
            "remove-rule": Operation("remove-rule", self._remove_rule),
            "enumerate-rules": Operation("list-rules", self._list_rules),
        }

    def respond(self, request: Message, respond: Respond) -> None:
        """Do what is asked, or say by name that it is not honoured."""
        properties: Body = dict(request.properties or {})
        name = str(properties.get("operation", ""))
        body = request.body if isinstance(request.body, dict) else {}
        operation = self._find(name.removeprefix("com.microsoft:"), body)
        lose = operation.lose_lock
        self._broker.gate.run(
            Attempt(
                operation.counted_as,
                lambda: self._perform(operation.perform, body),
                lambda result: respond(write_response(result)),
                self._wire,
                lose_lock=None if lose is None else lambda: self._perform(lose, body),
            )
        )

    def _find(self, name: str, body: Body) -> Operation:
        if name == "update-disposition":
            settlement = SETTLEMENTS.get(str(body.get("disposition-status")))
            if settlement is not None:
                return Operation(
                    settlement.value,
                    lambda body, now: self._settle(settlement, body, now),
                    self._lose_locks,
                )
        return self._operations.get(name) or Operation("unknown", lambda _, __: refuse(name))

    def _perform(self, perform: Perform, body: Body) -> Body:
        now = self._broker.now()
        try:
            return self._entity.act(now, lambda: perform(body, now))
        except NotHonoured as error:
            raise Refused(Condition.NOT_IMPLEMENTED, str(error)) from error
        except (KeyError, TypeError, ValueError, Undecodable) as error:
            raise Refused(Condition.ARGUMENT_ERROR, f"malformed request: {error!r}") from error

    # Messages

    def _schedule(self, body: Body, now: float) -> Body:
        if not self._entity.takes_messages:
            role = self._entity.role.value
            raise Refused(Condition.NOT_ALLOWED, f"Nothing can be sent to {role}")
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
                raise Refused(Condition.NOT_ALLOWED, f"{self._entity.name} holds no messages")
        answer = {"messages": [locked(stored) for stored in found]}
        if int(body.get("receiver-settle-mode", 1)) == 0:
            for stored in answer["messages"]:
                self._queue_entity().store.settle(stored["lock-token"], Settlement.COMPLETE, now)
        return answer

    # Locks

    def _settle(self, settlement: Settlement, body: Body, now: float) -> Body:
        why = DeadLetter(
            text(body.get("deadletter-reason")), text(body.get("deadletter-description"))
        )
        for token in elements(body["lock-tokens"]):
            self._queue_entity().store.settle(UUID(str(token)), settlement, now, why)
        return {}

    def _renew_locks(self, body: Body, now: float) -> Body:
        if not isinstance(self._entity, PlainEntity):
            raise Refused(Condition.NOT_ALLOWED, "Renew the lock of the session instead")
        tokens = [UUID(str(token)) for token in elements(body["lock-tokens"])]
        times = self._entity.queue.renew(tokens, now)
        return {"expirations": Array(None, Data.TIMESTAMP, *map(milliseconds, times))}

    def _lose_locks(self, body: Body, now: float) -> Body:
        for token in elements(body["lock-tokens"]):
            self._queue_entity().store.lose_lock(UUID(str(token)), now)
        return {}

    def _lose_session(self, body: Body, now: float) -> Body:
        self._session_entity().queue.lose_session(body["session-id"], now)
        return {}

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

    def _list_sessions(self, body: Body, now: float) -> Body:  # noqa: ARG002
        if int(body["last-updated-time"]) < LAST_UPDATED_ANY:
            raise NotHonoured("sessions cannot be listed by the time of their last update")
        skip, top = int(body["skip"]), int(body["top"])
        found = self._session_entity().queue.session_ids()[skip : skip + top]
        names: Any = Array(None, Data.STRING, *found) if found else []
        return {"skip": int32(skip + len(found)), "sessions-ids": names}

    # Rules

    def _add_rule(self, body: Body, now: float) -> Body:  # noqa: ARG002
        self._subscription().add(read_rule(str(body["rule-name"]), body["rule-description"]))
        return {}

    def _remove_rule(self, body: Body, now: float) -> Body:  # noqa: ARG002
        self._subscription().remove(str(body["rule-name"]))
        return {}

    def _list_rules(self, body: Body, now: float) -> Body:  # noqa: ARG002
        first, count = int(body.get("skip") or 0), int(body["top"])
        rules = self._subscription().rules[first : first + count]
        return {"rules": [write_rule(rule) for rule in rules]}

    # Of what kind the entity must be

    def _subscription(self) -> Subscription:
        subscription = self._queue_entity().subscription
        if subscription is None:
            raise Refused(Condition.NOT_ALLOWED, f"{self._entity.name} is not a subscription")
        return subscription

    def _queue_entity(self) -> QueueEntity:
        if not isinstance(self._entity, QueueEntity):
            raise Refused(Condition.NOT_ALLOWED, f"{self._entity.name} holds no messages")
        return self._entity

    def _session_entity(self) -> SessionEntity:
        if not isinstance(self._entity, SessionEntity):
            raise Refused(Condition.NOT_ALLOWED, f"{self._entity.name} has no sessions")
        return self._entity


def refuse(name: str) -> Body:
    """There is no such operation."""
    raise Refused(Condition.NOT_IMPLEMENTED, f"the operation {name!r} is not honoured")
