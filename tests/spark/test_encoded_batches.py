"""Messages that a feed has encoded itself, over the wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.domain.errors import (
    InvalidMessage,
    LockstepError,
    Misconfigured,
    OutcomeUnknown,
    Throttled,
)
from shared.settings import Connection
from spark.send.encoded_bus import EncodedBus
from tests.cloud import settings_of
from tests.spark.bookings import message

EAST, QUEUE = "east", "lockstep"
SECONDS_MAX = 60.0


@asynccontextmanager
async def opened(connection: Connection, seconds: float = SECONDS_MAX) -> AsyncIterator[EncodedBus]:
    bus = EncodedBus.of({EAST: connection})
    bus.send_seconds_max = seconds
    yield bus
    await bus.close()


@pytest.fixture
async def bus(cloud: Cloud) -> AsyncIterator[EncodedBus]:
    async with opened(settings_of(cloud).service_bus[EAST]) as bus:
        yield bus
    cloud.faults.disarm()


async def read(cloud: Cloud, session: str, count: int) -> list[Any]:
    """So many messages of a session, which a reader with azure-servicebus takes out."""
    connection = cloud.namespaces[EAST].connection_string
    found: list[Any] = []
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver(QUEUE, session_id=session) as receiver,
    ):
        while len(found) < count:
            more = await receiver.receive_messages(count, max_wait_time=SECONDS_MAX)
            assert more, f"{len(found)} of {count}"
            for each in more:
                await receiver.complete_message(each)
            found += more
    return found


async def test_a_delayed_copy_becomes_visible_when_the_sdk_s_would(
    cloud: Cloud, bus: EncodedBus
) -> None:
    before = datetime.now(UTC)
    await bus.send(EAST, QUEUE, [message("delayed")], delay_seconds=1.0)
    after = datetime.now(UTC)
    assert cloud.depths()[EAST][QUEUE]["scheduled"] == 1
    (found,) = await read(cloud, "delayed", 1)
    due = found.scheduled_enqueue_time_utc
    assert before + timedelta(seconds=0.99) <= due <= after + timedelta(seconds=1)
    assert datetime.now(UTC) >= due


async def test_what_is_larger_than_a_frame_or_a_batch_comes_whole_and_in_order(
    cloud: Cloud, bus: EncodedBus
) -> None:
    bodies = [b'"' + bytes((97 + place,)) * 300_000 + b'"' for place in range(8)]
    sent = [message("large", place, body) for place, body in enumerate(bodies)]
    await bus.send(EAST, QUEUE, sent)
    assert [b"".join(each.body) for each in await read(cloud, "large", 8)] == bodies


async def test_a_message_that_is_larger_than_the_queue_takes_is_refused_for_good(
    cloud: Cloud, bus: EncodedBus
) -> None:
    bodies = [b'"' + size * b"x" + b'"' for size in (600_000, 600_000, 1_100_000)]
    with pytest.raises(InvalidMessage):
        await bus.send(EAST, QUEUE, [message("refused", n, body) for n, body in enumerate(bodies)])
    assert cloud.depths()[EAST][QUEUE]["active"] == 0, "none of those before it is taken"
    await bus.send(EAST, QUEUE, [message("taken")])
    assert len(await read(cloud, "taken", 1)) == 1


async def test_a_refusal_has_the_class_that_it_has_in_the_app_and_ends_no_later_send(
    cloud: Cloud, bus: EncodedBus
) -> None:
    refusals: dict[int, type[LockstepError]] = {
        429: Throttled,
        401: Misconfigured,
        403: Misconfigured,
        413: InvalidMessage,
        400: Misconfigured,
        404: Misconfigured,
        408: OutcomeUnknown,
        500: OutcomeUnknown,
    }
    for status, error in refusals.items():
        cloud.faults.arm(Fault("servicebus.east", Action.STATUS, "send", status=status, times=1))
        with pytest.raises(error) as raised:
            await bus.send(EAST, QUEUE, [message("refused", status)])
        assert type(raised.value) is error
    await bus.send(EAST, QUEUE, [message("refused")])
    found = await read(cloud, "refused", 1)
    assert [each.message_id for each in found] == ["refused-0"], "nothing is sent twice by itself"


async def test_when_the_connection_breaks_the_same_batch_is_sent_over_a_new_one(
    cloud: Cloud, bus: EncodedBus
) -> None:
    await bus.look(EAST, QUEUE)
    cloud.faults.arm(Fault("servicebus.east", Action.DROP_CONNECTION, "send", times=1))
    (before,) = bus.namespaces[EAST].idle[QUEUE]
    await bus.send(EAST, QUEUE, [message("again")])
    assert before not in bus.namespaces[EAST].idle[QUEUE]
    assert len(await read(cloud, "again", 1)) == 1


async def test_when_the_answer_never_comes_it_is_an_unknown_outcome_after_a_time(
    cloud: Cloud,
) -> None:
    async with opened(settings_of(cloud).service_bus[EAST], seconds=1.0) as bus:
        await bus.look(EAST, QUEUE)
        cloud.faults.arm(Fault("servicebus.east", Action.DROP_ANSWER, "send", times=1))
        with pytest.raises(OutcomeUnknown):
            await bus.send(EAST, QUEUE, [message("unanswered", 0)])
        await bus.send(EAST, QUEUE, [message("unanswered", 1)])
    found = await read(cloud, "unanswered", 2)
    assert [each.message_id for each in found] == ["unanswered-0", "unanswered-1"]


@pytest.mark.parametrize("changed", ["SharedAccessKey=wrong", "EntityPath=lockstep;Wrong"])
async def test_a_key_that_is_wrong_and_what_is_no_connection_string_need_a_person(
    cloud: Cloud, changed: str
) -> None:
    given = cloud.namespaces[EAST].connection_string
    words = [each for each in given.split(";") if not each.startswith(changed.partition("=")[0])]
    async with opened(Connection(connection_string=";".join([*words, changed]))) as bus:
        with pytest.raises(Misconfigured):
            await bus.send(EAST, QUEUE, [message()])


@asynccontextmanager
async def serving(said: bytes) -> AsyncIterator[Connection]:
    """A peer that says so much to whoever connects, and then nothing."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        while await reader.read(1024):
            pass
        writer.close()

    server = await asyncio.start_server(handle, "localhost", 0)
    port = server.sockets[0].getsockname()[1]
    address = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=n;SharedAccessKey=k"
    yield Connection(connection_string=f"{address};UseDevelopmentEmulator=true")
    server.close()
    server.close_clients()


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["nothing", "http"]
)
async def test_when_a_peer_is_silent_or_no_service_bus_a_send_ends_in_a_bounded_time(
    said: bytes,
) -> None:
    async with serving(said) as connection, opened(connection, seconds=0.5) as bus:
        async with asyncio.timeout(SECONDS_MAX):
            with pytest.raises(OutcomeUnknown):
                await bus.send(EAST, QUEUE, [message()])


async def test_when_the_namespace_is_gone_a_send_says_so_at_once() -> None:
    async with serving(b"") as connection:
        pass
    async with opened(connection) as bus:
        for ask in (bus.look(EAST, QUEUE), bus.send(EAST, QUEUE, [message()])):
            with pytest.raises(OutcomeUnknown):
                await ask
