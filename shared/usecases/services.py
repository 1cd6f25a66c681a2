"""The use cases of one function app, as its triggers see them."""

from dataclasses import dataclass

from shared.domain.handling import Handlers
from shared.ports import Journal
from shared.usecases.command import Commander
from shared.usecases.compact import Compactor
from shared.usecases.consume import Consumer
from shared.usecases.consume_batch import BatchConsumer
from shared.usecases.publish import Producer
from shared.usecases.reject import Rejecter
from shared.usecases.rescue import Rescuer
from shared.usecases.resolve import Resolver


@dataclass(frozen=True, slots=True)
class Services:
    """What the triggers call. Nothing is connected before it is used."""

    region: str
    journal: Journal
    consumer: Consumer
    batches: BatchConsumer
    commander: Commander
    rejecter: Rejecter
    resolver: Resolver
    producer: Producer
    rescuer: Rescuer
    compactor: Compactor
    handlers: Handlers
    takes_batches: bool = False
