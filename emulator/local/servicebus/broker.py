"""The parts that all links of a namespace share: transactions, timers, counters, injected faults.

Work is done in transactions, one at a time, on the loop of one thread: the bytes of one client, or
a timer. At the end of each the store is committed first, and only then do bytes go out, so no
client is told of anything that a killed process would forget.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from local.counters import Counters
from local.faults import Action, Fault, Faults
from local.servicebus.amqp.errors import AmqpError, error_for_status
from local.servicebus.entities.store import MessageStore
from local.servicebus.message import Settlement

NONE: frozenset[Action] = frozenset()
ON_REQUEST = frozenset(
    {Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER, Action.DROP_CONNECTION}
)
UNDER_LOCK = ON_REQUEST | {Action.LOSE_LOCK}
ON_DELIVERY = frozenset({Action.DOWN, Action.DROP_CONNECTION, Action.DUPLICATE, Action.LOSE_LOCK})
# Every operation that is counted, with the actions of faults that can hit it.
OPERATIONS: dict[str, frozenset[Action]] = {
    **dict.fromkeys(("authorize", "administer", "expire-lock"), NONE),
    **dict.fromkeys(("accept", "send", "schedule", "cancel-scheduled", "unknown"), ON_REQUEST),
    **dict.fromkeys(("peek", "receive-deferred", "list-sessions"), ON_REQUEST),
    **dict.fromkeys(("add-rule", "remove-rule", "list-rules"), ON_REQUEST),
    "deliver": ON_DELIVERY,
    "forward": frozenset({Action.STATUS}),
    **dict.fromkeys([kind.value for kind in Settlement], UNDER_LOCK),
    **dict.fromkeys(("renew-lock", "renew-session-lock"), UNDER_LOCK),
    **dict.fromkeys(("get-session-state", "set-session-state"), UNDER_LOCK),
}


class ClientConnection(Protocol):
    @property
    def is_open(self) -> bool: ...

    @property
    def is_reading_batch(self) -> bool:
        """Return whether the transfer that has just arrived says that it is a batch."""
        ...

    def request_flush(self) -> None:
        """Ask to write something, which goes out at the end of the transaction."""

    def flush(self) -> None: ...
    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ClientOperation[Result]:
    """One operation asked for by a client.

    `entity` is what it is asked of. `apply` does it and returns the result or raises AmqpError;
    `respond` sends either to the client. `count` and `size` (bytes) are for the counters.
    `expire_lock` ends the lock that the operation is under, where there is one.
    """

    name: str
    entity: str
    apply: Callable[[], Result]
    respond: Callable[[Result | AmqpError], None]
    connection: ClientConnection
    count: int = 1
    size: int = 0
    expire_lock: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Interceptor:
    """The gate that every operation passes: it is counted, and an injected fault may hit it.

    A DELAY holds the one operation back, so one sent after it may overtake it.
    """

    _component: str
    _faults: Faults
    _counters: Counters
    _call_later: Callable[[float, Callable[[], None]], object]

    @property
    def is_down(self) -> bool:
        """Return whether the whole namespace has to be down."""
        return self._faults.is_down(self._component)

    @property
    def link_seconds(self) -> float:
        """The time that bytes take to a client and from it; infinite while the way is silent."""
        if not self._faults.are_armed:
            return 0
        if self._faults.is_silent(self._component):
            return inf
        slow = self._faults.in_force(Action.SLOW_LINK)
        return sum(one.seconds for one in slow if one.covers(self._component))

    def refuse_dead(self, entity: str) -> None:
        """Raise AmqpError, with the status of the fault, while the entity is dead."""
        for fault in self._faults.in_force(Action.DOWN):
            is_here = fault.is_state and fault.covers(self._component)
            if fault.entity and is_here and fault.covers_entity(entity):
                raise error_for_status(fault.status)

    def admit_forwarded(self, entity: str) -> None:
        """Count a message that is forwarded to an entity; raises AmqpError if a fault hits it."""
        try:
            self.refuse_dead(entity)
            if (fault := self.take_fault("forward", entity)) is not None:
                raise error_for_status(fault.status)
        except AmqpError as refusal:
            self.count("forward", refusal.condition.short_name)
            raise
        self.count("forward")

    def execute(self, operation: ClientOperation[Any]) -> None:
        match self.take_fault(operation.name, operation.entity):
            case None:
                self._respond(operation, self._apply(operation))
            case Fault(action=Action.STATUS, status=status):
                self._respond(operation, self._count_refusal(operation, error_for_status(status)))
            case Fault(action=Action.DELAY, seconds=seconds):
                self._call_later(seconds, lambda: self._respond(operation, self._apply(operation)))
            case Fault(action=Action.DROP_ANSWER):
                self._apply(operation)
            case Fault(action=Action.LOSE_LOCK):
                self._respond(operation, self._apply(operation, before=operation.expire_lock))
            case Fault(action=Action.DOWN | Action.DROP_CONNECTION):
                operation.connection.abort()

    def count(self, operation: str, status: str = "ok", *, count: int = 1, size: int = 0) -> None:
        """Count something that a client did not ask for."""
        self._counters.add(self._component, operation, status, count=count, size=size)

    def take_fault(self, operation: str, entity: str) -> Fault | None:
        actions = OPERATIONS[operation]
        return self._faults.inject(self._component, operation, entity=entity, actions=actions)

    def _apply(
        self, operation: ClientOperation[Any], before: Callable[[], object] | None = None
    ) -> Any:
        try:
            if before is not None:
                before()
            result = operation.apply()
        except AmqpError as refusal:
            return self._count_refusal(operation, refusal)
        self.count(operation.name, count=operation.count, size=operation.size)
        return result

    def _respond(self, operation: ClientOperation[Any], result: Any) -> None:
        if operation.connection.is_open:
            operation.respond(result)
            operation.connection.request_flush()

    def _count_refusal(self, operation: ClientOperation[Any], refusal: AmqpError) -> AmqpError:
        self.count(operation.name, refusal.condition.short_name)
        # A traceback holds the frames of whoever raises a refusal it was given, and they hold it: a
        # circle, with Proton's objects in it, for the garbage collector to free on any thread.
        return refusal.with_traceback(None)


class Broker:
    """The broker of one namespace, used on its thread only."""

    def __init__(
        self, component: str, *, faults: Faults, counters: Counters, store: MessageStore
    ) -> None:
        self.interceptor = Interceptor(component, faults, counters, self.call_later)
        self._store = store
        self._unflushed: dict[ClientConnection, None] = {}

    def now(self) -> float:
        return time.time()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the effects of a piece of work durable, and only then let clients know."""
        try:
            yield
        finally:
            self._store.commit()
            while self._unflushed:
                self._unflushed.popitem()[0].flush()

    def flush_after_commit(self, connection: ClientConnection) -> None:
        self._unflushed.setdefault(connection)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Call in a transaction of its own, after some seconds; 0: before any client is read."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            return loop.call_soon(self._call_in_transaction, callback)
        return loop.call_later(seconds, self._call_in_transaction, callback)

    def _call_in_transaction(self, callback: Callable[[], None]) -> None:
        with self.transaction():
            callback()
