"""The sweep's receiver reads whatever the broker gave up on, and removes what was ended."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from local.cloud import Cloud
from local.testing.patience import Patience
from shared.domain import wire
from shared.domain.errors import Misconfigured
from shared.domain.journal import Status
from shared.domain.message import Number
from shared.ports import DeadLetter
from shared.wiring import Adapters, connect
from tests.cloud import settings_of
from tests.sizes import IS_PROOF
from tests.world import handlers, message

pytestmark = pytest.mark.wire

QUEUE = "lockstep"
MANY = 100 if IS_PROOF else 40
PROPERTIES = wire.to_properties(message(0))


def annotated(**body: Any) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(
        **body,
        header=AmqpMessageHeader(),
        properties=AmqpMessageProperties(message_id="m", group_id="acc-7"),
        application_properties=dict[Any, Any](PROPERTIES | {"count": 3, "is_odd": True}),
    )


BODIES: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "data": ({"data_body": [b'{"amo', b'unt":1}']}, b'{"amount":1}', ""),
    "text": ({"value_body": '{"amount":1}'}, b'{"amount":1}', "AMQP value"),
    "a map": ({"value_body": {"amount": 1, "of": [None]}}, b'{"amount": 1, "of": [null]}', "value"),
    "nothing": ({"value_body": None}, b"null", "AMQP value"),
    "bytes": ({"value_body": b"\xff\x00"}, b"\xff\x00", "AMQP value"),
    "a sequence": ({"sequence_body": [[1, "two"], [3]]}, b'[[1, "two"], [3]]', "AMQP sequence"),
}


async def dead_letter(cloud: Cloud, *messages: ServiceBusMessage | AmqpAnnotatedMessage) -> None:
    connection = cloud.namespaces["east"].connection_string
    async with ServiceBusClient.from_connection_string(connection) as client:
        async with client.get_queue_sender(QUEUE) as sender:
            for one in messages:
                await sender.send_messages(one)
        async with client.get_queue_receiver(QUEUE, session_id="acc-7") as receiver:
            left = len(messages)
            while left:
                for received in await receiver.receive_messages(left, max_wait_time=5):
                    await receiver.dead_letter_message(
                        received, reason="TooOften", error_description="it failed"
                    )
                    left -= 1


async def test_every_kind_of_body_comes_whole_with_the_brokers_reason(
    cloud: Cloud, adapters: Adapters
) -> None:
    await dead_letter(cloud, *(annotated(**sent) for sent, _, _ in BODIES.values()))
    seen: list[DeadLetter] = []

    async def end(letter: DeadLetter) -> bool:
        seen.append(letter)
        return True

    assert await adapters.bus.end_dead_letters("east", QUEUE, 10, end) == len(BODIES)
    assert await adapters.bus.end_dead_letters("east", QUEUE, 10, end) == 0

    described = {"DeadLetterReason": "TooOften", "DeadLetterErrorDescription": "it failed"}
    for letter, (case, (_, body, kind)) in zip(seen, BODIES.items(), strict=True):
        assert (letter.session, letter.body) == ("acc-7", body), case
        assert letter.reason.endswith("TooOften: it failed"), case
        assert kind in letter.reason, case
        assert letter.properties == PROPERTIES | {"count": 3, "is_odd": True} | described, case
    assert cloud.depths()["east"][QUEUE]["dead_lettered"] == 0


async def test_a_queue_that_is_missing_is_named(adapters: Adapters) -> None:
    async def end(letter: DeadLetter) -> bool:
        raise AssertionError(letter)

    with pytest.raises(Misconfigured):
        await adapters.bus.end_dead_letters("east", "misspelt", 10, end)


async def test_good_messages_of_an_outage_all_run_and_none_is_a_fault(
    cloud: Cloud, adapters: Adapters
) -> None:
    services = connect(settings_of(cloud), handlers, adapters)
    sent = [message(n, session="acc-7", group=f"bank-{n % 10}") for n in range(MANY)]
    numbered = [
        replace(one, number=Number(one.number.group, 0, n // 10))
        for n, one in enumerate(sent)
        if one.number
    ]
    # As they lie in the dead-letter queue, their order is not that of their numbers.
    await dead_letter(
        cloud,
        *(
            ServiceBusMessage(
                one.body,
                session_id=one.session,
                message_id=one.id,
                application_properties=dict[Any, Any](wire.to_properties(one)),
            )
            for one in numbered[::-1]
        ),
    )

    # What one sweep has no time for stays locked for a while on a busy machine.
    patience = Patience(240)
    while cloud.depths()["east"][QUEUE]["dead_lettered"] and not patience.is_over():
        if not await services.dead_letters.sweep():
            await asyncio.sleep(0.5)

    assert cloud.depths()["east"][QUEUE]["dead_lettered"] == 0
    assert cloud.depths()["east"]["lockstep-errors"]["active"] == 0
    head = await adapters.journal.head("acc-7")
    assert head is not None
    assert head.status is Status.COMPLETED
    amounts = (await services.worker.input_after(head)).state["amounts"]
    for group in range(10):
        expected = [n + 1 for n in range(MANY) if n % 10 == group]
        assert [amount for amount in amounts if (amount - 1) % 10 == group] == expected


async def test_what_is_not_ended_is_left_and_the_rest_is_removed(
    cloud: Cloud, adapters: Adapters
) -> None:
    await dead_letter(cloud, *(annotated(data_body=[b"%d" % n]) for n in range(25)))
    seen: list[bytes] = []

    async def end(letter: DeadLetter) -> bool:
        seen.append(letter.body)
        return letter.body != b"7"

    assert await adapters.bus.end_dead_letters("east", QUEUE, 20, end) == 19
    assert seen == [b"%d" % n for n in range(20)]
    assert cloud.depths()["east"][QUEUE]["dead_lettered"] == 6
    assert {one["state"] for one in cloud.contents("east", QUEUE)} == {"dead_lettered"}
    assert len(cloud.contents("east", QUEUE)) == 6
