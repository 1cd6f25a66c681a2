"""Messages that a feed has encoded itself, beside what azure-servicebus makes of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from shared.adapters.service_bus import ServiceBus
from shared.domain.errors import OutcomeUnknown
from shared.domain.message import Message, Number
from spark.send import encoded_bus
from spark.send.encoded_bus import KEPT_BYTES_MAX, EncodedBus
from spark.send.encoding import encode_sections
from tests.spark.bookings import message

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
BODIES = (b"1", '{"note":"Zürich 東京 🚀"}'.encode(), b'"' + 300 * b"x" + b'"')
SEQUENCES = (0, 127, 128, 2**31 - 1)


class Link:
    """A sender of the SDK's as far as batches are made for it, with a limit of the queue's."""

    def __init__(self, limit: int = 1024 * 1024) -> None:
        self.limit = limit

    async def create_message_batch(self) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(self.limit)


async def fill(bus: ServiceBus, link: Link, messages: list[Message], at: datetime | None) -> Any:
    """The batches that a bus makes, each as the bytes that the SDK writes of it."""
    batches = await bus.put_in_batches(cast("ServiceBusSender", link), messages, at)
    # What the SDK writes has no public name. It is asked here only, to compare.
    return [bytes(encode_payload(bytearray(), BatchMessage(*one._message))) for one in batches]


def make_variants() -> Iterator[tuple[Message, datetime | None]]:
    """Messages whose every field is encoded in its shortest way and in a longer one."""
    times = (None, "2026-01-02T03:04:05+00:00")
    for body, sequence, at, schedule in product(BODIES, SEQUENCES, times, (None, AT)):
        number = Number("bank" if sequence else 10 * "a group ü ", sequence % 2**15, sequence)
        session = "acc-7" if sequence else 128 * "é"
        yield Message(f"id-{sequence}", session, "account.add", body, number, at), schedule
    # Without a number; and with everything else that there can be.
    yield Message("id", "acc-7", "account.add", b"1"), None
    answer = Message("id", "acc-7", "a.b", b"1", None, None, "replies", "r-1", "c-1", 900 * "s")
    yield answer, AT
    yield replace(message(), traceparent=f"00-{32 * '1'}-{16 * '2'}-01"), None


async def test_a_batch_has_byte_for_byte_what_the_sdk_makes_of_the_same_messages() -> None:
    encoded, plain = EncodedBus({}), ServiceBus({})
    for each, schedule in make_variants():
        messages = [each, message(), each]
        (ours,), (theirs,) = [
            await fill(bus, Link(), messages, schedule) for bus in (encoded, plain)
        ]
        assert ours == theirs


async def test_batches_are_filled_as_the_sdk_fills_them_and_are_never_larger() -> None:
    messages = [message(f"acc-{n % 7}", n, b'"' + n * b"x" + b'"') for n in range(0, 2_000, 7)]
    limit = 20_000
    batches = await fill(EncodedBus({}), Link(limit), messages, AT)
    assert max(map(len, batches)) <= limit
    assert len(batches) <= len(await fill(ServiceBus({}), Link(limit - 1_200), messages, AT))
    place = 0
    for data in batches:
        while place < len(messages) and encode_sections(messages[place]) in data:
            place += 1
    assert place == len(messages), "all of them, and in order"


async def test_each_message_is_encoded_once_for_all_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Message] = []

    def encode(given: Message) -> bytes:
        made.append(given)
        return encode_sections(given)

    monkeypatch.setattr(encoded_bus, "encode_sections", encode)
    bus = EncodedBus({})
    messages = [message(sequence=place, body=100_000 * b"1") for place in range(100)]
    for each in messages:
        assert bus.encode(each) is bus.encode(each)
        assert sum(len(data) for _, data in bus.kept.values()) == bus.kept_bytes <= KEPT_BYTES_MAX
    assert made == messages


def test_a_message_in_the_place_of_one_that_is_gone_has_bytes_of_its_own() -> None:
    bus, gone, here = EncodedBus({}), message("gone"), message("here")
    # Python gives the address of what is gone to what comes next.
    bus.kept[id(here)] = (gone, encode_sections(gone))
    assert bus.encode(here) == encode_sections(here)


LOST, SILENT = ServiceBusConnectionError(message="closed"), TimeoutError("ten seconds")
SILENT_SDK = OperationTimeoutError(message="a minute")
REFUSED = ServiceBusServerBusyError(message="internal error")


@pytest.mark.parametrize(
    ("causes", "sends", "is_sent"),
    [
        ([], 1, True),
        ([LOST], 2, True),
        ([LOST, LOST], 2, False),
        ([SILENT], 1, False),
        ([SILENT_SDK], 1, False),
        ([REFUSED], 1, False),
    ],
)
async def test_when_a_connection_breaks_the_same_is_sent_once_more_and_no_other_doubt_is(
    monkeypatch: pytest.MonkeyPatch, causes: list[Exception], sends: int, is_sent: bool
) -> None:
    asked: list[Sequence[Message]] = []

    async def send(_bus: ServiceBus, _region: str, _queue: str, messages: Any, **_: Any) -> None:
        asked.append(messages)
        if len(asked) <= len(causes):
            raise OutcomeUnknown("nobody knows") from causes[len(asked) - 1]

    monkeypatch.setattr(ServiceBus, "send", send)
    messages = [message()]
    try:
        await EncodedBus({}).send("east", "lockstep", messages)
    except OutcomeUnknown:
        assert not is_sent
    else:
        assert is_sent
    assert asked == sends * [messages]
