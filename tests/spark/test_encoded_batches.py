"""The feed's own sending side of AMQP, beside azure-servicebus and over the wire."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus.aio import ServiceBusClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.adapters.service_bus import to_service_bus
from shared.domain.errors import (
    InvalidMessage,
    LockstepError,
    Misconfigured,
    OutcomeUnknown,
    Throttled,
)
from shared.domain.message import Message, Number
from shared.settings import Connection
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import VirtualClock
from spark.send import encoded_bus
from spark.send.amqp import SASL, QueueAddress
from spark.send.encoded_bus import KEPT_BYTES_MAX, EncodedBus, find_address
from spark.send.encoding import (
    Described,
    NoAmqpValue,
    Symbol,
    Uint,
    Ulong,
    decode_value,
    encode_schedule,
    encode_sections,
    encode_value,
    encode_whole_batch,
)
from tests.cloud import settings_of
from tests.spark.bookings import message

EAST, QUEUE = "east", "lockstep"
AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
BODIES = (b"1", '{"note":"Zürich 東京 🚀"}'.encode(), b'"' + 300 * b"x" + b'"')
SEQUENCES = (0, 127, 128, 2**31 - 1)
SECONDS_MAX = 60.0


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


def test_a_batch_has_byte_for_byte_what_the_sdk_makes_of_the_same_messages() -> None:
    for each, schedule in make_variants():
        batch = ServiceBusMessageBatch(10**6)
        batch.add_message(to_service_bus(each, schedule))
        batch.add_message(to_service_bus(message(), None))
        # What the SDK writes has no public name. It is asked here only, to compare.
        theirs = encode_payload(bytearray(), BatchMessage(*batch._message))
        parts = [encode_schedule(schedule) + encode_sections(each), encode_sections(message())]
        assert encode_whole_batch(each, parts) == bytes(theirs)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [False, 0, -128, 127, 128, -(2**31)],
        [Uint(0), Uint(255), Uint(256), Uint(2**32 - 1), Ulong(2**64 - 1)],
        ["", 255 * "x", 256 * "x", "é", Symbol("amqp:not-found")],
        [b"", 256 * b"\xff"],
        {"a": 1, Symbol("b"): {"c": [300 * "d"]}},
        Described(0x28, ["$cbs", None]),
        [],
        300 * [1],
    ],
)
def test_what_is_encoded_is_decoded_and_no_part_of_it_is_taken_for_all(value: Any) -> None:
    data = encode_value(value)
    assert decode_value(data + b"more") == (value, len(data))
    for end in range(len(data)):
        with pytest.raises(NoAmqpValue):
            decode_value(data[:end])


def test_each_message_is_encoded_once_for_all_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Message] = []

    def encode(given: Message) -> bytes:
        made.append(given)
        return encode_sections(given)

    monkeypatch.setattr(encoded_bus, "encode_sections", encode)
    bus = EncodedBus({}, MemoryBus(VirtualClock()))
    messages = [message(sequence=place, body=100_000 * b"1") for place in range(100)]
    for each in messages:
        assert bus.encode(each) is bus.encode(each)
        assert sum(len(data) for _, data in bus.kept.values()) == bus.kept_bytes <= KEPT_BYTES_MAX
    assert made == messages


def test_where_and_how_a_namespace_is_reached() -> None:
    key = "SharedAccessKeyName=n;SharedAccessKey=a+b="
    cloud = "Endpoint=sb://ns.servicebus.windows.net/;" + key
    emulator = f"Endpoint=sb://localhost:5999;{key};UseDevelopmentEmulator=true;"
    named = QueueAddress("ns.servicebus.windows.net", 5671, QUEUE, has_tls=True)
    assert find_address(Connection(connection_string=cloud), QUEUE) == named
    assert find_address(Connection(endpoint="ns.servicebus.windows.net"), QUEUE) == named
    assert find_address(Connection(connection_string=emulator), QUEUE) == QueueAddress(
        "localhost", 5999, QUEUE, has_tls=False
    )
    assert named.audience == "sb://ns.servicebus.windows.net/lockstep"


@asynccontextmanager
async def opened(connection: Connection, seconds: float = SECONDS_MAX) -> AsyncIterator[EncodedBus]:
    bus = EncodedBus({EAST: connection}, MemoryBus(VirtualClock()), send_seconds_max=seconds)
    yield bus
    await bus.close()


@pytest.fixture
async def bus(cloud: Cloud) -> AsyncIterator[EncodedBus]:
    async with opened(settings_of(cloud).service_bus[EAST]) as bus:
        yield bus
    cloud.faults.disarm()


async def read(cloud: Cloud, session: str, count: int) -> list[Any]:
    """So many messages of a session, which a reader with azure-servicebus takes out."""
    connection = cloud.namespaces[EAST].connection_string
    found: list[Any] = []
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver(QUEUE, session_id=session) as receiver,
    ):
        while len(found) < count:
            more = await receiver.receive_messages(count, max_wait_time=SECONDS_MAX)
            assert more, f"{len(found)} of {count}"
            for each in more:
                await receiver.complete_message(each)
            found += more
    return found


async def test_a_delayed_copy_becomes_visible_when_the_sdk_s_would(
    cloud: Cloud, bus: EncodedBus
) -> None:
    before = datetime.now(UTC)
    await bus.send(EAST, QUEUE, [message("delayed")], delay_seconds=1.0)
    after = datetime.now(UTC)
    assert cloud.depths()[EAST][QUEUE]["scheduled"] == 1
    (found,) = await read(cloud, "delayed", 1)
    due = found.scheduled_enqueue_time_utc
    assert before + timedelta(seconds=0.99) <= due <= after + timedelta(seconds=1)
    assert datetime.now(UTC) >= due


async def test_what_is_larger_than_a_frame_or_a_batch_comes_whole_and_in_order(
    cloud: Cloud, bus: EncodedBus
) -> None:
    bodies = [b'"' + bytes((97 + place,)) * 300_000 + b'"' for place in range(8)]
    sent = [message("large", place, body) for place, body in enumerate(bodies)]
    await bus.send(EAST, QUEUE, sent)
    assert [b"".join(each.body) for each in await read(cloud, "large", 8)] == bodies
    assert bus.links[EAST, QUEUE].links["queue"].sent == 3, "batches of at most 1 MiB"


async def test_a_message_that_is_larger_than_the_queue_takes_is_refused_for_good(
    cloud: Cloud, bus: EncodedBus
) -> None:
    await bus.look(EAST, QUEUE)
    bus.links[EAST, QUEUE].batch_bytes_max = 10_000
    bodies = [b'"' + size * b"x" + b'"' for size in (6_000, 6_000, 10_000)]
    with pytest.raises(InvalidMessage):
        await bus.send(EAST, QUEUE, [message("refused", n, body) for n, body in enumerate(bodies)])
    assert bus.links[EAST, QUEUE].links["queue"].sent == 0, "none of those before it is taken"
    # The queue says so itself where we do not know it.
    bus.links[EAST, QUEUE].batch_bytes_max = 10_000_000
    many = [message("refused", place, b'"' + 900_000 * b"x" + b'"') for place in range(2)]
    with pytest.raises(InvalidMessage):
        await bus.send(EAST, QUEUE, many)
    await bus.send(EAST, QUEUE, [message("taken")])
    assert len(await read(cloud, "taken", 1)) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, Throttled),
        (401, Misconfigured),
        (403, Misconfigured),
        (413, InvalidMessage),
        (400, Misconfigured),
        (404, Misconfigured),
        (408, OutcomeUnknown),
        (500, OutcomeUnknown),
    ],
)
async def test_a_refusal_has_the_class_that_the_sdk_s_would_have(
    cloud: Cloud, bus: EncodedBus, status: int, error: type[LockstepError]
) -> None:
    cloud.faults.arm(Fault("servicebus.east", Action.STATUS, "send", status=status, times=1))
    with pytest.raises(error) as raised:
        await bus.send(EAST, QUEUE, [message("refused")])
    assert type(raised.value) is error
    session = f"after-{status}"
    await bus.send(EAST, QUEUE, [message(session)])
    assert len(await read(cloud, session, 1)) == 1


async def test_when_the_connection_breaks_the_same_batch_is_sent_over_a_new_one(
    cloud: Cloud, bus: EncodedBus
) -> None:
    await bus.look(EAST, QUEUE)
    cloud.faults.arm(Fault("servicebus.east", Action.DROP_CONNECTION, "send", times=1))
    before = bus.links[EAST, QUEUE]
    await bus.send(EAST, QUEUE, [message("again")])
    assert before.failure is not None
    assert bus.links[EAST, QUEUE] is not before
    assert len(await read(cloud, "again", 1)) == 1


async def test_when_the_answer_never_comes_it_is_an_unknown_outcome_after_a_time(
    cloud: Cloud,
) -> None:
    async with opened(settings_of(cloud).service_bus[EAST], seconds=1.0) as bus:
        await bus.look(EAST, QUEUE)
        cloud.faults.arm(Fault("servicebus.east", Action.DROP_ANSWER, "send", times=1))
        with pytest.raises(OutcomeUnknown):
            await bus.send(EAST, QUEUE, [message("unanswered", 0)])
        await bus.send(EAST, QUEUE, [message("unanswered", 1)])
    found = await read(cloud, "unanswered", 2)
    assert [each.message_id for each in found] == ["unanswered-0", "unanswered-1"]


async def test_many_sends_may_be_under_way_and_each_has_its_own_outcome(
    cloud: Cloud, bus: EncodedBus
) -> None:
    await bus.look(EAST, QUEUE)
    cloud.faults.arm(Fault("servicebus.east", Action.STATUS, "send", status=429, times=3))
    sends = (bus.send(EAST, QUEUE, [message(f"side-{place}")]) for place in range(40))
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Throttled] * 3 + [type(None)] * 37
    assert len(await read(cloud, "side-3", 1)) == 1
    assert len(bus.links) == 1


async def test_more_is_sent_than_the_queue_gives_credit_for_at_first(
    cloud: Cloud, bus: EncodedBus
) -> None:
    for place in range(600):
        await bus.send(EAST, QUEUE, [message("credit", place)])
    assert len(await read(cloud, "credit", 600)) == 600


async def test_a_token_is_renewed_before_it_expires(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_bus, "SAS_SECONDS", 2.0)
    async with opened(settings_of(cloud).service_bus[EAST]) as bus:
        await bus.look(EAST, QUEUE)
        link = bus.links[EAST, QUEUE]
        async with asyncio.timeout(SECONDS_MAX):
            while link.deliveries < 3:
                await link.wait_for_change()
        await bus.send(EAST, QUEUE, [message("renewed")])
        assert bus.links[EAST, QUEUE] is link
    assert len(await read(cloud, "renewed", 1)) == 1


@pytest.mark.parametrize("changed", ["SharedAccessKey=wrong", "EntityPath=lockstep;Wrong"])
async def test_a_key_that_is_wrong_and_what_is_no_connection_string_need_a_person(
    cloud: Cloud, changed: str
) -> None:
    given = cloud.namespaces[EAST].connection_string
    words = [each for each in given.split(";") if not each.startswith(changed.partition("=")[0])]
    async with opened(Connection(connection_string=";".join([*words, changed]))) as bus:
        with pytest.raises(Misconfigured):
            await bus.send(EAST, QUEUE, [message()])


async def test_an_identity_s_token_is_shown_as_one_and_a_refusal_of_it_needs_a_person(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str | None, str]] = []

    class Identity:
        def __init__(self, *, managed_identity_client_id: str | None) -> None:
            self.client_id = managed_identity_client_id

        async def get_token(self, scope: str) -> AccessToken:
            asked.append((self.client_id, scope))
            return AccessToken("a.token.of-entra", int(time.time()) + 600)

        async def close(self) -> None:
            asked.append((self.client_id, "closed"))

    port = int(cloud.namespaces[EAST].connection_string.split(";")[0].rpartition(":")[2])
    here = QueueAddress("localhost", port, QUEUE, has_tls=False)
    monkeypatch.setattr(encoded_bus, "DefaultAzureCredential", Identity)
    monkeypatch.setattr(encoded_bus, "find_address", lambda *_: here)
    async with opened(Connection(endpoint="ns", client_id="app-1")) as bus:
        # The emulator takes signatures only, and names what it was given.
        with pytest.raises(Misconfigured, match="401"):
            await bus.send(EAST, QUEUE, [message()])
    scope = "https://servicebus.azure.net/.default"
    assert asked == [("app-1", scope), ("app-1", "closed")]


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that nobody has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, *form))
    return files


@asynccontextmanager
async def serving(handle: Any, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(handle, "localhost", 0, ssl=tls)
    yield server.sockets[0].getsockname()[1]
    server.close()
    server.close_clients()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()
    target.close()


async def test_azure_is_reached_over_tls_whose_certificate_is_checked(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = settings_of(cloud).service_bus[EAST]
    plain = find_address(connection, QUEUE)
    certificate, key = make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection(plain.host, plain.port)
        await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))

    async with serving(forward, tls) as port, opened(connection) as bus:
        here = QueueAddress("localhost", port, QUEUE, has_tls=True)
        monkeypatch.setattr(encoded_bus, "find_address", lambda *_: here)
        with pytest.raises(OutcomeUnknown, match="certificate"):
            await bus.send(EAST, QUEUE, [message("unsafe")])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        await bus.send(EAST, QUEUE, [message("safe")])
        assert len(await read(cloud, "safe", 1)) == 1


def answer(data: bytes) -> Any:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        while await reader.read(1024):
            pass
        writer.close()

    return handle


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        SASL + 64 * b"\xff",
        SASL + b"\0\0\0\x10\2\1\0\0\0\x53\x40\xc0\2\1\x40\0",
    ],
    ids=["nothing", "http", "garbage", "no mechanism"],
)
async def test_when_a_peer_is_silent_or_no_service_bus_a_send_ends_in_a_bounded_time(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    async with (
        serving(answer(said)) as port,
        opened(settings_of(cloud).service_bus[EAST], seconds=0.5) as bus,
    ):
        here = QueueAddress("localhost", port, QUEUE, has_tls=False)
        monkeypatch.setattr(encoded_bus, "find_address", lambda *_: here)
        async with asyncio.timeout(SECONDS_MAX):
            with pytest.raises(OutcomeUnknown):
                await bus.send(EAST, QUEUE, [message()])


async def test_when_the_namespace_is_gone_a_send_says_so_at_once(cloud: Cloud) -> None:
    async with serving(answer(b"")) as port:
        pass
    address = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=n;SharedAccessKey=k"
    connection = Connection(connection_string=f"{address};UseDevelopmentEmulator=true")
    async with opened(connection) as bus:
        for ask in (bus.look(EAST, QUEUE), bus.send(EAST, QUEUE, [message()])):
            with pytest.raises(OutcomeUnknown):
                await ask
