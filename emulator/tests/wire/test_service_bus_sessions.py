"""Sessions: what a session queue promises to those who send to it and receive from it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from local.testing.patience import eventually
from wire.service_bus import (
    NEXT_AVAILABLE_SESSION,
    Bus,
    receive,
    receive_one,
    running_bus,
)

pytestmark = pytest.mark.wire
QUEUE, HASTY = "flights", "hasty"


@pytest.fixture(scope="module")
def namespace() -> Iterator[Bus]:
    with running_bus() as bus:
        yield bus


@pytest.fixture
def bus(namespace: Bus) -> Bus:
    assert namespace.namespace.depth(QUEUE)["active"] == 0
    return namespace


def test_messages_of_a_session_arrive_in_the_order_in_which_they_were_sent(bus: Bus) -> None:
    bodies = [f"N101 event {number}" for number in range(20)]
    bus.send(QUEUE, *bodies, session="N101")

    with bus.receiver(QUEUE, "N101") as receiver:
        messages = receive(receiver, 20)
        for message in messages:
            receiver.complete_message(message)

    assert [str(message) for message in messages] == bodies
    assert bus.namespace.depth(QUEUE) == {
        "active": 0,
        "locked": 0,
        "scheduled": 0,
        "deferred": 0,
        "dead_lettered": 0,
    }


def test_an_abandoned_message_comes_back_first_with_a_higher_delivery_count(bus: Bus) -> None:
    bus.send(QUEUE, "departed", "arrived", session="N102")

    with bus.receiver(QUEUE, "N102") as receiver:
        first = receive_one(receiver)
        receiver.abandon_message(first)
        again = receive_one(receiver)
        receiver.complete_message(again)
        receiver.complete_message(last := receive_one(receiver))

    assert [str(first), str(again), str(last)] == ["departed", "departed", "arrived"]
    assert [first.delivery_count, again.delivery_count, last.delivery_count] == [0, 1, 0]
    assert first.sequence_number == again.sequence_number


def test_closing_a_session_gives_its_messages_back_in_order_and_counts_nothing(bus: Bus) -> None:
    bus.send(QUEUE, "one", "two", "three", session="N103")

    with bus.receiver(QUEUE, "N103") as receiver:
        receive(receiver, 2)
    with bus.receiver(QUEUE, "N103") as receiver:
        messages = receive(receiver, 3)
        for message in messages:
            receiver.complete_message(message)

    assert [str(message) for message in messages] == ["one", "two", "three"]
    assert [message.delivery_count for message in messages] == [0, 0, 0]


def test_a_receiver_of_any_session_gets_one_that_has_messages(bus: Bus) -> None:
    bus.send(QUEUE, "departed", session="N104")

    with bus.receiver(QUEUE, NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session.session_id == "N104"
        assert receiver.session.locked_until_utc is not None
        assert receiver.session.locked_until_utc > datetime.now(UTC) + timedelta(seconds=25)
        receiver.complete_message(receive_one(receiver))


def test_a_receiver_waits_for_a_session_that_appears_later(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        soon = datetime.now(UTC) + timedelta(seconds=0.4)
        sender.schedule_messages(ServiceBusMessage("late", session_id="N105"), soon)

        with bus.receiver(QUEUE, NEXT_AVAILABLE_SESSION) as receiver:
            message = receive_one(receiver)
            receiver.complete_message(message)

    assert str(message) == "late"
    assert message.enqueued_time_utc is not None
    assert message.enqueued_time_utc >= soon - timedelta(milliseconds=1)


def test_when_no_session_appears_in_time_the_receiver_is_told_so(bus: Bus) -> None:
    before = bus.count("accept", "timeout")

    with (
        pytest.raises(OperationTimeoutError),
        bus.receiver(QUEUE, NEXT_AVAILABLE_SESSION, wait=0.3),
    ):
        pass

    assert eventually(lambda: bus.count("accept", "timeout") == before + 1)


def test_a_session_has_one_holder_at_a_time(bus: Bus) -> None:
    with (
        bus.receiver(QUEUE, "N106"),
        pytest.raises(SessionCannotBeLockedError),
        bus.receiver(QUEUE, "N106"),
    ):
        pass

    with bus.receiver(QUEUE, "N106") as receiver:
        assert receiver.session.session_id == "N106"


def test_sessions_are_received_side_by_side(bus: Bus) -> None:
    bus.send(QUEUE, "east", session="N107")
    bus.send(QUEUE, "west", session="N108")

    with (
        bus.receiver(QUEUE, NEXT_AVAILABLE_SESSION) as first,
        bus.receiver(QUEUE, NEXT_AVAILABLE_SESSION) as second,
    ):
        bodies = {}
        for receiver in (first, second):
            message = receive_one(receiver)
            receiver.complete_message(message)
            bodies[receiver.session.session_id] = str(message)

    assert bodies == {"N107": "east", "N108": "west"}


def test_a_renewed_session_lock_lasts_longer(bus: Bus) -> None:
    with bus.receiver(QUEUE, "N109") as receiver:
        before = receiver.session.locked_until_utc
        after = receiver.session.renew_lock()

    assert before is not None
    assert after > before


def test_a_lost_session_lock_is_told_and_the_message_counts_as_failed(bus: Bus) -> None:
    bus.send(HASTY, "departed", session="N110")

    with bus.receiver(HASTY, "N110") as receiver:
        message = receive_one(receiver)
        assert eventually(lambda: bus.namespace.depth(HASTY)["active"] == 1)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)

    with bus.receiver(HASTY, "N110") as receiver:
        again = receive_one(receiver)
        receiver.complete_message(again)
    assert (str(again), again.delivery_count) == ("departed", 1)
    assert bus.count("expire-lock") >= 1


def test_the_service_itself_refuses_to_settle_under_a_lost_lock(bus: Bus) -> None:
    bus.send(HASTY, "departed", session="N111")

    with bus.receiver(HASTY, "N111") as receiver:
        message = receive_one(receiver)
        # The SDK looks at its own clock first; without that, the service must be the one to say no.
        receiver.session._locked_until_utc = None  # type: ignore[assignment]
        assert eventually(lambda: bus.namespace.depth(HASTY)["active"] == 1)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)

    with bus.receiver(HASTY, "N111") as receiver:
        receiver.complete_message(receive_one(receiver))


def test_a_session_keeps_a_state_for_its_next_holder(bus: Bus) -> None:
    with bus.receiver(QUEUE, "N112") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"gate 7")
    with bus.receiver(QUEUE, "N112") as receiver:
        assert receiver.session.get_state() == b"gate 7"
        receiver.session.set_state(None)
    with bus.receiver(QUEUE, "N112") as receiver:
        assert receiver.session.get_state() is None


def test_a_session_queue_takes_no_message_without_a_session_id(bus: Bus) -> None:
    with pytest.raises(ServiceBusError, match="no session id"):
        bus.send(QUEUE, "whose?")

    assert bus.namespace.depth(QUEUE)["active"] == 0


def test_a_session_queue_has_no_receivers_without_a_session(bus: Bus) -> None:
    with pytest.raises(ServiceBusError, match="requires sessions"), bus.receiver(QUEUE):
        pass
