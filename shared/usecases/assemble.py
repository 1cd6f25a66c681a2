"""One worker's use cases, put together around a journal, a bus and a clock."""

from dataclasses import dataclass, field

from shared.domain.arrival import marker_seconds
from shared.domain.handling import Handlers
from shared.domain.journal import Owner
from shared.ports import Clock, Journal
from shared.usecases.acknowledge import Acknowledger
from shared.usecases.claim import Claims
from shared.usecases.command import Commander
from shared.usecases.commit import Committer, Patience
from shared.usecases.compact import Compactor
from shared.usecases.consume import Consumer
from shared.usecases.consume_batch import BatchConsumer
from shared.usecases.coverage import Coverage
from shared.usecases.deliver import Delivery
from shared.usecases.dispatch import Dispatcher
from shared.usecases.drain import Drainer
from shared.usecases.outputs import Outputs
from shared.usecases.process import Processor
from shared.usecases.publish import Producer
from shared.usecases.reject import Rejecter
from shared.usecases.rescue import Rescuer
from shared.usecases.resolve import Resolver
from shared.usecases.services import Services


@dataclass(frozen=True, slots=True)
class Policy:
    """How long things take and where they go; times are in seconds."""

    output_queue: str = "lockstep-out"
    error_queue: str = "lockstep-errors"
    patience: Patience = field(default_factory=Patience)
    lag_seconds: float = 5.0
    acknowledge_seconds: float = 0.0
    lease_seconds: float = 30.0
    window_seconds: float = 7 * 24 * 3600.0
    retention_seconds: float = 7 * 24 * 3600.0
    batches: bool = False


def assemble(
    journal: Journal,
    delivery: Delivery,
    clock: Clock,
    owner: Owner,
    handlers: Handlers,
    producer: Producer,
    policy: Policy,
) -> Services:
    """The use cases of one worker."""
    committer = Committer(journal, clock, owner, policy.patience)
    outputs = Outputs(committer, handlers, delivery.regions, policy.output_queue)
    acknowledger = Acknowledger(journal, clock, policy.acknowledge_seconds)
    dispatcher = Dispatcher(journal, delivery, outputs, acknowledger)
    processor = Processor(
        committer,
        dispatcher,
        outputs,
        handlers,
        error_queue=policy.error_queue,
        marker_seconds=marker_seconds(policy.window_seconds),
    )
    claims = Claims(processor, lease_seconds=policy.lease_seconds)
    drainer = Drainer(claims)
    consumer = Consumer(claims, Coverage(journal), drainer, window_seconds=policy.window_seconds)
    return Services(
        region=owner.region,
        journal=journal,
        consumer=consumer,
        batches=BatchConsumer(consumer),
        commander=Commander(journal, consumer),
        rejecter=Rejecter(delivery, policy.error_queue),
        resolver=Resolver(claims, drainer),
        producer=producer,
        rescuer=Rescuer(
            journal,
            dispatcher,
            claims,
            drainer,
            clock,
            owner.region,
            lag_seconds=policy.lag_seconds,
        ),
        compactor=Compactor(journal, delivery.regions, retention_seconds=policy.retention_seconds),
        handlers=handlers,
        takes_batches=policy.batches,
    )
