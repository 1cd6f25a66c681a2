"""Connections to Service Bus: valid sequences of frames, mutated, beside a session that goes on."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from random import Random
from select import select
from typing import Any
from uuid import UUID

from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    Message,
    int32,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from fuzz.campaign import Found, Fuzzed
from fuzz.values import damage, mutate
from local.testing import raw_amqp
from local.testing.cloud import CloudProcess
from local.testing.raw_amqp import Frame, described, encode, framed, opened_client

RUN = re.compile(r"(\w{2,8}?)\1{8,}")
STEADY = "steady"  # the queue of the well-behaved client; no case can name it
CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "east",
                "Queues": [
                    {"Name": STEADY, "Properties": {"RequiresSession": True}},
                    {
                        "Name": "orders",
                        "Properties": {"RequiresSession": True, "DefaultMessageTimeToLive": "PT1S"},
                    },
                    {"Name": "parcels", "Properties": {"DefaultMessageTimeToLive": "PT1S"}},
                ],
                "Topics": [
                    {
                        "Name": "news",
                        "Properties": {"DefaultMessageTimeToLive": "PT1S"},
                        "Subscriptions": [{"Name": "all"}],
                    }
                ],
            }
        ]
    },
    "Cosmos": {"Database": "none", "Containers": []},
}
ENTITIES = ("orders", "orders", "parcels", "parcels", "news", "news/Subscriptions/all")
NODES = (*ENTITIES, "parcels/$deadletterqueue", "amqps://localhost/parcels", "nowhere", "", None)
SESSIONS = ("s0", "s1", "s2", None)
FILTER = symbol("com.microsoft:session-filter")
TOKENS = (UUID(int=0), UUID(int=7), UUID(int=2**128 - 1))
NO_DESCRIPTOR: Any = UNDESCRIBED
EDGES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 1.5, float("nan"), float("inf"), int32(-1)),
    *map(uint, (0, 1, 2, 5, 255, 256, 499, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)),
    *(ubyte(0), ubyte(255), ushort(65_535), ulong(2**64 - 1), timestamp(0), timestamp(2**62)),
    *(
        "",
        "x",
        "\0",
        "orders",
        "x" * 300,
        b"",
        b"\xff" * 16,
        b"\xff" * 300,
        symbol("x"),
        UUID(int=1),
    ),
    *(
        [],
        ["x"],
        {},
        {"x": 1},
        {symbol("x"): None},
        {1: 2},
        [[[]]],
        described(0x24),
        described(0x99),
    ),
    *(
        described(0x25, None),
        described(0x27, True, True, {symbol("x"): 1}),
        Described(FILTER, "s0"),
    ),
    *(Array(NO_DESCRIPTOR, Data.LONG), Array(NO_DESCRIPTOR, Data.UUID, *TOKENS)),
)
NUMBERS = Array(NO_DESCRIPTOR, Data.LONG, 1, 2, 2**63 - 1)
CORRELATION = {"correlation-filter": {"label": "x", "properties": {"late": True}}}
SESSION = {"session-id": "s0"}
REQUESTS: dict[str, dict[Any, Any]] = {
    "schedule-message": {"messages": [{"message-id": "1", **SESSION, "message": b""}]},
    "cancel-scheduled-message": {"sequence-numbers": NUMBERS},
    "peek-message": {"from-sequence-number": 0, "message-count": int32(5), **SESSION},
    "renew-lock": {"lock-tokens": Array(NO_DESCRIPTOR, Data.UUID, *TOKENS)},
    "renew-session-lock": SESSION,
    "get-session-state": SESSION,
    "set-session-state": {**SESSION, "session-state": b"state"},
    "receive-by-sequence-number": {
        "sequence-numbers": NUMBERS,
        "receiver-settle-mode": uint(1),
        **SESSION,
    },
    "get-message-sessions": {
        "last-updated-time": timestamp(0),
        "skip": int32(0),
        "top": int32(9),
    },
    "add-rule": {"rule-name": "late", "rule-description": CORRELATION},
    "remove-rule": {"rule-name": "late"},
    "enumerate-rules": {"top": int32(9), "skip": int32(0)},
    "update-disposition": {
        "disposition-status": "completed",
        "lock-tokens": Array(NO_DESCRIPTOR, Data.UUID, *TOKENS),
    },
    "what-there-is-not": {},
}
PLAIN_KEY = f"\0{raw_amqp.KEY_NAME}\0{raw_amqp.KEY}".encode()
ACCEPTED = described(raw_amqp.ACCEPTED)
OUTCOMES = (ACCEPTED, described(0x26), described(0x25, None), described(0x27, True), None)


@dataclass(frozen=True, slots=True)
class Connection:
    """All that one client sends, in bursts.

    `is_broken` says that frames are not told apart any more, so that no condition is owed.
    """

    bursts: list[bytes]
    is_broken: bool

    def describe(self) -> str:
        return "\n".join(shorten(burst.hex()) for burst in self.bursts)


def shorten(text: str) -> str:
    return RUN.sub(lambda found: f"<{found[1]} {len(found[0]) // len(found[1])} times>", text)


def make_connection(rng: Random) -> Connection:
    frames = [Frame(raw_amqp.OPEN, ["fuzz", "localhost", uint(rng.choice((512, 65_536)))], b"", 0)]
    for channel in rng.sample(range(5), rng.randint(1, 3)):
        frames += list(make_session(rng, channel))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        mutate_frames(rng, frames)
    encoded = [
        framed(one.code, *one.fields, payload=one.payload, channel=one.channel) for one in frames
    ]
    for _ in range(rng.choice((0, 0, 1))):
        at = rng.randrange(len(encoded))
        channel = int.from_bytes(encoded[at][6:8])
        encoded[at] = raw_amqp.enclose(damage(rng, encoded[at][8:]), channel=channel)
    is_broken = rng.random() < 0.05
    if is_broken:
        at = rng.randrange(len(encoded))
        encoded[at] = damage(rng, encoded[at])
    start, is_odd = make_opening(rng)
    bursts = [start]
    for one in (*encoded, framed(raw_amqp.CLOSE)):
        if rng.random() < 0.1:
            bursts.append(one)
        else:
            bursts[-1] += one
    return Connection(bursts, is_broken or is_odd)


def make_opening(rng: Random) -> tuple[bytes, bool]:
    """The bytes before the first frame, and whether they are damaged."""
    mechanism, response = rng.choices(
        (("PLAIN", PLAIN_KEY), ("ANONYMOUS", b""), ("MSSBCBS", None), ("PLAIN", b"x"), ("", "")),
        (16, 1, 1, 1, 1),
    )[0]
    init = framed(raw_amqp.SASL_INIT, symbol(mechanism), response, kind=1)
    opening = raw_amqp.SASL + init + raw_amqp.AMQP
    is_odd = rng.random() < 0.03
    return (damage(rng, opening) if is_odd else opening), is_odd


def make_session(rng: Random, channel: int) -> Iterator[Frame]:
    yield Frame(raw_amqp.BEGIN, [None, uint(0), uint(5000), uint(5000), uint(255)], b"", channel)
    ids = count(rng.choice((0, 0, 0, 7, 2**31 - 1, 2**32 - 1)))
    for handle in range(0, 2 * rng.randint(1, 4), 2):
        link = rng.choice((send_messages, send_messages, receive_messages, manage))
        yield from link(rng, channel, handle, ids)
        if rng.random() < 0.5:
            yield Frame(raw_amqp.DETACH, [uint(handle), True], b"", channel)
    if rng.random() < 0.5:
        yield Frame(raw_amqp.END, [], b"", channel)


def attach(rng: Random, channel: int, handle: int, role: bool, node: str | None) -> Frame:
    source, target = described(raw_amqp.SOURCE, node), described(raw_amqp.TARGET, node)
    session = rng.choice(SESSIONS)
    if role is raw_amqp.RECEIVER and rng.random() < 0.6:
        filters = {FILTER: rng.choice((session, Described(FILTER, session)))}
        source = described(raw_amqp.SOURCE, node, *[None] * 6, filters)
    settle = (ubyte(rng.randrange(3)), ubyte(rng.randrange(2)))
    fields: list[Any] = [
        f"link-{channel}-{handle}",
        uint(handle),
        role,
        *settle,
        source,
        target,
        None,
        None,
    ]
    fields += [uint(0), None, None, None, {symbol("com.microsoft:timeout"): uint(100)}]
    return Frame(raw_amqp.ATTACH, fields, b"", channel)


def transfer(
    rng: Random, channel: int, handle: int, ids: Iterator[int], payload: bytes
) -> list[Frame]:
    """A transfer, of several frames at times, the last of which may never come."""
    delivery_id = next(ids) % 2**32
    kind = uint(rng.choice((0, 0, raw_amqp.BATCH)))
    start = [uint(handle), uint(delivery_id), str(delivery_id).encode(), kind]
    size = len(payload) // rng.choice((1, 1, 1, 3)) + 1
    pieces = [payload[at : at + size] for at in range(0, len(payload) or 1, size)]
    is_finished = rng.random() < 0.9
    return [
        Frame(
            raw_amqp.TRANSFER,
            [*start, rng.random() < 0.2, at < len(pieces) - is_finished],
            piece,
            channel,
        )
        for at, piece in enumerate(pieces)
    ]


def make_message(rng: Random) -> bytes:
    """The sections of a message, one of them mutated at times, in bytes that may be damaged."""
    session = rng.choice(SESSIONS)
    times = {symbol("x-opt-scheduled-enqueue-time"): timestamp(rng.choice((0, 1, 2**62, -1)))}
    parts: list[tuple[int, Any]] = [
        (0x70, [True, ubyte(4), uint(rng.choice((0, 1, 1000, 2**32 - 1))), None, uint(0)]),
        (0x72, times if rng.random() < 0.1 else {symbol("x-opt-partition-key"): session}),
        (
            0x73,
            ["id", None, None, "subject", None, None, symbol("text"), None, None, None, session],
        ),
        (0x74, {"late": True, "n": 1}),
        (rng.choice((0x75, 0x77)), b"body" * rng.choice((1, 1, 50, 5000))),
    ]
    if rng.random() < 0.3:
        at = rng.randrange(len(parts))
        parts[at] = (parts[at][0], mutate(rng, parts[at][1], EDGES))
    whole = b"".join(encode(Described(ulong(code), value)) for code, value in parts)
    return damage(rng, whole) if rng.random() < 0.1 else whole


def send_messages(rng: Random, channel: int, handle: int, ids: Iterator[int]) -> Iterator[Frame]:
    yield attach(rng, channel, handle, raw_amqp.SENDER, rng.choice(NODES))
    for _ in range(rng.randint(0, 4)):
        yield from transfer(rng, channel, handle, ids, make_message(rng))


def flow(rng: Random, channel: int, handle: int) -> Frame:
    windows = [uint(0), uint(5000), uint(0), uint(5000)]
    credit = uint(rng.choice((0, 1, 10, 2**31 - 1, 2**32 - 1)))
    link = [uint(handle), uint(rng.choice((0, 0, 2**32 - 1))), credit, None, rng.random() < 0.2]
    return Frame(raw_amqp.FLOW, windows + link, b"", channel)


def receive_messages(rng: Random, channel: int, handle: int, _ids: object) -> Iterator[Frame]:
    yield attach(rng, channel, handle, raw_amqp.RECEIVER, rng.choice(NODES))
    for _ in range(rng.randint(1, 3)):
        yield flow(rng, channel, handle)
        first, is_settled = rng.choice((0, 0, 1, 2**32 - 1)), rng.random() < 0.5
        last = rng.choice((None, uint(first), uint((first + 1) % 2**32)))
        fields = [raw_amqp.RECEIVER, uint(first), last, is_settled, rng.choice(OUTCOMES)]
        yield Frame(raw_amqp.DISPOSITION, fields, b"", channel)


def manage(rng: Random, channel: int, handle: int, ids: Iterator[int]) -> Iterator[Frame]:
    node = rng.choice(("$cbs", *(f"{entity}/$management" for entity in ENTITIES)))
    yield attach(rng, channel, handle, raw_amqp.SENDER, node)
    yield attach(rng, channel, handle + 1, raw_amqp.RECEIVER, node)
    yield flow(rng, channel, handle + 1)
    for _ in range(rng.randint(1, 4)):
        name, body = rng.choice(list(REQUESTS.items()))
        properties = {"operation": f"com.microsoft:{name}"}
        value: Any = body
        if node == "$cbs":
            properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken"}
            value = f"SharedAccessSignature sr=x&sig=x&se=1&skn={raw_amqp.KEY_NAME}"
        elif name == "schedule-message":
            value = {"messages": [{"message-id": "1", "message": make_message(rng)}]}
        parts = [[rng.choice((uint(1), "request")), None, None, None, node], properties, value]
        if rng.random() < 0.6:
            at = rng.choice((0, 1, 2, 2, 2, 2))
            parts[at] = mutate(rng, parts[at], EDGES)
        sections = zip((0x73, 0x74, 0x77), parts, strict=True)
        payload = b"".join(encode(Described(ulong(code), one)) for code, one in sections)
        yield from transfer(rng, channel, handle, ids, payload)


def mutate_frames(rng: Random, frames: list[Frame]) -> None:
    """Change one frame, or its place among the others."""
    at, other = rng.randrange(len(frames)), rng.randrange(len(frames))
    frame = frames[at]
    match rng.choice(
        ("field", "field", "field", "field", "drop", "repeat", "swap", "channel", "kind")
    ):
        case "field":
            frames[at] = frame._replace(fields=as_list(mutate(rng, frame.fields, EDGES)))
        case "drop" if len(frames) > 1:
            del frames[at]
        case "repeat":
            frames.insert(other, frame)
        case "swap":
            frames[at], frames[other] = frames[other], frame
        case "channel":
            frames[at] = frame._replace(channel=rng.choice((0, 1, 4, 9, 255, 256, 65_535)))
        case _:
            frames[at] = frame._replace(code=rng.choice((*range(0x10, 0x19), 0x40, 0x53, 0x99)))


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class ServiceBusTarget:
    """A namespace, and a client of it whose messages come once and in order."""

    def __init__(self, cloud: CloudProcess) -> None:
        self._cloud = cloud
        self._text = str(cloud.contract["servicebus"]["east"])
        self._address = raw_amqp.find_port(self._text)
        self._open = ExitStack()
        self._client = self._open.enter_context(opened_client(self._text, STEADY))
        self._sender = self._client.attach(raw_amqp.SENDER, STEADY)
        self._client.outcome()  # of the request by which it was authorized
        self._count = 0

    def send(self, case: Connection) -> None:
        received = bytearray()
        with socket.create_connection(self._address, timeout=raw_amqp.SECONDS_MAX) as connected:
            try:
                for burst in case.bursts:
                    connected.sendall(burst)
                    # Each burst is read by itself, so that the same case is the same again, and
                    # answers are taken before a burst that finds the connection closed resets it.
                    self._wait_until_read()
                    while select([connected], [], [], 0)[0]:
                        received += take(connected)
                connected.shutdown(socket.SHUT_WR)
                while True:
                    received += take(connected)
            except TimeoutError as error:
                raise Found(f"no end comes; received: {received.hex()}") from error
            except (EOFError, OSError):
                pass  # it has closed
        if not case.is_broken:
            judge_ending(bytes(received))

    def _wait_until_read(self) -> None:
        """Return when the namespace has read what was sent: it takes a later connection later."""
        with socket.create_connection(self._address, timeout=raw_amqp.SECONDS_MAX) as other:
            other.sendall(raw_amqp.SASL)
            take(other)

    def check(self) -> None:
        """Send a message, receive it in the session, and settle it."""
        self._count += 1
        client, body = self._client, str(self._count)
        message = Message(body=body, group_id="own")
        sent = client.transfer(self._sender, bytes(message.encode()))
        filters = {FILTER: Described(FILTER, "own")}
        source = described(raw_amqp.SOURCE, STEADY, *[None] * 6, filters)
        receiver = client.attach(raw_amqp.RECEIVER, STEADY, source=source)
        # The answer to the request for authorization was the first that came.
        windows = (uint(self._count), uint(5000), uint(client.delivery_id), uint(5000))
        client.write(raw_amqp.FLOW, *windows, uint(receiver), uint(0), uint(2))
        answers: dict[int, Frame] = {}
        while not answers.keys() >= {raw_amqp.DISPOSITION, raw_amqp.TRANSFER}:
            frame = client.read()
            raw_amqp.require(frame.code not in (raw_amqp.END, raw_amqp.CLOSE), frame)
            answers[frame.code] = frame
        accepted, came = answers[raw_amqp.DISPOSITION].fields, answers[raw_amqp.TRANSFER]
        is_accepted = accepted[1] == sent and accepted[4].descriptor == raw_amqp.ACCEPTED
        raw_amqp.require(is_accepted, accepted)
        got = Message()
        got.decode(came.payload)
        raw_amqp.require(got.body == body, f"{got.body!r} came instead of {body!r}")
        delivery_id = came.fields[1]
        client.write(raw_amqp.DISPOSITION, raw_amqp.RECEIVER, delivery_id, None, False, ACCEPTED)
        raw_amqp.require(client.outcome()[0] == delivery_id, "another delivery was settled")
        client.write(raw_amqp.DETACH, uint(receiver), True)
        client.expect(raw_amqp.DETACH)

    def finish(self) -> None:
        """Raise Found if a message is left, or a session that a case has taken is not free."""
        self._open.close()
        depths = self._cloud.control.read_depths()["east"]
        if any(depths[STEADY].values()):
            raise Found(f"messages of the well-behaved client are left: {depths[STEADY]}")
        with opened_client(self._text, "orders") as client:
            for session in filter(None, SESSIONS):
                source = described(raw_amqp.SOURCE, "orders", *[None] * 6, {FILTER: session})
                client.attach(raw_amqp.RECEIVER, "orders", source=source)
                if client.expect(raw_amqp.ATTACH).fields[5] is None:
                    raise Found(f"session {session} is not free")


def take(connected: socket.socket) -> bytes:
    """The next bytes; raises EOFError when there are no more."""
    piece = connected.recv(65_536)
    if not piece:
        raise EOFError
    return piece


def judge_ending(received: bytes) -> None:
    """Raise Found unless a connection was refused by SASL, or ended with a frame that closes it."""
    last: Frame | None = None
    at = 0
    while at < len(received):
        if received.startswith(b"AMQP", at):
            at += 8
            continue
        size = int.from_bytes(received[at : at + 4])
        if size < 8 or at + size > len(received):
            raise Found(f"a frame is cut: {received[at:].hex()}")
        if size > 8:
            last = raw_amqp.parse_frame(received[at : at + size])
        at += size
    if last is None or last.code not in (raw_amqp.CLOSE, raw_amqp.SASL_OUTCOME):
        raise Found(f"the connection ended without a condition; its last frame was {last}")
    if last.code == raw_amqp.SASL_OUTCOME and last.fields[0] == 0:
        raise Found("the connection ended behind its SASL outcome, without a condition")
    if "internal" in str(last.fields):
        raise Found(f"an internal error: {last}")


SERVICE_BUS = Fuzzed(CONFIG, make_connection, ServiceBusTarget)
