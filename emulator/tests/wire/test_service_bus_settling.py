"""Plain queues: locks, settlement, dead letters, and what cannot be found or is refused."""

from collections.abc import Iterator

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusError,
)

from local.testing.patience import eventually
from wire.service_bus import Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
QUEUE, SHORT = "parcels", "short"


@pytest.fixture(scope="module")
def namespace() -> Iterator[Bus]:
    with running_bus() as bus:
        yield bus


@pytest.fixture
def bus(namespace: Bus) -> Iterator[Bus]:
    yield namespace
    assert namespace.namespace.depth(QUEUE)["active"] == 0, "a test left messages behind"


def test_a_message_arrives_exactly_as_it_was_sent(bus: Bus) -> None:
    sent = ServiceBusMessage(
        b"\x00\xffbinary",
        application_properties={"ce_type": "flight", "attempt": 3, "late": True},
        message_id="message-1",
        correlation_id="c",
        subject="departed",
        content_type="application/json",
        session_id="carried along",
    )
    with bus.client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(sent)
    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert b"".join(message.body) == b"\x00\xffbinary"
    assert message.application_properties == {b"ce_type": b"flight", b"attempt": 3, b"late": True}
    assert (message.message_id, message.correlation_id) == ("message-1", "c")
    assert (message.subject, message.content_type) == ("departed", "application/json")
    assert message.session_id == "carried along"


def test_a_batch_arrives_as_its_messages_in_order(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        batch = sender.create_message_batch()
        for number in range(100):
            batch.add_message(ServiceBusMessage(f"parcel {number}", message_id=str(number)))
        sender.send_messages(batch)
    with bus.receiver(QUEUE) as receiver:
        messages = receive(receiver, 100)
        for message in messages:
            receiver.complete_message(message)

    assert [str(message) for message in messages] == [f"parcel {n}" for n in range(100)]
    assert [message.message_id for message in messages] == [str(n) for n in range(100)]
    assert bus.count("send") >= 100


def test_a_large_message_crosses_in_several_frames(bus: Bus) -> None:
    body = bytes(range(256)) * 3600  # 900 KB
    with bus.client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage(body))
    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert b"".join(message.body) == body


def test_more_than_a_megabyte_is_refused(bus: Bus) -> None:
    with (
        bus.client.get_queue_sender(QUEUE) as sender,
        pytest.raises(MessageSizeExceededError),
    ):
        sender.send_messages(ServiceBusMessage(b"x" * (1024 * 1024 + 1)))


def test_a_renewed_lock_outlives_the_lock_duration(bus: Bus) -> None:
    bus.send(SHORT, "fragile")

    with bus.receiver(SHORT) as receiver:
        message = receive_one(receiver)
        before = message.locked_until_utc
        after = receiver.renew_message_lock(message)
        receiver.complete_message(message)

    assert before is not None
    assert after > before
    assert bus.namespace.depth(SHORT)["locked"] == 0


def test_a_lost_message_lock_is_told_and_counts_as_a_failed_delivery(bus: Bus) -> None:
    bus.send(SHORT, "slow")

    with bus.receiver(SHORT) as receiver:
        message = receive_one(receiver)
        assert eventually(lambda: bus.namespace.depth(SHORT)["active"] == 1)
        message._expiry = None
        message._raw_amqp_message.annotations.clear()  # blinds the SDK to its own clock
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        again = receive_one(receiver)
        receiver.complete_message(again)

    assert (str(again), again.delivery_count) == ("slow", 1)


def test_a_message_dead_lettered_by_hand_says_why(bus: Bus) -> None:
    bus.send(QUEUE, "broken")
    with bus.receiver(QUEUE) as receiver:
        receiver.dead_letter_message(
            receive_one(receiver), reason="unreadable", error_description="no tail number"
        )
    assert bus.namespace.depth(QUEUE)["dead_lettered"] == 1

    with bus.client.get_queue_receiver(
        QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=60
    ) as receiver:
        (peeked,) = receiver.peek_messages()
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert str(peeked) == str(message) == "broken"
    assert message.dead_letter_reason == "unreadable"
    assert message.dead_letter_error_description == "no tail number"
    assert bus.namespace.depth(QUEUE)["dead_lettered"] == 0


def test_a_message_that_fails_too_often_is_dead_lettered(bus: Bus) -> None:
    bus.send(QUEUE, "poison")
    with bus.receiver(QUEUE) as receiver:
        for failures in range(3):
            message = receive_one(receiver)
            assert message.delivery_count == failures
            receiver.abandon_message(message)

    with bus.client.get_queue_receiver(
        QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=60
    ) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    assert str(message) == "poison"
    assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert message.delivery_count == 3


def test_an_expired_message_is_dead_lettered_where_that_is_declared(bus: Bus) -> None:
    bus.send("mortal", "too late")

    with bus.client.get_queue_receiver(
        "mortal", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=60
    ) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    assert str(message) == "too late"
    assert message.dead_letter_reason == "TTLExpiredException"


def test_a_deferred_message_is_served_by_its_number_only(bus: Bus) -> None:
    bus.send(QUEUE, "later", "now")
    with bus.receiver(QUEUE) as receiver:
        deferred = receive_one(receiver)
        receiver.defer_message(deferred)
        receiver.complete_message(now := receive_one(receiver))
        assert bus.namespace.depth(QUEUE)["deferred"] == 1
        assert deferred.sequence_number is not None
        (later,) = receiver.receive_deferred_messages(deferred.sequence_number)
        receiver.complete_message(later)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(deferred.sequence_number)

    assert (str(now), str(later)) == ("now", "later")


def test_receive_and_delete_leaves_nothing_behind(bus: Bus) -> None:
    bus.send(QUEUE, "gone")
    with bus.client.get_queue_receiver(
        QUEUE, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=60
    ) as receiver:
        assert str(receive_one(receiver)) == "gone"

    assert bus.namespace.depth(QUEUE)["locked"] == 0


def test_peeking_locks_nothing_and_walks_through_the_queue(bus: Bus) -> None:
    bus.send(QUEUE, "a", "b", "c")
    with bus.receiver(QUEUE) as receiver:
        first = receiver.peek_messages(max_message_count=2)
        rest = receiver.peek_messages(max_message_count=5)
        beyond = receiver.peek_messages(max_message_count=5)
        assert bus.namespace.depth(QUEUE)["active"] == 3
        for message in receive(receiver, 3):
            receiver.complete_message(message)

    assert [str(message) for message in first] == ["a", "b"]
    assert [str(message) for message in rest] == ["c"]
    assert beyond == []


@pytest.mark.parametrize("action", ["send", "receive"])
def test_an_unknown_queue_has_no_token_and_so_fails_the_authentication(
    bus: Bus, action: str
) -> None:
    opened = bus.client.get_queue_sender("nowhere") if action == "send" else bus.receiver("nowhere")

    with pytest.raises(ServiceBusAuthenticationError), opened:
        pass


def test_a_management_operation_that_is_not_honoured_is_refused_by_name(bus: Bus) -> None:
    with (
        bus.receiver(QUEUE) as receiver,
        pytest.raises(ServiceBusError, match=r"set-rule-state.*501"),
    ):
        receiver._mgmt_request_response(
            b"com.microsoft:set-rule-state", {}, refuse_unless_ok, timeout=60
        )


def refuse_unless_ok(status: int, message: object, description: bytes, **_: object) -> None:
    raise ServiceBusError(f"{description.decode()} ({status})")
