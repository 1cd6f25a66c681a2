"""Settings in, services out: the only place that chooses adapters."""

import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from shared.adapters.cosmos import CosmosAccount, CosmosJournal
from shared.adapters.monotonic import MonotonicClock
from shared.adapters.service_bus import Namespace, ServiceBus
from shared.domain.handling import Handlers
from shared.domain.journal import Owner
from shared.settings import Settings
from shared.usecases.commit import Committer, Patience
from shared.usecases.consume import Consumer
from shared.usecases.deliver import Delivery
from shared.usecases.dispatch import Dispatcher
from shared.usecases.process import Processor
from shared.usecases.publish import Producer
from shared.usecases.reject import Rejecter
from shared.usecases.rescue import Rescuer
from shared.usecases.resolve import Resolver
from shared.usecases.services import Services


@dataclass(frozen=True, slots=True)
class Adapters:
    """The outside, as far as a producer needs it."""

    account: CosmosAccount
    journal: CosmosJournal
    bus: ServiceBus
    clock: MonotonicClock
    delivery: Delivery

    @classmethod
    def of(cls, settings: Settings) -> "Adapters":
        """SDK adapters for these settings, not connected yet."""
        account = CosmosAccount(**asdict(settings.cosmos))
        bus = ServiceBus({r: Namespace(**asdict(c)) for r, c in settings.service_bus.items()})
        clock = MonotonicClock()
        delay = settings.secondary_delay_seconds
        return cls(
            account=account,
            journal=CosmosJournal(account, settings.database, settings.journal),
            bus=bus,
            clock=clock,
            delivery=Delivery(bus, clock, settings.regions, delay),
        )


def connect(settings: Settings, handlers: Handlers) -> Services:
    """The services of one function app."""
    outside = Adapters.of(settings)
    journal, clock, delivery = outside.journal, outside.clock, outside.delivery
    owner = Owner(settings.region, instance_name())
    patience = Patience(gap_seconds=settings.gap_wait_seconds)
    dispatcher = Dispatcher(journal, delivery)
    processor = Processor(
        Committer(journal, clock, owner, patience),
        dispatcher,
        handlers,
        output_queue=settings.output_queue,
        error_queue=settings.error_queue,
    )
    consumer = Consumer(processor)
    lag = settings.rescue_lag_seconds
    return Services(
        region=settings.region,
        journal=journal,
        consumer=consumer,
        rejecter=Rejecter(delivery, settings.error_queue),
        resolver=Resolver(processor, consumer),
        producer=Producer(journal, delivery, settings.queue),
        rescuer=Rescuer(journal, dispatcher, clock, settings.region, lag_seconds=lag),
        handlers=handlers,
    )


@asynccontextmanager
async def open_producer(settings: Settings) -> AsyncIterator[Producer]:
    """A producer outside a function app, such as a Spark executor; closed at the end."""
    outside = Adapters.of(settings)
    try:
        yield Producer(outside.journal, outside.delivery, settings.queue)
    finally:
        await outside.bus.close()
        await outside.account.close()


def instance_name() -> str:
    """A name that no other process has or had: attempts are told apart by it."""
    return f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
