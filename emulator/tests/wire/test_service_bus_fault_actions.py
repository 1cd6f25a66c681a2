"""Every action a fault may have, where it hits sends, deliveries and settlements."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)

from local.faults import Action, Fault
from local.testing.patience import eventually
from wire.service_bus import Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
EAST = "servicebus.east"
QUEUE, SESSIONS = "parcels", "flights"
LATE_SECONDS, PATIENT_SECONDS = 1.5, 0.5


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def arm(bus: Bus, action: Action, operation: str, **details: float) -> None:
    fault = {"component": EAST, "action": action.value, "operation": operation, "times": 1}
    bus.faults.arm(Fault.parse(fault | details))


def completed(receiver: ServiceBusReceiver, count: int) -> list[str]:
    bodies = []
    for _ in range(count):
        message = receive_one(receiver)
        receiver.complete_message(message)
        bodies.append(str(message))
    return bodies


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ServiceBusError),
        (401, (ServiceBusAuthorizationError, ServiceBusAuthenticationError)),
        (403, ServiceBusQuotaExceededError),
        (404, MessagingEntityNotFoundError),
        (408, OperationTimeoutError),
        (413, MessageSizeExceededError),
        (429, ServiceBusServerBusyError),
        (500, ServiceBusError),
        (503, ServiceBusServerBusyError),
    ],
)
def test_a_status_is_the_error_the_service_has_for_it(
    bus: Bus, status: int, expected: type[ServiceBusError]
) -> None:
    arm(bus, Action.STATUS, "send", status=status)

    with pytest.raises(expected):
        bus.send(QUEUE, "refused")

    assert bus.namespace.depth(QUEUE)["active"] == 0


def test_a_send_may_be_slow_and_is_applied_once(bus: Bus) -> None:
    arm(bus, Action.DELAY, "send", seconds=0.4)

    began = time.monotonic()
    bus.send(QUEUE, "slow")

    assert time.monotonic() - began >= 0.4
    assert bus.namespace.depth(QUEUE)["active"] == 1


def test_an_answer_may_come_after_its_client_has_gone(bus: Bus) -> None:
    bus.send(QUEUE, "a")
    arm(bus, Action.DELAY, "send", seconds=LATE_SECONDS)

    with bus.client.get_queue_sender(QUEUE) as sender, pytest.raises(OperationTimeoutError):
        sender.send_messages(ServiceBusMessage("late"), timeout=PATIENT_SECONDS)
    with bus.receiver(QUEUE) as receiver:
        receiver.peek_messages()  # opens what it peeks through
        arm(bus, Action.DELAY, "peek", seconds=LATE_SECONDS)
        with pytest.raises(OperationTimeoutError):
            receiver.peek_messages(timeout=PATIENT_SECONDS)

    assert eventually(lambda: bus.namespace.depth(QUEUE)["active"] == 2)
    assert eventually(lambda: bus.count("peek") == 2)
    with bus.receiver(QUEUE) as receiver:
        assert completed(receiver, 2) == ["a", "late"]


def test_a_settlement_may_be_applied_without_an_answer(bus: Bus) -> None:
    bus.send(QUEUE, "a", "b")
    arm(bus, Action.DROP_ANSWER, "complete")

    with bus.client.get_queue_receiver(QUEUE, max_wait_time=60, timeout=2) as receiver:
        message = receive_one(receiver)
        # Without an answer the SDK asks once more over the management link: the lock is gone.
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        assert completed(receiver, 1) == ["b"]
    assert bus.count("complete") == 2


@pytest.mark.parametrize("status", [401, 503])
def test_a_refused_settlement_leaves_the_message_to_the_next_holder(bus: Bus, status: int) -> None:
    bus.send(SESSIONS, "a", session="N101")
    arm(bus, Action.STATUS, "complete", status=status)

    with bus.receiver(SESSIONS, "N101") as receiver:
        message = receive_one(receiver)
        with pytest.raises(ServiceBusError):
            receiver.complete_message(message)
    with bus.receiver(SESSIONS, "N101") as receiver:
        assert completed(receiver, 1) == ["a"]


def test_a_dropped_connection_applies_nothing(bus: Bus) -> None:
    arm(bus, Action.DROP_CONNECTION, "send")

    with bus.client.get_queue_sender(QUEUE) as sender:
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(ServiceBusMessage("lost"))
        sender.send_messages(ServiceBusMessage("sent"))

    assert bus.namespace.depth(QUEUE)["active"] == 1


def test_a_connection_dropped_on_a_settlement_frees_the_session(bus: Bus) -> None:
    bus.send(SESSIONS, "a", "b", session="N101")
    arm(bus, Action.DROP_CONNECTION, "complete")

    with bus.receiver(SESSIONS, "N101") as receiver:
        message = receive_one(receiver)
        with pytest.raises(ServiceBusError):
            receiver.complete_message(message)
    with bus.receiver(SESSIONS, NEXT_AVAILABLE_SESSION) as receiver:
        assert completed(receiver, 2) == ["a", "b"]


@pytest.mark.parametrize("action", [Action.DROP_CONNECTION, Action.DOWN])
def test_a_connection_dropped_on_a_delivery_loses_no_message(bus: Bus, action: Action) -> None:
    bus.send(SESSIONS, "a", "b", session="N101")
    arm(bus, action, "deliver")

    with bus.receiver(SESSIONS, "N101") as receiver, pytest.raises(ServiceBusError):
        receive(receiver, 2)
    with bus.receiver(SESSIONS, "N101") as receiver:
        assert completed(receiver, 2) == ["a", "b"]


@pytest.mark.parametrize(("queue", "session"), [(QUEUE, None), (SESSIONS, "N101")])
def test_a_duplicated_delivery_comes_once_more_after_it_was_completed(
    bus: Bus, queue: str, session: str | None
) -> None:
    bus.send(queue, "a", "b", session=session)
    arm(bus, Action.DUPLICATE, "deliver")

    with bus.receiver(queue, session) as receiver:
        assert completed(receiver, 3) == ["a", "a", "b"]

    assert bus.namespace.depth(queue)["active"] == 0


def test_a_message_lock_may_be_lost_while_the_message_is_being_handled(bus: Bus) -> None:
    bus.send(QUEUE, "a")
    arm(bus, Action.LOSE_LOCK, "deliver")

    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        again = receive_one(receiver)
        receiver.complete_message(again)

    assert (str(again), again.delivery_count) == ("a", 1)
    assert bus.count("expire-lock") == 1


@pytest.mark.parametrize("operation", ["complete", "deliver"])
def test_a_session_lock_may_be_lost_and_the_session_goes_on_where_it_stood(
    bus: Bus, operation: str
) -> None:
    bus.send(SESSIONS, "a", "b", session="N101")
    arm(bus, Action.LOSE_LOCK, operation)

    with bus.receiver(SESSIONS, "N101") as receiver, pytest.raises(SessionLockLostError):
        receiver.complete_message(receive_one(receiver))
    with bus.receiver(SESSIONS, NEXT_AVAILABLE_SESSION) as receiver:
        first = receive_one(receiver)
        receiver.complete_message(first)
        assert completed(receiver, 1) == ["b"]

    assert (str(first), first.delivery_count) == ("a", 1)


def test_a_session_lock_may_be_lost_on_its_renewal(bus: Bus) -> None:
    bus.send(SESSIONS, "a", session="N101")
    arm(bus, Action.LOSE_LOCK, "renew-session-lock")

    with bus.receiver(SESSIONS, "N101") as receiver:
        receive_one(receiver)
        with pytest.raises(SessionLockLostError):
            receiver.session.renew_lock()

    assert eventually(lambda: bus.namespace.depth(SESSIONS)["active"] == 1)


def test_a_message_lock_may_be_lost_on_its_renewal(bus: Bus) -> None:
    bus.send(QUEUE, "a")
    arm(bus, Action.LOSE_LOCK, "renew-lock")

    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)
        assert message.locked_until_utc is not None
        assert message.locked_until_utc - message.enqueued_time_utc > timedelta(seconds=20)  # type: ignore[operator]
        assert completed(receiver, 1) == ["a"]


def test_a_fault_of_deliveries_leaves_everything_else_alone(bus: Bus) -> None:
    bus.faults.arm(Fault(EAST, Action.DUPLICATE))
    bus.faults.arm(Fault(EAST, Action.LOSE_LOCK, operation="send"))

    bus.send(QUEUE, "a")

    assert [one["hits"] for one in bus.faults.listing()] == [0, 0]
    assert bus.namespace.depth(QUEUE)["active"] == 1
