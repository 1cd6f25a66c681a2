"""Put one worker's services together: the only place that composes the engine."""

from dataclasses import dataclass

from shared.domain.handler import Handlers
from shared.domain.journal import Owner
from shared.engine.commit.acknowledge import Acknowledgements
from shared.engine.commit.commit import Committer
from shared.engine.consume.claim import Claims
from shared.engine.consume.consume import Consumer
from shared.engine.consume.duplicates import Duplicates
from shared.engine.consume.fold import BatchConsumer
from shared.engine.consume.park import Parking
from shared.engine.dispatch.deliver import Delivery
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.handle.handle import HandlerRunner
from shared.engine.operate.compact import Compactor
from shared.engine.operate.recover import Recovery
from shared.engine.operate.reject import Rejecter
from shared.engine.operate.resolve import Resolver
from shared.engine.publish.publish import Producer
from shared.engine.sagas.steps import Commands
from shared.engine.worker import Policy, Worker
from shared.ports import Clock, Journal


@dataclass(frozen=True, slots=True)
class Services:
    """What the triggers of one function app call. Nothing is connected before it is used."""

    worker: Worker
    consumer: Consumer
    batches: BatchConsumer
    commands: Commands
    rejecter: Rejecter
    resolver: Resolver
    producer: Producer
    recovery: Recovery
    compactor: Compactor

    @property
    def region(self) -> str:
        return self.worker.owner.region

    @property
    def journal(self) -> Journal:
        return self.worker.journal

    @property
    def handlers(self) -> Handlers:
        return self.worker.handlers


def build(
    journal: Journal,
    delivery: Delivery,
    clock: Clock,
    owner: Owner,
    handlers: Handlers,
    producer: Producer,
    policy: Policy,
) -> Services:
    """The services of one worker."""
    worker = Worker(owner, journal, clock, handlers, policy)
    acknowledgements = Acknowledgements(worker)
    committer = Committer(worker, acknowledgements)
    runner = HandlerRunner(worker, delivery.regions)
    dispatcher = Dispatcher(worker, delivery, acknowledgements)
    claims = Claims(worker, committer, dispatcher, runner)
    duplicates = Duplicates(journal)
    parking = Parking(worker, committer, dispatcher, duplicates)
    consumer = Consumer(worker, committer, dispatcher, runner, claims, duplicates, parking)
    return Services(
        worker=worker,
        consumer=consumer,
        batches=BatchConsumer(consumer),
        commands=Commands(consumer),
        rejecter=Rejecter(delivery, policy.error_queue),
        resolver=Resolver(consumer),
        producer=producer,
        recovery=Recovery(consumer),
        compactor=Compactor(journal, delivery.regions, retention_seconds=policy.retention_seconds),
    )
