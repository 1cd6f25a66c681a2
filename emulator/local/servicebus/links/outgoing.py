"""Links over which clients receive: delivery, credit, drain and settlement.

A link that receives from a session waits for one, then holds its lock.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cproton import pn_link_flow  # type: ignore[import-untyped]
from proton import Array, Data, Delivery, Endpoint, Link, Sender, symbol

from local.faults import Action, Fault
from local.servicebus.amqp.errors import UNREADABLE, AmqpError, ErrorCondition
from local.servicebus.amqp.frames import NO_TAG
from local.servicebus.amqp.message_format import write_delivery
from local.servicebus.broker import Broker, ClientConnection, ClientOperation
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import Queue
from local.servicebus.entities.session_queue import MessageSession, SessionQueue
from local.servicebus.links.attach import (
    SESSION_FILTER,
    TIMEOUT,
    read_filters,
    read_properties,
)
from local.servicebus.links.endpoint import LinkEndpoint, refuse_link, write_condition
from local.servicebus.message import (
    DeadLetterReason,
    Disposition,
    Settlement,
    StoredMessage,
)

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide
LOCKED_UNTIL = symbol("com.microsoft:locked-until-utc")
WAIT_SECONDS_DEFAULT = 60.0  # when the client does not name a timeout
TICKS_AT_1970 = 621_355_968_000_000_000  # .NET counts 100 ns since the year 1
TICKS_PER_SECOND = 10_000_000


@dataclass(eq=False)
class OutgoingLink[QueueKind: Queue](LinkEndpoint):
    _link: Sender
    _queue: QueueKind
    _broker: Broker
    connection: ClientConnection

    def transfer(self, stored: StoredMessage, now: float) -> None:
        """Deliver a locked message, unless a fault prevents it."""
        if stored.lock is None:
            return
        token = stored.lock.token
        match self._broker.interceptor.take_fault("deliver", self._queue.name):
            case Fault(action=Action.DOWN | Action.DROP_CONNECTION):
                self.connection.abort()
                return
            case Fault(action=Action.LOSE_LOCK, seconds=seconds):
                self._broker.call_later(seconds, lambda: self._expire_lock(token))
            case Fault(action=Action.DUPLICATE):
                stored.redeliver_once = True
        # A client that receives and deletes has its deliveries settled by the sender, and never
        # updates them (part 2, section 2.8.2). It is told of no lock.
        is_settled = self._link.remote_snd_settle_mode == Link.SND_SETTLED
        if is_settled:
            self._queue.settle(token, Disposition(Settlement.COMPLETE), now)
        payload = write_delivery(stored)
        # SDKs take the tag for the lock token, in .NET's byte order of a GUID. Proton's binding
        # declares str and takes bytes as they are; a lock token is no UTF-8.
        tag = NO_TAG if is_settled else token.bytes_le
        delivery = self._link.delivery(tag)  # type: ignore[arg-type]
        delivery.lock_token = token
        self._link.stream(payload)
        self._link.advance()
        if is_settled:
            delivery.settle()
        self._broker.interceptor.count("deliver", size=len(payload))
        self.connection.request_flush()

    def on_delivery(self, delivery: Delivery) -> None:
        token: UUID | None = getattr(delivery, "lock_token", None)
        if token is None:
            # No delivery of ours: the client transfers over a link by which it receives.
            sends = AmqpError(ErrorCondition.NOT_ALLOWED, "the client receives over this link")
            refuse_link(self._link, sends)
            return
        if not delivery.updated:
            return
        try:
            disposition = read_disposition(delivery)
        except AmqpError as refusal:
            self._settle_delivery(delivery, refusal)
            return
        except UNREADABLE as error:
            self._settle_delivery(delivery, AmqpError(ErrorCondition.DECODE_ERROR, str(error)))
            return
        if disposition is not None:
            self._broker.interceptor.execute(
                ClientOperation(
                    disposition.settlement.value,
                    self._queue.name,
                    lambda: self._settle(token, disposition),
                    lambda result: self._settle_delivery(delivery, result),
                    self.connection,
                    expire_lock=lambda: self._expire_lock(token),
                )
            )

    def _settle(self, token: UUID, disposition: Disposition) -> None:
        now = self._broker.now()
        with self._queue.dispatching(now):
            self._queue.settle(token, disposition, now)

    def _expire_lock(self, token: UUID) -> None:
        now = self._broker.now()
        with self._queue.dispatching(now):
            self._queue.expire_lock(token, now)

    def _settle_delivery(self, delivery: Delivery, result: AmqpError | None) -> None:
        """Settle with the client's own outcome, or rejected with the reason why not.

        On a link that was detached meanwhile nothing is sent: the detach gave the reason.
        """
        if self._link.state & Endpoint.LOCAL_CLOSED:
            return
        outcome = delivery.remote_state
        if isinstance(result, AmqpError):
            delivery.local.condition = write_condition(result)
            outcome = Delivery.REJECTED
        elif outcome == Delivery.MODIFIED:
            delivery.local.failed = delivery.remote.failed
            delivery.local.undeliverable = delivery.remote.undeliverable
        delivery.update(outcome)
        delivery.settle()


class PlainOutgoingLink(OutgoingLink[PlainQueue]):
    """Takes turns with the queue's other consumers while it has credit."""

    def open(self) -> None:
        self._link.open()  # the client gives credit later

    def on_link_flow(self) -> None:
        if self._link.credit > 0:
            self._queue.wait(self)
        else:
            self._queue.stop_waiting(self)
        self._queue.advance(self._broker.now())
        if self._link.drain_mode:
            answer_drain(self._link)
            self._queue.stop_waiting(self)

    def on_link_closed(self) -> None:
        """Leave what was delivered locked until its lock expires, as in Azure."""
        self._queue.stop_waiting(self)

    def deliver_one(self, now: float) -> bool:
        """Deliver one message; returns whether more can be delivered."""
        stored = self._queue.receive(now)
        if stored is not None:
            self.transfer(stored, now)
        return self._link.credit > 0 and self.connection.is_open


@dataclass(eq=False)
class SessionOutgoingLink(OutgoingLink[SessionQueue]):
    """A link attached only once it has its session; without one in time, refused with a timeout.

    So the client reads from the attach which session it got and until when its lock holds.
    """

    _timeout: asyncio.Handle | None = None
    _session_id: str | None = None

    def open(self) -> None:
        given = read_filters(self._link)[SESSION_FILTER]
        wanted = getattr(given, "value", given)
        if wanted is not None:
            self._execute_accept(lambda: self._accept_named(wanted))
            return
        milliseconds = read_properties(self._link).get(TIMEOUT)
        seconds = WAIT_SECONDS_DEFAULT if milliseconds is None else milliseconds / 1000
        self._timeout = self._broker.call_later(seconds, self._on_timeout)
        self._queue.wait(self)
        self._queue.advance(self._broker.now())

    def accept_ready(self) -> None:
        self._cancel_timeout()
        self._execute_accept(self._accept_next)

    def on_link_flow(self) -> None:
        self._queue.advance(self._broker.now())
        self.deliver()
        if self._link.drain_mode:
            answer_drain(self._link)

    def on_link_closed(self) -> None:
        """Free the session for others at once; nothing counts as failed."""
        self._cancel_timeout()
        self._queue.stop_waiting(self)
        session_id, self._session_id = self._session_id, None
        if session_id is not None:
            now = self._broker.now()
            with self._queue.dispatching(now):
                self._queue.release(session_id, self, now)

    def deliver(self) -> None:
        while self._session_id is not None and self._link.credit > 0 and self.connection.is_open:
            stored = self._queue.receive(self._session_id, self)
            if stored is None:
                return
            self.transfer(stored, self._broker.now())

    def on_session_lost(self) -> None:
        self._session_id = None
        self._refuse(AmqpError(ErrorCondition.SESSION_LOCK_LOST, "The session lock has expired"))

    def _execute_accept(self, accept: Callable[[], MessageSession]) -> None:
        name = self._queue.name
        operation = ClientOperation("accept", name, accept, self._attach, self.connection)
        self._broker.interceptor.execute(operation)

    def _accept_named(self, session_id: object) -> MessageSession:
        if not isinstance(session_id, str):
            description = f"the session id {session_id!r} is no string"
            raise AmqpError(ErrorCondition.NOT_ALLOWED, description)
        now = self._broker.now()
        self._queue.advance(now)
        session = self._queue.accept(session_id, self, now)
        self._session_id = session.id
        return session

    def _accept_next(self) -> MessageSession:
        session = self._queue.accept_next(self, self._broker.now())
        if session is None:
            raise AmqpError(ErrorCondition.TIMEOUT, "The session that was ready is gone")
        self._session_id = session.id
        return session

    def _attach(self, result: MessageSession | AmqpError) -> None:
        if isinstance(result, AmqpError):
            self._refuse(result)
            return
        self._link.source.filter.put_object({SESSION_FILTER: result.id})
        ticks = TICKS_AT_1970 + int(result.locked_until * TICKS_PER_SECOND)
        self._link.properties = {LOCKED_UNTIL: ticks}
        self._link.open()

    def _on_timeout(self) -> None:
        self._timeout = None
        self._queue.stop_waiting(self)
        if self.connection.is_open:
            self._broker.interceptor.count("accept", ErrorCondition.TIMEOUT.short_name)
            self._refuse(AmqpError(ErrorCondition.TIMEOUT, "No session became available in time"))

    def _refuse(self, refusal: AmqpError) -> None:
        # Nothing can be refused on a connection that is gone, and its Proton objects are freed.
        if self.connection.is_open:
            refuse_link(self._link, refusal)
            self.connection.request_flush()

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


def answer_drain(link: Sender) -> None:
    """Use up what credit is left and say so in a flow, also when none is left, as Azure does.

    Proton answers only when there is credit to give back. A client whose second drain comes at zero
    credit would wait for the answer until its own time is up. One credit lent here makes Proton
    write the flow. It is given back at once and never on the wire: the delivery count in the flow
    counts what the client gave. The call is documented for receivers; its C code treats both alike.
    Credit below zero, taken back while messages were under way, is left as it is: no answer.
    """
    if link.credit == 0:
        pn_link_flow(link._impl, 1)
    link.drained()


def read_disposition(delivery: Delivery) -> Disposition | None:
    """Read the client's decision from the outcome it sent (part 3, section 3.4); None before that.

    Service Bus reads rejected as dead-letter, and modified as defer when it says undeliverable-here
    or else as abandon. Properties to modify come in the error's info, or as annotations.
    """
    match delivery.remote_state:
        case Delivery.ACCEPTED:
            return Disposition(Settlement.COMPLETE)
        case Delivery.RELEASED:
            return Disposition(Settlement.RELEASE)
        case Delivery.REJECTED:
            condition = delivery.remote.condition
            info = None if condition is None else condition.info
            given = {str(key): one for key, one in info.items()} if isinstance(info, dict) else {}
            reason = read_dead_letter_reason(given.pop(REASON, None), given.pop(DESCRIPTION, None))
            return Disposition(Settlement.DEAD_LETTER, reason, encode_properties(given))
        case Delivery.MODIFIED:
            # Whether or not it says delivery-failed: npm's client does not.
            is_deferred = delivery.remote.undeliverable
            settlement = Settlement.DEFER if is_deferred else Settlement.ABANDON
            annotations = delivery.remote.annotations
            changes = encode_properties(annotations if isinstance(annotations, dict) else {})
            return Disposition(settlement, properties=changes)
    return Disposition(Settlement.RELEASE) if delivery.settled else None


def read_dead_letter_reason(reason: object, description: object) -> DeadLetterReason:
    return DeadLetterReason(
        None if reason is None else str(reason), None if description is None else str(description)
    )


def encode_properties(given: Mapping[Any, Any]) -> dict[str, bytes]:
    """Application properties, each as it is written; refused unless of simple types."""
    encoded: dict[str, bytes] = {}
    for key, value in given.items():
        if isinstance(value, dict | list | Array):
            description = f"The application property {str(key)!r} is of no simple type"
            raise AmqpError(ErrorCondition.ARGUMENT_ERROR, description)
        data = Data()
        data.put_object(value)
        encoded[str(key)] = data.encode()
    return encoded
