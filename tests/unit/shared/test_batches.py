"""What one send of the bus puts together, with the SDK's own batches and no broker."""

import sys
from datetime import UTC, datetime

import pytest
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from shared.adapters.service_bus import Namespace, ServiceBus, to_service_bus
from shared.domain.errors import Misconfigured
from shared.domain.message import (
    BODY_BYTES_MAX_BY_SKU,
    GROUP_CHARACTERS_MAX,
    ID_CHARACTERS_MAX,
    OWNER_LEVEL_MAX,
    QUEUE_CHARACTERS_MAX,
    SEQUENCE_MAX,
    SOURCE_CHARACTERS_MAX,
    TYPE_CHARACTERS_MAX,
    Message,
    Number,
)

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


@pytest.mark.parametrize(("sku", "kibibytes"), [("Standard", 256), ("Premium", 1_024)])
async def test_the_largest_body_fits_a_message_with_the_longest_properties(
    sku: str, kibibytes: int
) -> None:
    # Three bytes for each character that Service Bus counts.
    longest = "\u65e5" * ID_CHARACTERS_MAX
    message = Message(
        longest,
        longest,
        "\u65e5" * TYPE_CHARACTERS_MAX,
        b"1" * BODY_BYTES_MAX_BY_SKU[sku],
        Number("\u65e5" * GROUP_CHARACTERS_MAX, OWNER_LEVEL_MAX, SEQUENCE_MAX),
        time="2026-11-27T05:17:00.000000+00:00",
        reply_to="\u65e5" * QUEUE_CHARACTERS_MAX,
        reply_session=longest,
        correlation=longest,
        source="\u65e5" * SOURCE_CHARACTERS_MAX,
        traceparent="00-" + "a" * 52,
    )

    batch = ServiceBusMessageBatch(kibibytes * 1_024)
    batch.add_message(to_service_bus(message, datetime(2026, 11, 27, tzinfo=UTC)))

    assert len(batch) == 1


@pytest.mark.parametrize(("takes", "is_enough"), [(262_144, False), (1_048_576, True)])
async def test_a_queue_that_takes_less_than_the_settings_say_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch, takes: int, is_enough: bool
) -> None:
    namespace = Namespace("", None, None)
    bus = ServiceBus({"east": namespace}, body_bytes_max=BODY_BYTES_MAX_BY_SKU["Premium"])
    namespace.idle["lockstep"].append(FakeSender())
    monkeypatch.setattr(sys.modules[__name__], "BATCH_BYTES", takes)

    if is_enough:
        await bus.look("east", "lockstep")
    else:
        with pytest.raises(Misconfigured, match="takes 262144 bytes, but LOCKSTEP_SERVICE_BUS_SKU"):
            await bus.look("east", "lockstep")

    assert len(namespace.idle["lockstep"]) == 1
