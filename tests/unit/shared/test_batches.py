"""What one send of the bus puts together, with the SDK's own batches and no broker."""

import pytest
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from shared.adapters.service_bus import ServiceBus
from shared.domain.message import Message

BATCH_BYTES = 3_600
BUS = ServiceBus({})


class FakeSender(ServiceBusSender):
    """A sender that only makes batches."""

    def __init__(self) -> None:
        pass

    async def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(max_size_in_bytes or BATCH_BYTES)


def of_sizes(*sizes: int) -> list[Message]:
    """Messages whose bodies are so long."""
    return [Message(f"id-{size}", "acc-7", "account.add", b"1" * size) for size in sizes]


async def test_messages_are_in_order_in_as_few_batches_as_take_them() -> None:
    messages = of_sizes(1_000, 1_001, 1_002, 1_003, 2_500)
    batches = await BUS.put_in_batches(FakeSender(), messages, None)

    bodies = [[b"".join(one.body) for one in batch._messages] for batch in batches]
    sizes = [[len(body) for body in batch] for batch in bodies]
    assert sizes == [[1_000, 1_001], [1_002, 1_003], [2_500]]


@pytest.mark.parametrize("before", [(), (1,), (1_000, 1_001, 1_002)])
async def test_one_that_no_batch_takes_is_found_with_them(before: tuple[int, ...]) -> None:
    with pytest.raises(MessageSizeExceededError):
        await BUS.put_in_batches(FakeSender(), of_sizes(*before, BATCH_BYTES, 2), None)
