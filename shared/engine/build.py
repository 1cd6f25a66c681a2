"""Put one worker's services together: the only place that composes the engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from shared.domain.access import Authentication
from shared.domain.handler import Handlers
from shared.domain.journal import Owner
from shared.engine.consume.claim import Claims
from shared.engine.consume.consume import Consumer
from shared.engine.consume.duplicates import Duplicates
from shared.engine.consume.fold import Folder
from shared.engine.consume.park import Parking
from shared.engine.dispatch.acknowledge import Acknowledgements
from shared.engine.dispatch.deliver import Delivery
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.handle.handle import HandlerRunner
from shared.engine.handle.limit import Finish, finish_within
from shared.engine.operate.bulk import BulkDecisions
from shared.engine.operate.compact import Compactor
from shared.engine.operate.dead_letters import DeadLetters
from shared.engine.operate.error_queue import ErrorQueue
from shared.engine.operate.health import Health
from shared.engine.operate.heartbeats import Heartbeats, InHand
from shared.engine.operate.missing_places import Look, MissingPlaces
from shared.engine.operate.outputs import Outputs
from shared.engine.operate.overview import Overview
from shared.engine.operate.recover import Recovery
from shared.engine.operate.reject import Rejecter
from shared.engine.operate.resolve import Resolver
from shared.engine.operate.standstills import Standstills
from shared.engine.operate.watch import Watch
from shared.engine.publish.ingest import Ingest
from shared.engine.publish.publish import Producer
from shared.engine.publish.readiness import Readiness
from shared.engine.worker import Policy, Worker
from shared.ports import Browser, Clock, Telemetry
from shared.storage.journal import Journal


@dataclass(frozen=True, slots=True)
class Services:
    """The services that the triggers of an app call. Nothing is connected before it is used."""

    worker: Worker
    consumer: Consumer
    rejecter: Rejecter
    dead_letters: DeadLetters
    resolver: Resolver
    outputs: Outputs
    standstills: Standstills
    bulk: BulkDecisions
    watch: Watch
    producer: Producer
    readiness: Readiness
    ingest: Ingest
    recovery: Recovery
    compactor: Compactor
    missing_places: MissingPlaces
    health: Health
    errors: ErrorQueue
    # The app's queue by region, with its namespace: apps of other applications have others.
    own_queues: Mapping[str, str] = field(default_factory=dict)
    # Whether the log has a line for each delivery.
    logs_messages: bool = False
    # What callers over HTTP show.
    authentication: Authentication = Authentication.KEYS
    # Where the documentation is served; empty where nobody knows.
    docs_url: str = ""
    # Over the ledgers of producers outside the apps, where these have a container of their own.
    external_ledgers: "Services | None" = None
    # What the regions record of each other, where heartbeats are kept.
    overview: Overview | None = None
    # The deliveries that this worker has in hand.
    in_hand: InHand = field(default_factory=InHand)

    @property
    def region(self) -> str:
        return self.worker.owner.region

    @property
    def journal(self) -> Journal:
        return self.worker.journal

    @property
    def handlers(self) -> Handlers:
        return self.worker.handlers

    @property
    def heartbeats(self) -> Heartbeats | None:
        """Return those of feeds and timers, where they are kept."""
        return self.health.heartbeats


def build(  # noqa: PLR0913 - what a worker is made of
    journal: Journal,
    delivery: Delivery,
    clock: Clock,
    owner: Owner,
    handlers: Handlers,
    producer: Producer,
    policy: Policy,
    containers: dict[str, Look] | None = None,
    *,
    telemetry: Telemetry | None = None,
    browser: Browser | None = None,
    finish: Finish = finish_within,
) -> Services:
    """The services of one worker; `containers` are looked at after the start, with the queues.

    `finish` runs what handlers do outside: in this loop, unless another way is given.
    """
    # What HTTP takes goes out by the same delivery.
    delivery.delays = handlers.delays
    worker = Worker(owner, journal, clock, handlers, policy, telemetry)
    most = delivery.queues.body_bytes_max
    runner = HandlerRunner(worker, delivery.regions, most, finish)
    dispatcher = Dispatcher(worker, delivery, Acknowledgements(worker))
    claims = Claims(worker, dispatcher, runner)
    duplicates = Duplicates(journal)
    parking = Parking(worker, dispatcher, duplicates)
    outputs = Outputs(dispatcher)
    folder = Folder(handlers, delivery.regions, most, policy)
    consumer = Consumer(worker, dispatcher, runner, claims, duplicates, parking, folder)
    rejecter = Rejecter(journal, delivery, consumer.consume)
    ingest = Ingest(producer)
    resolver, standstills = Resolver(consumer, outputs), Standstills(worker, delivery.regions)
    missing_places = MissingPlaces(places_of(delivery, policy) | (containers or {}))
    return Services(
        worker=worker,
        consumer=consumer,
        rejecter=rejecter,
        dead_letters=DeadLetters(consumer, rejecter, delivery),
        resolver=resolver,
        outputs=outputs,
        standstills=standstills,
        bulk=BulkDecisions(worker, standstills, resolver.decide),
        watch=Watch(worker),
        producer=producer,
        readiness=producer.readiness,
        ingest=ingest,
        errors=ErrorQueue(worker, browser, ingest, delivery.queues),
        recovery=Recovery(consumer, claims, dispatcher),
        missing_places=missing_places,
        health=Health(journal, missing_places),
        compactor=Compactor(worker, delivery.regions),
    )


def places_of(delivery: Delivery, policy: Policy) -> dict[str, Look]:
    """Every queue and topic that the settings name, in each region, and how to look at it."""
    queues = delivery.queues
    own = (queues.here, queues.outputs, queues.errors)
    return {
        f"queue {queue!r} of {region}": partial(delivery.bus.look, region, queue)
        for region in delivery.regions
        for queue in (*own, *sorted(policy.reply_queues), *policy.input_topics)
    }
