"""The bus of a feed: azure-servicebus, whose batches are filled with messages encoded already."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError

from shared.adapters.service_bus import Namespace, ServiceBus, to_service_bus
from shared.domain.errors import OutcomeUnknown
from shared.domain.message import Message
from shared.settings import Connection
from spark.send.encoding import encode_schedule, encode_sections

# Encoded messages are kept until every region has had time to take them.
KEPT_BYTES_MAX = 4_000_000
# A data section of a batch has so many bytes beside the message in it; the envelope has the rest.
SECTION_BYTES, ENVELOPE_BYTES = 8, 1_200
# The place of the data sections in a message of the SDK's, which has no public name.
DATA_SECTIONS = 5


@dataclass(eq=False)
class EncodedBus(ServiceBus):
    """See ports.Bus: what goes to several regions is encoded once."""

    kept: dict[int, tuple[Message, bytes]] = field(default_factory=dict)
    kept_bytes: int = 0

    @classmethod
    def of(cls, connections: Mapping[str, Connection]) -> Self:
        """The namespaces of some regions, not connected yet.

        The SDK tries nothing again: it would wait four seconds each time for a namespace that is
        busy, and what waits behind it has a pace of its own (gathering.py).
        """
        namespaces = {r: Namespace(**asdict(one), retries=0) for r, one in connections.items()}
        return cls(namespaces)

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """See Bus.send: when the connection breaks they are sent once more, over a new one."""
        try:
            await super().send(region, queue, messages, delay_seconds=delay_seconds)
        except OutcomeUnknown as error:
            if not isinstance(error.__cause__, ServiceBusConnectionError):
                raise
            # Service Bus closes connections now and then. What it took all the same is recognised
            # by its numbers when it comes again.
            await super().send(region, queue, messages, delay_seconds=delay_seconds)

    async def put_in_batches(
        self, sender: ServiceBusSender, messages: Sequence[Message], visible_at: datetime | None
    ) -> Sequence[ServiceBusMessageBatch]:
        """See ServiceBus: the SDK makes the envelope of the first message, and the rest is ours."""
        schedule = encode_schedule(visible_at)
        batches: list[ServiceBusMessageBatch] = []
        room = 0
        for message in messages:
            part = schedule + self.encode(message)
            size = len(part) + SECTION_BYTES
            if size > room:
                batch = await sender.create_message_batch()
                batch.add_message(to_service_bus(message, visible_at))
                batches.append(batch)
                room = batch.max_size_in_bytes - ENVELOPE_BYTES
            else:
                batches[-1]._message[DATA_SECTIONS].append(part)
            room -= size
        return batches

    def encode(self, message: Message) -> bytes:
        """A message's bytes, which are made once for all regions."""
        found = self.kept.get(id(message))
        if found is not None and found[0] is message:
            return found[1]
        encoded = encode_sections(message)
        self.kept[id(message)] = (message, encoded)
        self.kept_bytes += len(encoded)
        while self.kept_bytes > KEPT_BYTES_MAX:
            _, oldest = self.kept.pop(next(iter(self.kept)))
            self.kept_bytes -= len(oldest)
        return encoded
