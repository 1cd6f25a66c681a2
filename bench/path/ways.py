"""The ways that are recorded: a message, a saga's step, and a send in the local broker.

Everything runs for real: the engine over azure-cosmos and azure-servicebus, against the local cloud
in this process. Each way is taken twice before it is recorded, so that connecting, and what is done
for the first message of a session only, do not count.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from azure.servicebus.aio import ServiceBusClient

from bench.load import make_status, to_sdk_message
from bench.path.recorder import RecordedPath, recording
from bench.systems import ROOT
from functions.handlers import orders, tracking
from local.cloud import Cloud, CloudOptions
from local.config import load_config
from shared.domain.handler import Handlers
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas
from shared.settings import Settings
from shared.wiring import Adapters, connect

PRODUCT = ("functions", "shared")
BROKER = ("local",)
WARM_UPS = 2
CONFIG = ROOT / "local.config.json"


async def record_ways() -> dict[str, RecordedPath]:
    async with running_worker() as (services, cloud):
        return {
            "pure message": await record_message(services),
            "saga step": await record_step(services),
            "send in the local broker": await record_send(cloud),
        }


@asynccontextmanager
async def running_worker() -> AsyncIterator[tuple[Services, Cloud]]:
    """A worker of the first region over a local cloud without hosts."""
    handlers = Handlers.joined([tracking.handlers, orders.handlers])
    with (
        tempfile.TemporaryDirectory(prefix="bench-path-") as logs,
        Cloud(load_config(CONFIG), CloudOptions(logs=Path(logs))) as cloud,
    ):
        regions = list(cloud.namespaces)
        settings = Settings.read(
            {
                "LOCKSTEP_REGION": regions[0],
                "LOCKSTEP_REGIONS": ",".join(regions),
                "Cosmos": cloud.cosmos.connection_string,
            }
            | {f"ServiceBus_{n}": one.connection_string for n, one in cloud.namespaces.items()}
        )
        adapters = Adapters.of(settings)
        try:
            yield connect(settings, handlers, adapters), cloud
        finally:
            await adapters.close()


async def record_message(services: Services) -> RecordedPath:
    """From `Consumer.consume` to its answer: a numbered message for a pure handler, in turn."""
    for number in range(WARM_UPS):
        await services.consumer.consume(make_status("N1", number))
    message = make_status("N1", WARM_UPS)
    with recording(PRODUCT) as path:
        await services.consumer.consume(message)
    return path


async def record_step(services: Services) -> RecordedPath:
    """From the activity to its reply: a saga's step in a session that this worker knows."""
    steps = Sagas(services.commands).steps

    def work(number: int) -> dict[str, object]:
        command = {"session": "stock:p", "type": "stock.receive", "body": {"quantity": 1}}
        return {
            "key": "bench",
            "at": datetime.now(UTC).isoformat(),
            "step": {"name": f"step-{number}", "do": command},
            "direction": "do",
        }

    for number in range(WARM_UPS):
        await steps.perform(work(number))
    last = work(WARM_UPS)
    with recording(PRODUCT) as path:
        await steps.perform(last)
    return path


async def record_send(cloud: Cloud) -> RecordedPath:
    """What the broker does with one message on an open link, until the sender has its outcome."""
    connection = next(iter(cloud.namespaces.values())).connection_string
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender("lockstep") as sender,
    ):
        for number in range(WARM_UPS):
            await sender.send_messages(to_sdk_message(make_status("N2", number)))
        message = to_sdk_message(make_status("N2", WARM_UPS))
        with recording(BROKER) as path:
            await sender.send_messages(message)
    return path
