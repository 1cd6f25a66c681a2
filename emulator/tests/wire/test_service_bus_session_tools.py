"""Sessions beyond the straight road: deferral, deletion on receipt, and the list of sessions."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceiveMode, ServiceBusReceiver, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError, SessionLockLostError

from local.testing.patience import Patience
from wire.service_bus import Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
QUEUE = "flights"
END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def list_sessions(receiver: ServiceBusReceiver, **request: Any) -> tuple[int, Any]:
    """Of azure-servicebus only later versions have a method for it."""

    def answered(status: int, message: Any, description: bytes, **_: object) -> tuple[int, Any]:
        found = message.value[b"sessions-ids"] if status == 200 else description.decode()
        return status, found

    body = {"last-updated-time": END_OF_TIME, "skip": 0, "top": 10} | request
    name = b"com.microsoft:get-message-sessions"
    answer: Any = receiver._mgmt_request_response(name, body, answered, timeout=60)
    return answer[0], answer[1]


def test_a_deferred_message_stays_with_its_session_and_lets_later_ones_pass(bus: Bus) -> None:
    bus.send(QUEUE, "a", "b", session="N101")
    bus.send(QUEUE, "other", session="N102")
    with bus.receiver(QUEUE, "N101") as receiver:
        deferred = receive_one(receiver)
        receiver.defer_message(deferred)
        receiver.complete_message(receive_one(receiver))
    number = deferred.sequence_number
    assert number is not None

    with (
        bus.receiver(QUEUE, "N102") as other,
        pytest.raises(MessageNotFoundError, match="N102"),
    ):
        other.receive_deferred_messages(number)
    with bus.receiver(QUEUE, "N101") as receiver:
        (again,) = receiver.receive_deferred_messages(number)
        receiver.abandon_message(again)
        (once_more,) = receiver.receive_deferred_messages(number)
        receiver.complete_message(once_more)

    assert [str(deferred), str(again), str(once_more)] == ["a", "a", "a"]
    assert [again.delivery_count, once_more.delivery_count] == [0, 1]
    assert bus.namespace.depth(QUEUE)["deferred"] == 0


def test_a_deferred_message_can_be_dead_lettered_under_the_session_s_lock_only(bus: Bus) -> None:
    bus.send(QUEUE, "a", session="N101")
    with bus.receiver(QUEUE, "N101") as receiver:
        message = receive_one(receiver)
        receiver.defer_message(message)
        (deferred,) = receiver.receive_deferred_messages([message.sequence_number or 0])
    with pytest.raises((SessionLockLostError, ValueError)):
        receiver.complete_message(deferred)
    with bus.receiver(QUEUE, "N101") as receiver:
        (deferred,) = receiver.receive_deferred_messages([message.sequence_number or 0])
        receiver.dead_letter_message(deferred, reason="unreadable")

    with bus.client.get_queue_receiver(
        QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=60
    ) as receiver:
        buried = receive_one(receiver)
        receiver.complete_message(buried)
    assert (str(buried), buried.dead_letter_reason) == ("a", "unreadable")


def test_receive_and_delete_takes_a_session_s_messages_in_order(bus: Bus) -> None:
    bus.send(QUEUE, "a", "b", "c", session="N101")

    with bus.client.get_queue_receiver(
        QUEUE,
        session_id="N101",
        receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
        max_wait_time=60,
    ) as receiver:
        bodies = [str(message) for message in receive(receiver, 3)]

    assert bodies == ["a", "b", "c"]
    assert set(bus.namespace.depth(QUEUE).values()) == {0}


def test_the_sessions_that_have_messages_are_listed_page_by_page(bus: Bus) -> None:
    with bus.receiver(QUEUE, "held, but empty") as receiver:
        assert list_sessions(receiver)[0] == 204
        for session in ("N101", "N102", "N103"):
            bus.send(QUEUE, "x", session=session)
        assert list_sessions(receiver) == (200, [b"N101", b"N102", b"N103"])
        assert list_sessions(receiver, skip=1, top=1) == (200, [b"N102"])
        assert list_sessions(receiver, skip=3)[0] == 204


def test_sessions_that_hold_a_state_alone_are_listed_and_found_by_its_time(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    for is_first in (True, False):  # the second time from what was kept
        with running_bus(tmp_path) as bus:
            if is_first:
                bus.send(QUEUE, "x", session="N101")
                for session in ("N102", "N103"):
                    with bus.receiver(QUEUE, session) as receiver:
                        receiver.session.set_state(b"gate 7")
            with bus.receiver(QUEUE, "held, but empty") as receiver:
                listed = list_sessions(receiver)
                after = {"last-updated-time": long_ago}
                changed = list_sessions(receiver, **after)
                unchanged = list_sessions(receiver, **{"last-updated-time": datetime.now(UTC)})

        assert listed == (200, [b"N101", b"N102", b"N103"])
        assert changed == (200, [b"N102", b"N103"])
        assert unchanged[0] == 204


def test_a_session_whose_state_was_cleared_is_listed_no_more(bus: Bus) -> None:
    with bus.receiver(QUEUE, "N101") as receiver:
        receiver.session.set_state(b"gate 7")
        assert list_sessions(receiver) == (200, [b"N101"])
        receiver.session.set_state(None)

        assert list_sessions(receiver)[0] == 204


@pytest.mark.parametrize(("queue", "session"), [(QUEUE, "N101"), ("parcels", None)])
def test_a_drain_gives_what_there_is_and_takes_the_rest_of_the_credit_back(
    bus: Bus, queue: str, session: str | None
) -> None:
    bus.send(queue, "a", "b", session=session)
    with bus.receiver(queue, session) as receiver:
        link: Any = receiver._handler._link
        link.flow(link_credit=10, drain=True)
        messages = receive(receiver, 2)
        for message in messages:
            receiver.complete_message(message)
        # With credit left it would be delivered, and so locked, at once.
        bus.send(queue, "c", session=session)
        assert bus.namespace.depth(queue)["active"] == 1

    assert [str(message) for message in messages] == ["a", "b"]


@pytest.mark.parametrize(("queue", "session"), [(QUEUE, "N101"), ("parcels", None)])
def test_every_drain_is_answered_also_at_zero_credit(
    bus: Bus, queue: str, session: str | None
) -> None:
    bus.send(queue, "a", session=session)
    flows: list[tuple[Any, ...]] = []
    with bus.receiver(queue, session) as receiver:
        receiver.complete_message(receive_one(receiver))
        link: Any = receiver._handler._link
        connection: Any = receiver._handler._connection
        link._incoming_flow = lambda frame: flows.append((frame[5], frame[6], frame[8]))
        for answers in (1, 2, 3):
            link.flow(link_credit=0, drain=True)
            patience = Patience(10)
            while len(flows) < answers:
                assert not patience.is_over(), f"{len(flows)} of {answers} drains are answered"
                connection.listen(wait=0.05)
        # The answers have cost no credit: one more gives one message, and no other is locked.
        bus.send(queue, "b", "c", session=session)
        assert bus.namespace.depth(queue)["active"] == 2
        receiver.complete_message(receive_one(receiver))
        assert bus.namespace.depth(queue)["active"] == 1

    # Delivery count, credit and drain: one delivery so far, nothing left, each time.
    assert flows == [(1, 0, True)] * 3
