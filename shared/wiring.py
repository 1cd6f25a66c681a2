"""Settings in, services out: the only place that chooses adapters."""

import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace

from shared.adapters.cosmos import CosmosAccount, CosmosContainer
from shared.adapters.cosmos_leases import CosmosLeases
from shared.adapters.monotonic import MonotonicClock
from shared.adapters.service_bus import Namespace, ServiceBus
from shared.adapters.storage import StorageAccount
from shared.domain.handler import Dispatch, Handlers
from shared.domain.journal import Owner
from shared.domain.message import derive_id
from shared.domain.outbox import AppQueues
from shared.domain.saga.record import kinds_of
from shared.engine.build import Services, build
from shared.engine.dispatch.deliver import Delivery
from shared.engine.handle.limit import WATCHDOG, HandlerLoops
from shared.engine.operate.heartbeats import Heartbeats
from shared.engine.operate.missing_places import Look
from shared.engine.operate.overview import Overview
from shared.engine.publish.publish import Producer
from shared.engine.worker import Policy, WaitLimits
from shared.ports import Telemetry
from shared.settings import InvalidSettings, Settings
from shared.storage.journal import Journal
from shared.storage.kept_queue import KeptQueue

DAY_SECONDS = 24 * 3600.0
# For so long after its start a worker is careful: within five minutes Durable hands out again what
# a dead worker had of a saga.
CAREFUL_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Adapters:
    """The outside, as far as a producer needs it."""

    account: CosmosAccount
    journal: Journal
    bus: ServiceBus
    clock: MonotonicClock
    delivery: Delivery
    telemetry: Telemetry | None = None

    @classmethod
    def of(cls, settings: Settings, telemetry: Telemetry | None = None) -> "Adapters":
        """SDK adapters for these settings, not connected yet."""
        account = CosmosAccount(
            **asdict(settings.cosmos),
            call_seconds=settings.journal_call_seconds,
            locations=settings.cosmos_locations,
            telemetry=telemetry,
        )
        namespaces = {r: Namespace(**asdict(c)) for r, c in settings.service_bus.items()}
        most = settings.body_bytes_max
        bus = ServiceBus(namespaces, telemetry=telemetry, body_bytes_max=most)
        clock = MonotonicClock()
        delay = settings.secondary_delay_seconds
        queues = AppQueues(settings.queue, settings.output_queue, settings.error_queue, most)
        return cls(
            account=account,
            journal=Journal(CosmosContainer(account, settings.database, settings.journal)),
            bus=bus,
            clock=clock,
            delivery=Delivery(
                bus,
                clock,
                settings.regions,
                delay,
                queues,
                affinity=settings.affinity,
                weights=settings.weights,
            ),
            telemetry=telemetry,
        )

    def keep_ledgers(self, settings: Settings) -> "Adapters":
        """The same, with the container of the ledgers in place of the journals'."""
        if not settings.ledgers:
            return self
        container = CosmosContainer(self.account, settings.database, settings.ledgers)
        return replace(self, journal=Journal(container))

    async def close(self) -> None:
        """Disconnect; the next use connects again."""
        await self.bus.close()
        await self.account.close()


def connect(settings: Settings, handlers: Handlers, adapters: Adapters | None = None) -> Services:
    """The services of one function app, over adapters of its own unless some are given.

    Raises InvalidSettings where the app would believe tokens that nobody checks, or where the lag
    of a type is too short.
    """
    settings.require_checked_tokens()
    require_lags(settings, handlers)
    # No other process has or had this name: attempts are told apart by it. A host that has one
    # worker at a time is the parent of the next one, too, which then knows that this one is gone.
    machine, number = socket.gethostname(), time.time_ns()
    instance = f"{machine}-{os.getppid()}/{number}"
    if not settings.has_one_worker:
        instance = f"{machine}-{os.getpid()}-{number}"
    owner = Owner(settings.region, instance)
    outside = adapters or Adapters.of(settings, listen(settings))
    policy = Policy(
        waits=WaitLimits(gap_seconds=settings.gap_wait_seconds),
        lag_seconds=settings.recovery_lag_seconds,
        acknowledge_seconds=settings.acknowledge_seconds,
        standstill_seconds=settings.standstill_seconds,
        lease_seconds=settings.lease_seconds,
        handler_seconds=settings.handler_seconds,
        window_seconds=settings.window_days * DAY_SECONDS,
        retention_seconds=settings.retention_days * DAY_SECONDS,
        keeps_inputs=settings.keeps_inputs,
        reply_queues=settings.reply_queues,
        input_topics=settings.input_topics,
    )
    producer = new_producer(settings, outside)
    leases = CosmosContainer(outside.account, settings.database, settings.leases)
    queue = f"$queue-{derive_id(*sorted(settings.kept_for.values()))}"
    producer.readiness.queue = KeptQueue(leases, queue, settings.journal)
    containers: dict[str, Look] = {
        f"container {name!r}": CosmosContainer(outside.account, settings.database, name).look
        for name in (settings.journal, settings.leases, settings.ledgers)
        if name
    }
    containers["journal and queue of this app"] = producer.readiness.require_regions
    services = build(
        outside.journal,
        outside.delivery,
        outside.clock,
        owner,
        handlers,
        producer,
        policy,
        containers,
        telemetry=outside.telemetry,
        browser=outside.bus,
        finish=HandlerLoops().finish,
    )
    if (storage := settings.storage) is not None and storage.endpoint:
        look = StorageAccount(storage.endpoint, storage.client_id).look
        services.missing_places.watch("storage account of this region", look)
    WATCHDOG.may_end_process(policy.handler_seconds)
    ledgers = outside.keep_ledgers(settings)
    services.worker.careful_until = outside.clock.now() + CAREFUL_SECONDS
    services = replace(
        services,
        own_queues={r: f"{one.host}/{settings.queue}" for r, one in settings.service_bus.items()},
        logs_messages=settings.logs_messages,
        authentication=settings.authentication,
        docs_url=settings.docs_url,
    )
    beside, has_sagas = CosmosLeases(leases), bool(kinds_of(handlers))
    overview = Overview(
        services.standstills, beside, settings.region, settings.regions, has_sagas=has_sagas
    )
    services = replace(services, overview=overview)
    services.health.heartbeats = Heartbeats(
        beside,
        settings.region,
        settings.regions,
        services.in_hand,
        outside.telemetry,
        journal=outside.journal,
        ledgers=ledgers.journal if settings.ledgers else None,
        has_sagas=has_sagas,
    )
    if not settings.ledgers:
        return services
    # Producers outside write to a container of their own. What one of them could not send to a
    # region lies there, and the sweep delivers it as it delivers what lies beside the journal.
    producer = new_producer(settings, ledgers)
    external_ledgers = build(
        ledgers.journal, ledgers.delivery, ledgers.clock, owner, handlers, producer, policy
    )
    services.compactor.ledgers = ledgers.journal
    return replace(services, external_ledgers=external_ledgers)


def require_lags(settings: Settings, handlers: Handlers) -> None:
    """Raise InvalidSettings where outputs would be sent again that wait to be acknowledged."""
    least = settings.acknowledge_seconds
    for one in handlers.by_type.values():
        is_short = one.lag is not None and one.lag.total_seconds() <= least
        if is_short and one.dispatch is Dispatch.IMMEDIATE:
            raise InvalidSettings(
                f"the lag of type {one.message_type!r} must be more than"
                f" LOCKSTEP_ACKNOWLEDGE_SECONDS {least:g}"
            )


def listen(settings: Settings) -> Telemetry | None:
    """Telemetry to where the settings say, or none; a process has it once."""
    if not settings.otlp_endpoint and not settings.insights:
        return None
    # Loaded only where somebody listens.
    from shared.adapters.telemetry import connect_telemetry

    return connect_telemetry(
        settings.region, settings.otlp_endpoint, settings.insights, settings.span_ratio
    )


@asynccontextmanager
async def open_producer(
    settings: Settings, adapters: Adapters | None = None
) -> AsyncIterator[Producer]:
    """A producer outside a function app, such as a Spark executor; closed at the end."""
    outside = adapters or Adapters.of(settings, listen(settings))
    try:
        yield new_producer(settings, outside.keep_ledgers(settings))
    finally:
        await outside.close()


def new_producer(settings: Settings, outside: Adapters) -> Producer:
    return Producer(
        outside.journal,
        outside.delivery,
        settings.replaced_regions,
        settings.trace_ratio,
        settings.kept_for,
    )
