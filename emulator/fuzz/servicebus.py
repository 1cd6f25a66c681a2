"""Connections to Service Bus: valid sequences of frames, mutated, beside a session that goes on."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from select import select
from typing import Any
from uuid import UUID

import proton
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from proton import Data, Described, int32, symbol, timestamp, ubyte, uint, ulong

from fuzz.campaign import Service
from fuzz.values import damage, fill, mutate
from local.testing import raw_amqp
from local.testing.cloud import CloudProcess
from local.testing.raw_amqp import Frame, described, encode, framed, opened_client, require

STEADY = "steady"  # the queue of the well-behaved client; no case can name it
EXPIRING = {"DefaultMessageTimeToLive": "PT1S"}
QUEUES = {
    STEADY: {"RequiresSession": True, "LockDuration": "PT5M"},
    "orders": {"RequiresSession": True, **EXPIRING},
    **dict.fromkeys(("parcels", "slow"), EXPIRING),
}
NAMESPACE = {
    "Name": "east",
    "Queues": [{"Name": name, "Properties": one} for name, one in QUEUES.items()],
    "Topics": [{"Name": "news", "Properties": EXPIRING, "Subscriptions": [{"Name": "all"}]}],
}
NOTHING = {"Database": "none", "Containers": []}
CONFIG = {"UserConfig": {"Namespaces": [NAMESPACE]}, "Cosmos": NOTHING}
# What is sent there may be applied when its link, session or connection is over.
SLOW = {"component": "servicebus.east", "action": "delay", "entity": "slow", "seconds": 0.01}
ENTITIES = ("orders", "orders", "parcels", "parcels", "slow", "news", "news/Subscriptions/all")
OTHERS = ("$cbs", "parcels/$deadletterqueue", "amqps://localhost/parcels", "nowhere", "", None)
NODES = (*ENTITIES, *ENTITIES, *OTHERS, *(f"{entity}/$management" for entity in ENTITIES))
MAX = 2**32 - 1
UNDESCRIBED: Any = proton.UNDESCRIBED
TOKENS = proton.Array(UNDESCRIBED, Data.UUID, UUID(int=0), UUID(int=7), UUID(int=2**128 - 1))
NUMBERS = proton.Array(UNDESCRIBED, Data.LONG, 1, 2, 2**63 - 1)
FILTER = symbol("com.microsoft:session-filter")
EDGES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 1.5, float("nan"), float("inf"), int32(-1)),
    *map(uint, (0, 1, 2, 5, 255, 256, 499, 2**31 - 1, 2**31, MAX - 1, MAX)),
    *(ubyte(0), ubyte(255), proton.ushort(65_535), ulong(2**64 - 1), timestamp(0)),
    *("", "x", "\0", "orders", "x" * 300, symbol("x"), UUID(int=1), timestamp(2**62)),
    *(b"", b"\xff" * 16, b"\xff" * 300, proton.Array(UNDESCRIBED, Data.LONG), TOKENS),
    *([], ["x"], {}, {"x": 1}, {symbol("x"): None}, {1: 2}, [[[]]], Described(FILTER, "s0")),
    *(described(0x24), described(0x99), described(0x25, None), described(0x27, True, True, {})),
)
SCHEDULED = encode(Described(ulong(0x75), b"body"))
OF_SESSION = {"session-id": "s0"}
CORRELATION = {"correlation-filter": {"label": "x", "properties": {"late": True}}}
REQUESTS: dict[str, Any] = {
    "schedule-message": {"messages": [{"message-id": "1", "message": SCHEDULED}]},
    "cancel-scheduled-message": {"sequence-numbers": NUMBERS},
    "peek-message": {"from-sequence-number": 0, "message-count": int32(5), **OF_SESSION},
    "renew-lock": {"lock-tokens": TOKENS},
    **dict.fromkeys(("renew-session-lock", "get-session-state"), OF_SESSION),
    "set-session-state": {**OF_SESSION, "session-state": b"state"},
    "receive-by-sequence-number": {"sequence-numbers": NUMBERS, "receiver-settle-mode": uint(1)},
    "get-message-sessions": {"last-updated-time": timestamp(0), "skip": int32(0), "top": int32(9)},
    "add-rule": {"rule-name": "late", "rule-description": CORRELATION},
    "remove-rule": {"rule-name": "late"},
    "enumerate-rules": {"top": int32(9), "skip": int32(0)},
    "update-disposition": {"disposition-status": "completed", "lock-tokens": TOKENS},
    "put-token": f"SharedAccessSignature sr=x&sig=x&se=1&skn={raw_amqp.KEY_NAME}",
    "what-there-is-not": {},
}
PLAIN = (symbol("PLAIN"), f"\0{raw_amqp.KEY_NAME}\0{raw_amqp.KEY}".encode())
REFUSED = ([symbol("MSSBCBS"), None], [symbol("PLAIN"), b"x"], ["", ""])
SASL_INIT = (*[list(PLAIN)] * 16, [symbol("ANONYMOUS"), b""], *REFUSED)
# The fields of performatives, and the sections of a message.
OPEN = ["fuzz", "localhost", (uint(512), uint(65_536))]
WINDOWS = [uint(0), uint(5000), uint(0), uint(5000)]
MODES = [tuple(map(ubyte, range(3))), (ubyte(0), ubyte(1))]
TIMEOUT = [None, None, uint(0), None, None, None, {symbol("com.microsoft:timeout"): uint(100)}]
RARELY = (True, False, False, False)
CREDITS = tuple(map(uint, (0, 1, 10, 2**31 - 1, MAX)))
CREDIT = [(uint(0), uint(0), uint(MAX)), CREDITS, None, RARELY]
KIND = (uint(raw_amqp.BATCH), uint(0), uint(0))
SESSION = ("s0", "s1", "s2", None)
FILTERED = [*[None] * 6, (None, {FILTER: SESSION}, {FILTER: Described(FILTER, "s0")})]
INFO = {symbol("DeadLetterReason"): "why", symbol("x"): (1, b"x", "x")}
REJECTED = described(0x25, described(0x1D, symbol("x"), "why", INFO))
MODIFIED = described(0x27, (True, False), (True, False), INFO)
RANGES = ((0, None), (0, None), (0, uint(0)), (0, uint(2)), (1, uint(2)), (MAX, uint(0)))
OUTCOMES = (described(0x24), described(0x26), REJECTED, MODIFIED, None)
SETTLED = [[raw_amqp.RECEIVER, uint(one), to, (True, False), OUTCOMES] for one, to in RANGES]
LATER = {symbol("x-opt-scheduled-enqueue-time"): tuple(map(timestamp, (0, 1, 2**62, -1)))}
MESSAGE = {
    0x70: [True, ubyte(4), tuple(map(uint, (0, 1, 1000, MAX))), None, uint(0)],
    0x72: (LATER, *[{symbol("x-opt-partition-key"): SESSION}] * 9),
    0x73: ["id", None, None, "subject", *[None] * 6, SESSION],
    0x74: {"late": True, "n": 1},
    (0x75, 0x77): (b"body", b"body", b"body" * 50, b"body" * 5000),
}


# All that one client sends, in bursts, and whether frames are not told apart any more: then no
# condition is owed.
type Connection = tuple[list[bytes], bool]


def make_connection(rng: Random) -> Connection:
    frames = [Frame(raw_amqp.OPEN, fill(rng, OPEN), b"", 0)]
    for channel in rng.sample(range(5), rng.randint(1, 3)):
        frames += make_session(rng, channel)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 3))):
        mutate_frames(rng, frames)
    init = framed(raw_amqp.SASL_INIT, *fill(rng, SASL_INIT), kind=1)
    pieces = [raw_amqp.SASL + init + raw_amqp.AMQP]
    for code, fields, payload, channel in frames:
        pieces.append(framed(code, *fields, payload=payload, channel=channel))
        if rng.random() < 0.01:
            pieces[-1] = raw_amqp.enclose(damage(rng, pieces[-1][8:]), channel=channel)
        pieces += [b""] * (code == raw_amqp.BEGIN)  # its answer is waited for
    is_broken = rng.random() < 0.06
    if is_broken:
        at = rng.choice((0, rng.randrange(len(pieces))))
        pieces[at] = damage(rng, pieces[at])
    bursts = [b""]
    for piece in (*pieces, framed(raw_amqp.CLOSE)):
        bursts += [b""] * (not piece or rng.random() < 0.25)
        bursts[-1] += piece
    return bursts, is_broken


def make_session(rng: Random, channel: int) -> Iterator[Frame]:
    """Links that send and links that receive, to and from the same nodes."""

    def frame(code: int, *fields: Any, payload: bytes = b"") -> Frame:
        return Frame(code, fill(rng, list(fields)), payload, channel)

    ids = count(rng.choice((0, 0, 0, 7, 2**31 - 1, MAX)))
    yield frame(raw_amqp.BEGIN, None, *WINDOWS[:2], WINDOWS[3], uint(255))
    for handle in range(0, 2 * rng.randint(1, 4), 2):
        node = rng.choice(NODES)
        ends = (described(raw_amqp.SOURCE, node, *FILTERED), described(raw_amqp.TARGET, node))
        roles = rng.choice(((False,), (True,), (False, True), (False, True)))
        for role in roles:
            link = (f"link-{channel}-{handle + role}", uint(handle + role), role)
            yield frame(raw_amqp.ATTACH, *link, *MODES, *ends, *TIMEOUT)
        for role in rng.choices(roles, k=rng.randint(1, 5)):
            if role is raw_amqp.RECEIVER:
                yield frame(raw_amqp.FLOW, *WINDOWS, uint(handle + role), *CREDIT)
                yield frame(raw_amqp.DISPOSITION, *rng.choice(SETTLED))
                continue
            number = next(ids) % 2**32
            first = (uint(handle), uint(number), str(number).encode(), KIND, rng.random() < 0.2)
            payload = make_payload(rng, node)
            size = len(payload) // rng.choice((1, 1, 1, 3)) + 1
            end = len(payload) + size * (rng.random() < 0.1)  # a last frame may never come
            for at in range(0, len(payload), size):
                part = payload[at : at + size]
                yield frame(raw_amqp.TRANSFER, *first, at + size < end, payload=part)
        if rng.random() < 0.5:
            yield frame(raw_amqp.DETACH, uint(handle + roles[0]), True)
    if rng.random() < 0.5:
        yield frame(raw_amqp.END)


def make_payload(rng: Random, node: str | None) -> bytes:
    """A message, or a request where the node takes some, changed at times."""
    sections, rate = fill(rng, MESSAGE), 0.3
    if "$" in (node or ""):
        name = "put-token" if node == "$cbs" else rng.choice(list(REQUESTS))
        properties = {"operation": name, "type": "servicebus.windows.net:sastoken"}
        first = [rng.choice((uint(1), "request", b"id")), None, None, None, node]
        sections, rate = {0x73: first, 0x74: properties, 0x77: REQUESTS[name]}, 0.7
    if rng.random() < rate:
        code = rng.choice((0x77, 0x77, *sections))
        sections[code] = mutate(rng, sections.get(code), EDGES)
    whole = b"".join(encode(Described(ulong(code), one)) for code, one in sections.items())
    if rng.random() < 0.01:
        whole += b"\0\x53\x77" + raw_amqp.encode_nested(1000)
    return damage(rng, whole) if rng.random() < 0.05 else whole


def mutate_frames(rng: Random, frames: list[Frame]) -> None:
    """Change one frame, or its place among the others."""
    at, other = rng.randrange(len(frames)), rng.randrange(len(frames))
    frame = frames.pop(at)
    fields = mutate(rng, frame.fields, EDGES)
    changed = frame._replace(fields=fields if isinstance(fields, list) else [fields])
    moved = frame._replace(channel=rng.choice((0, 1, 4, 9, 255, 256, 65_535)))
    renamed = frame._replace(code=rng.choice((*range(0x10, 0x19), 0x40, 0x53, 0x99)))
    instead = rng.choice((*[[changed]] * 4, [moved], [renamed], [frame], [frame] * 2, []))
    to = other if instead[:1] == [frame] else at
    frames[to:to] = instead


class ServiceBus(Service[Connection]):
    """A namespace, and a client of it whose messages come once and in order."""

    config = CONFIG
    make = staticmethod(make_connection)

    def __init__(self, cloud: CloudProcess) -> None:
        self._control = cloud.control
        self._text = str(cloud.contract["servicebus"]["east"])
        address = raw_amqp.find_port(self._text)
        self._connect = partial(socket.create_connection, address, raw_amqp.SECONDS_MAX)
        client = ServiceBusClient.from_connection_string(self._text, retry_total=0)
        self._sender = client.get_queue_sender(STEADY)
        self._receiver = client.get_queue_receiver(STEADY, session_id="own", max_wait_time=60)
        self._count = 0
        self._control.arm(SLOW)

    def send(self, case: Connection) -> None:
        bursts, is_broken = case
        received = b""
        with self._connect() as connected, suppress(ConnectionError):
            for burst in bursts:
                connected.sendall(burst)
                # Each burst is read by itself, so that the same case is the same again, and answers
                # are taken before a burst that finds the connection closed resets it. It has been
                # read when a connection is that was made later.
                with self._connect() as later:
                    later.sendall(raw_amqp.SASL)
                    later.recv(1)
                while select([connected], [], [], 0)[0] and (piece := connected.recv(65_536)):
                    received += piece
            with suppress(OSError):  # it has closed already
                connected.shutdown(socket.SHUT_WR)
            while piece := connected.recv(65_536):
                received += piece
        if not is_broken:
            judge_ending(received)

    def check(self) -> None:
        """Send a message, receive it in the session, and settle it; the cases hold no session."""
        self._count += 1
        self._sender.send_messages(ServiceBusMessage(str(self._count), session_id="own"))
        (message,) = self._receiver.receive_messages(1)
        require(str(message) == str(self._count), f"{message} came instead of {self._count}")
        self._receiver.complete_message(message)
        self._receiver.session.renew_lock()
        depths = self._control.read_depths()["east"][STEADY]
        require(not any(depths.values()), f"messages of the well-behaved client are left: {depths}")
        with opened_client(self._text, "orders") as client:
            for session in SESSION[:-1]:
                source = described(raw_amqp.SOURCE, "orders", *[None] * 6, {FILTER: session})
                client.attach(raw_amqp.RECEIVER, "orders", source=source)
                given = client.expect(raw_amqp.ATTACH).fields[5]
                require(given is not None, f"session {session} is not free")


def judge_ending(received: bytes) -> None:
    """Require that SASL refused the connection, or that it ended with a frame that closes it."""
    last, rest = b"", received
    while rest:
        size = 8 if rest.startswith(b"AMQP") else int.from_bytes(rest[:4])
        require(8 <= size <= len(rest), f"a frame is cut: {rest!r}")
        last, rest = rest[:size] if size > 8 else last, rest[size:]
    code = last[4 * last[4] + 2] if last else None
    is_refused = code == raw_amqp.SASL_OUTCOME and raw_amqp.parse_frame(last).fields[0] != 0
    without = f"the connection ended without a condition; its last frame was {last!r}"
    require(is_refused or code == raw_amqp.CLOSE, without)
    require(b"internal" not in last, f"an internal error: {last!r}")
