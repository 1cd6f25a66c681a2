"""What one send of the bus puts together, with the SDK's own batches and no broker."""

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from shared.adapters.service_bus import send_in_batches

BATCH_BYTES = 3_000


class FakeSender(ServiceBusSender):
    """A sender that keeps what it is given to send: how long the bodies are, batch by batch."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []

    async def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(max_size_in_bytes or BATCH_BYTES)

    async def send_messages(self, message: object, **_: object) -> None:
        assert isinstance(message, ServiceBusMessageBatch)
        bodies = [b"".join(one.body) for one in message._messages]
        self.sent.append([len(body) for body in bodies])


def of_sizes(*sizes: int) -> list[ServiceBusMessage]:
    """Messages whose bodies are so long."""
    return [ServiceBusMessage(b"x" * size) for size in sizes]


async def test_messages_go_out_in_order_in_as_few_batches_as_take_them() -> None:
    sender = FakeSender()

    await send_in_batches(sender, of_sizes(1_000, 1_001, 1_002, 1_003, 2_500))

    assert sender.sent == [[1_000, 1_001], [1_002, 1_003], [2_500]]


@pytest.mark.parametrize("before", [(), (1,), (1_000, 1_001, 1_002)])
async def test_before_one_that_no_batch_takes_none_goes_out(before: tuple[int, ...]) -> None:
    sender = FakeSender()

    with pytest.raises(MessageSizeExceededError):
        await send_in_batches(sender, of_sizes(*before, BATCH_BYTES, 2))

    assert sender.sent == []
