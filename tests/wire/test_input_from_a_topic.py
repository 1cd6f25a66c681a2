"""What is published to a topic of each region is processed once and in order, by the real SDKs.

A host is missing here: the test takes messages from the queues, as its trigger does.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from cli.regions import CONFIG
from local.cloud import Cloud, CloudOptions
from local.config import load_config
from local.servicebus.config import (
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
    subscription_path,
)
from shared.adapters.service_bus import to_plain
from shared.domain import wire
from shared.domain.message import Message
from shared.engine.build import Services
from shared.wiring import Adapters, connect
from tests.cloud import settings_of
from tests.world import handlers, message

pytestmark = [pytest.mark.wire, pytest.mark.proof]

TOPIC, QUEUE, REGIONS = "accounts", "lockstep", ("east", "west")
FEED = subscription_path(TOPIC, QUEUE)
SETTINGS = {"LOCKSTEP_INPUT_TOPICS": TOPIC}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    config = load_config(CONFIG)
    topic = TopicConfig(TOPIC, (SubscriptionConfig(QueueConfig(FEED, forward_to=QUEUE)),))
    namespaces = tuple(replace(one, topics=(topic,)) for one in config.namespaces)
    logs = tmp_path_factory.mktemp("logs")
    with Cloud(replace(config, namespaces=namespaces), CloudOptions(logs=logs)) as cloud:
        yield cloud


def as_published(one: Message, session: str | None, due: datetime | None) -> ServiceBusMessage:
    properties = dict[Any, Any](wire.to_properties(one))
    return ServiceBusMessage(
        one.body,
        session_id=session,
        message_id=one.id,
        application_properties=properties,
        scheduled_enqueue_time_utc=due,
    )


async def publish(cloud: Cloud, region: str, *messages: ServiceBusMessage) -> None:
    connection = cloud.namespaces[region].connection_string
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_topic_sender(TOPIC) as sender,
    ):
        await sender.send_messages(list(messages))


async def consume_queue(cloud: Cloud, services: Services, session: str, count: int) -> list[str]:
    """Process what a region's queue has of a session, as it comes; returns the outcomes."""
    connection = cloud.namespaces[services.region].connection_string
    outcomes: list[str] = []
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver(QUEUE, session_id=session) as receiver,
    ):
        while len(outcomes) < count:
            for received in await receiver.receive_messages(count, max_wait_time=5):
                assert received.session_id == session
                body = b"".join(received.body)
                sent = wire.from_properties(to_plain(received.application_properties or {}), body)
                outcome = await services.consumer.consume(sent)
                outcomes.append(type(outcome).__name__)
                await receiver.complete_message(received)
    return outcomes


async def amounts(services: Services, session: str) -> list[int]:
    head = await services.journal.head(session)
    assert head is not None
    return list((await services.worker.input_after(head)).state["amounts"])


async def test_a_message_published_to_both_topics_is_processed_once_and_in_order(
    cloud: Cloud, adapters: Adapters
) -> None:
    sent = [message(n, session="acc-7", kind="account.bill") for n in range(5)]
    due = {"east": None, "west": datetime.now(UTC) + timedelta(seconds=1)}
    outcomes: dict[str, list[str]] = {}
    for region in REGIONS:
        copies = [as_published(one, "acc-7", due[region]) for one in sent]
        await publish(cloud, region, *copies)
    for region in REGIONS:
        services = connect(settings_of(cloud, region, **SETTINGS), handlers, adapters)
        outcomes[region] = await consume_queue(cloud, services, "acc-7", len(sent))
        assert await amounts(services, "acc-7") == [1, 2, 3, 4, 5]

    # In the second region each is found to be done.
    assert set(outcomes["east"]).isdisjoint(outcomes["west"]), outcomes


async def test_when_a_topic_gives_up_on_a_message_the_sweep_ends_it(
    cloud: Cloud, adapters: Adapters
) -> None:
    services = connect(settings_of(cloud, **SETTINGS), handlers, adapters)
    # Without a session id the queue takes neither: one says its session elsewhere, one nowhere.
    good = as_published(message(0, session="acc-8"), None, None)
    await publish(cloud, "east", good, ServiceBusMessage(b"a fax"))
    assert cloud.namespaces["east"].depth(FEED)["dead_lettered"] == 2

    assert await services.dead_letters.sweep() == 2

    assert cloud.namespaces["east"].depth(FEED)["dead_lettered"] == 0
    assert await amounts(services, "acc-8") == [1]
    assert cloud.depths()["east"]["lockstep-errors"]["active"] == 1
