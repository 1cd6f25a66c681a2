"""Frames between the socket and Proton: what Proton would refuse, and what it does not tell.

Delivery-ids have to rise by one from transfer to transfer of a session (part 2, section 2.6.12).
azure-servicebus sends from several threads without a lock, so ids are repeated or come out of
order; Azure takes that, Proton closes the connection. So Proton is given ids of its own, and the
client is answered under those that it sent. Only ids that differ are kept, until they are settled.
Dispositions that a client sends as a sender are not translated: SDKs send none.

Proton's Python binding does not tell the message-format of a transfer, which says whether it is a
batch.

A client may have frames under way on a session that it has ended, or a link that it has detached:
Microsoft's do, because they write from several threads. Proton closes the connection for it, with
all else that goes over it. Microsoft's library of AMQP can let such frames pass (Azure/azure-amqp,
`IgnoreMissingSessions` and `IgnoreMissingLinks`), and so they do here until their channel or handle
is used again. Those for a channel or handle that never was are left to Proton.

What is received and deleted has no lock token: SDKs take an empty delivery-tag for that. Proton
writes null instead, though the field has to be there (part 2, section 2.7.5). So Proton is given a
tag that stands for none, and it is emptied here.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from local.servicebus.amqp.message_format import (
    LIST32,
    NULL,
    Undecodable,
    elements_of,
    encode_section,
    encode_string,
    encode_symbol,
    end_of,
    offsets_of,
    scalar_at,
)

PROTOCOL = b"AMQP"
FRAME_HEADER_BYTES = 8
FRAME_BYTES_MAX = 65_536
BATCH_FORMAT = 0x80013700
# Performatives, described as every client writes it.
BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END = (
    b"\0\x53" + bytes((code,)) for code in range(0x11, 0x18)
)
OF_SESSIONS = {BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END}
CLOSE, ERROR = b"\0\x53\x18", 0x1D
# Where the frames of a link have its handle.
HANDLE_INDEXES = {ATTACH: 1, FLOW: 4, TRANSFER: 0, DETACH: 0}
# Fields of a transfer, and of a disposition.
DELIVERY_ID, DELIVERY_TAG, MESSAGE_FORMAT, SETTLED, MORE, ABORTED = 1, 2, 3, 4, 5, 9
ROLE, FIRST, LAST, IS_SETTLED = 0, 1, 2, 3
TRUE = (b"\x41", b"\x56\x01")
EMPTY_BINARY = b"\xa0\0"
NO_TAG = bytes(16)  # longer than an empty one, so that emptying never makes a frame too long
NO_TAG_FIELD = b"\xa0\x10" + NO_TAG
# A tag ends here at the latest: behind descriptor, size and count, handle and delivery-id.
TAG_END_MAX = 3 + 9 + 5 + 5 + len(NO_TAG_FIELD)
ID_LIMIT = 1 << 32  # ids are 32 bits wide and wrap


@dataclass(slots=True)
class OpenSession:
    """The channels and links of one session that a client has begun and not ended."""

    next_id: int | None = None
    client_ids: dict[int, int] = field(default_factory=dict)  # by Proton's, where they differ
    unfinished: dict[int, tuple[int, bool]] = field(default_factory=dict)  # by handle
    detached: set[int] = field(default_factory=set)  # handles that are not used again yet

    def number(self, client_id: int) -> int:
        """Proton's id for the next delivery."""
        own = client_id if self.next_id is None else self.next_id
        self.next_id = (own + 1) % ID_LIMIT
        return own


class FrameReader:
    """One connection's frames, in both directions."""

    def __init__(self) -> None:
        self._received = b""
        self._to_send = b""
        self._sessions: dict[int, OpenSession | None] = {}  # by channel; None has been ended
        self._client_channels: dict[int, int] = {}  # by Proton's
        self.is_closed = False  # by Proton

    def read(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Whole frames for Proton, and whether they are of a transfer that is a batch."""
        data = self._received + data
        start = end = 0
        for at, end in frame_extents(data, FRAME_BYTES_MAX):
            body = at + 4 * data[at + 4]
            if data[body : body + 3] in OF_SESSIONS:
                frame = data[at:end]
                changed, is_batch = self._read_frame(frame)
                if changed is not frame or is_batch:
                    if at > start:
                        yield data[start:at], False
                    if changed:
                        yield changed, is_batch
                    start = end
        if end > start:
            yield data[start:end], False
        self._received = data[end:]

    def write(self, data: bytes) -> bytes:
        """Proton's frames for the client; a last one that is cut off waits for its end."""
        data = self._to_send + data
        parts: list[bytes] = []
        start = end = 0
        for at, end in frame_extents(data, ID_LIMIT):  # the client's limit, which Proton keeps
            body = at + 4 * data[at + 4]
            performative, channel = data[body : body + 3], int.from_bytes(data[at + 6 : at + 8])
            if performative == BEGIN:
                remote = offsets_of(data, body + 3)[0]
                self._client_channels[channel] = int(scalar_at(data, remote) or 0)
            elif performative == DISPOSITION:
                session = self._sessions.get(self._client_channels.get(channel, channel))
                if session is not None and session.client_ids:
                    parts += (data[start:at], answer_client(data[at:end], session))
                    start = end
            elif performative == CLOSE:
                self.is_closed = True
            elif performative == TRANSFER and NO_TAG_FIELD in data[body : body + TAG_END_MAX]:
                parts += (data[start:at], empty_tag(data[at:end]))
                start = end
        self._to_send = data[end:]
        return b"".join((*parts, data[start:end]))

    def _read_frame(self, frame: bytes) -> tuple[bytes, bool]:
        """The frame, one like it for Proton, or nothing; and whether it is of a batch."""
        channel, body = int.from_bytes(frame[6:8]), 4 * frame[4]
        performative = frame[body : body + 3]
        if performative == BEGIN:
            self._sessions[channel] = OpenSession()
        elif channel in self._sessions:
            session = self._sessions[channel]
            if session is None:
                return b"", False
            if performative == END:
                self._sessions[channel] = None
            elif performative in HANDLE_INDEXES:
                return self._read_link_frame(frame, session)
        return frame, False

    def _read_link_frame(self, frame: bytes, session: OpenSession) -> tuple[bytes, bool]:
        body = 4 * frame[4]
        performative = frame[body : body + 3]
        if performative == FLOW and not session.detached:
            return frame, False  # most frames of a client are these
        try:
            fields = [frame[start:end] for start, end in elements_of(frame, body + 3)]
            handle = scalar_at(fields[HANDLE_INDEXES[performative]], 0)
            if not isinstance(handle, int):
                raise Undecodable("no handle")
            if performative == TRANSFER and handle not in session.detached:
                return self._read_transfer(frame, fields, handle, session)
        except (Undecodable, IndexError):
            return frame, False  # a flow of the session, or what Proton refuses
        if performative == ATTACH:
            session.detached.discard(handle)
        elif handle in session.detached:
            # What a flow says of the windows of the session counts.
            windows = fields[: HANDLE_INDEXES[FLOW]]
            return write_frame(frame, FLOW, windows, b"") if performative == FLOW else b"", False
        elif performative == DETACH:
            session.detached.add(handle)
            session.unfinished.pop(handle, None)
        return frame, False

    def _read_transfer(
        self, frame: bytes, fields: list[bytes], handle: int, session: OpenSession
    ) -> tuple[bytes, bool]:
        def number(index: int) -> int | None:
            found = scalar_at(fields[index], 0) if index < len(fields) else None
            return found if isinstance(found, int) and 0 <= found < ID_LIMIT else None

        def flag(index: int) -> bool:
            return index < len(fields) and fields[index] in TRUE

        client_id = number(DELIVERY_ID)
        unfinished = session.unfinished.pop(handle, None)
        if unfinished is None:
            if client_id is None:
                return frame, False  # Proton refuses it
            unfinished = session.number(client_id), number(MESSAGE_FORMAT) == BATCH_FORMAT
            if unfinished[0] != client_id and not flag(SETTLED):
                session.client_ids[unfinished[0]] = client_id
        own_id, is_batch = unfinished
        if flag(MORE) and not flag(ABORTED):
            session.unfinished[handle] = unfinished
        if client_id in (None, own_id):
            return frame, is_batch
        fields[DELIVERY_ID] = encode_uint(own_id)
        payload = frame[end_of(frame, 4 * frame[4]) :]
        return write_frame(frame, TRANSFER, fields, payload), is_batch


def frame_extents(data: bytes, size_max: int) -> Iterator[tuple[int, int]]:
    """Start and end of each whole frame; a protocol header counts as one.

    What says of itself that it is shorter or longer than a frame may be has no end but the data's.
    """
    at = 0
    while (left := len(data) - at) >= FRAME_HEADER_BYTES:
        size = int.from_bytes(data[at : at + 4])
        if data.startswith(PROTOCOL, at):
            size = FRAME_HEADER_BYTES
        elif not FRAME_HEADER_BYTES <= size <= size_max:
            size = left  # Proton says so to the client
        if left < size:
            return
        yield at, at + size
        at += size


def answer_client(frame: bytes, session: OpenSession) -> bytes:
    """A disposition of Proton's, under the ids of the client: one frame for each where they differ.

    A disposition as the sender (of what the client received) stays as it is.
    """
    body = 4 * frame[4]
    fields = [frame[start:end] for start, end in elements_of(frame, body + 3)]
    fields += [NULL] * (IS_SETTLED + 1 - len(fields))
    first = int(scalar_at(fields[FIRST], 0) or 0)
    last = first if fields[LAST] == NULL else int(scalar_at(fields[LAST], 0) or 0)
    ids = [(first + n) % ID_LIMIT for n in range((last - first) % ID_LIMIT + 1)]
    if fields[ROLE] not in TRUE or session.client_ids.keys().isdisjoint(ids):
        return frame
    answered: list[bytes] = []
    for own_id in ids:
        client_id = encode_uint(session.client_ids.get(own_id, own_id))
        if fields[IS_SETTLED] in TRUE:
            session.client_ids.pop(own_id, None)
        fields[FIRST : LAST + 1] = [client_id, client_id]
        answered.append(write_frame(frame, DISPOSITION, fields, b""))
    return b"".join(answered)


def empty_tag(frame: bytes) -> bytes:
    """A transfer whose delivery-tag is empty."""
    body = 4 * frame[4]
    fields = [frame[start:end] for start, end in elements_of(frame, body + 3)]
    fields[DELIVERY_TAG] = EMPTY_BINARY
    return write_frame(frame, TRANSFER, fields, frame[end_of(frame, body) :])


def write_frame(like: bytes, performative: bytes, fields: list[bytes], payload: bytes) -> bytes:
    """A frame of the same channel."""
    body = encode_section(performative[2], LIST32, fields) + payload
    return struct.pack(">IB", FRAME_HEADER_BYTES + len(body), 2) + like[5:8] + body


def write_close(condition: str, description: str) -> bytes:
    """The frame that ends a connection with an error."""
    error = [encode_symbol(condition), encode_string(description)]
    return write_frame(bytes(8), CLOSE, [encode_section(ERROR, LIST32, error)], b"")


def encode_uint(number: int) -> bytes:
    return b"\x70" + struct.pack(">I", number)
