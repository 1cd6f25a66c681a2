"""Frames that come behind the end of their session or link, as those of the .NET client do."""

import gc
from collections.abc import Container, Iterator
from contextlib import contextmanager

import pytest
from proton import Message, Receiver, Sender, uint

from local.testing import raw_amqp
from local.testing.patience import until
from local.testing.raw_amqp import (
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    RawClient,
    described,
    framed,
    opened_client,
    raw_client,
)
from wire.service_bus import Bus, running_bus
from wire.service_bus_process import BusProcess, serving_bus

pytestmark = pytest.mark.wire
QUEUE = "parcels"
ROUNDS, LATE, MANY = 100, 20, 200
CHANNELS = (74, 75, 76)  # each is used again and again
OUTGOING, INCOMING = uint(0), uint(1)  # handles
LARGE = bytes(Message(body=b"x" * 1000).encode())
GROWTH_BYTES_MAX = 4 * 2**20  # a tenth of what is let pass


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


class LateClient:
    """A client of several sessions; session 0, which goes on, sends to the queue."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._steady = client.attach(SENDER, QUEUE)
        self.ended = 0  # sessions whose end was answered

    def begin(self, channel: int) -> None:
        """Begin a session, and wait for the answer: until it comes nothing may be transferred."""
        windows = (uint(0), uint(5000), uint(5000))
        self.write(framed(raw_amqp.BEGIN, None, *windows, channel=channel))
        self._read_until(raw_amqp.BEGIN, at=0, value=channel)

    def write(self, frames: bytes) -> None:
        self._client.socket.sendall(frames)

    def send(self) -> None:
        """Send over session 0; returns when that is accepted."""
        payload = bytes(Message(body=b"steady").encode())
        delivery_id = self._client.transfer(self._steady, payload)
        accepted = self._read_until(raw_amqp.DISPOSITION, at=1, value=delivery_id, channels=(0,))
        assert accepted.fields[4].descriptor == raw_amqp.ACCEPTED

    def _read_until(
        self, code: int, *, at: int, value: object, channels: Container[int] = range(2**16)
    ) -> raw_amqp.Frame:
        """The next frame of this kind with a value in a field."""
        while True:
            frame = self._client.read()
            assert frame.code != raw_amqp.CLOSE, frame
            self.ended += frame.code == raw_amqp.END
            if frame.code == code and frame.channel in channels and frame.fields[at] == value:
                return frame


@contextmanager
def late_client(bus: Bus | BusProcess) -> Iterator[LateClient]:
    with opened_client(bus.connection_string, QUEUE) as client:
        yield LateClient(client)


def attach(channel: int, *, path: str = QUEUE, suffix: str = "") -> bytes:
    """Two links, one in each direction."""
    return b"".join(
        framed(
            raw_amqp.ATTACH,
            *(f"{role}{suffix}", handle, role, None, None),
            *(described(SOURCE, path), described(TARGET, path)),
            *(None, None, uint(0) if role is SENDER else None),
            channel=channel,
        )
        for role, handle in ((SENDER, OUTGOING), (RECEIVER, INCOMING))
    )


def transfer(channel: int, delivery_id: int) -> bytes:
    fields = (OUTGOING, uint(delivery_id), str(delivery_id).encode(), uint(0), False, False)
    return framed(raw_amqp.TRANSFER, *fields, payload=LARGE, channel=channel)


def flow(channel: int, *link: object) -> bytes:
    windows = (uint(0), uint(5000), uint(0), uint(5000))
    return framed(raw_amqp.FLOW, *windows, *link, channel=channel)


def credit(channel: int) -> bytes:
    return flow(channel, INCOMING, uint(0), uint(10))


def detach(channel: int) -> bytes:
    return b"".join(
        framed(raw_amqp.DETACH, handle, True, channel=channel) for handle in (OUTGOING, INCOMING)
    )


def late(channel: int, count: int = LATE) -> bytes:
    """What a client still sends: transfers, flows of session and link, settlements, detaches."""
    settled = framed(
        raw_amqp.DISPOSITION,
        *(RECEIVER, uint(0), None, True, described(raw_amqp.ACCEPTED)),
        channel=channel,
    )
    between = flow(channel) + credit(channel) + settled
    return b"".join(transfer(channel, 7 + n) + between for n in range(count)) + detach(channel)


def end(channel: int) -> bytes:
    return framed(raw_amqp.END, channel=channel)


def test_frames_for_a_session_that_has_ended_are_let_pass_and_other_sessions_go_on(
    bus: Bus,
) -> None:
    with late_client(bus) as client:
        for number in range(ROUNDS):
            channel = CHANNELS[number % len(CHANNELS)]
            client.begin(channel)
            before = attach(channel) + transfer(channel, 0) + transfer(channel, 1)
            client.write(before + end(channel) + late(channel) + end(channel))
            client.send()
        client.begin(CHANNELS[0])  # by then all is answered

        assert client.ended == ROUNDS, "each end is answered, and each once"
    # What was sent before the end counts, and nothing that came behind it.
    assert bus.namespace.depth(QUEUE)["active"] == 3 * ROUNDS


def test_frames_for_a_link_that_was_detached_are_let_pass_and_its_handle_is_used_again(
    bus: Bus,
) -> None:
    with late_client(bus) as client:
        client.begin(74)
        for number in range(ROUNDS):
            links = attach(74, suffix=f" {number}")
            client.write(links + transfer(74, number) + detach(74) + late(74))
            client.send()

        assert client.ended == 0
    assert bus.namespace.depth(QUEUE)["active"] == 2 * ROUNDS


def test_frames_for_a_link_that_the_broker_has_detached_are_let_pass_until_the_client_detaches(
    bus: Bus,
) -> None:
    with late_client(bus) as client:
        client.begin(74)
        for number in range(ROUNDS):
            client.write(attach(74, path="nowhere", suffix=f" {number}") + late(74))
            client.send()

        assert client.ended == 0
    assert bus.namespace.depth(QUEUE)["active"] == ROUNDS


@pytest.mark.parametrize(
    ("frames", "condition", "said"),
    [
        (transfer(9, 0), "amqp:not-allowed", "no such channel: 9"),
        (flow(9), "amqp:not-allowed", "no such channel: 9"),
        (end(9), "amqp:not-allowed", "no such channel: 9"),
        (transfer(74, 0), "amqp:invalid-field", "no such handle: 0"),
        (credit(74), "amqp:invalid-field", "no such handle: 1"),
    ],
)
def test_a_frame_for_what_was_never_there_ends_the_connection_with_a_condition(
    bus: Bus, frames: bytes, condition: str, said: str
) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        LateClient(client).begin(74)
        client.socket.sendall(frames)
        while (frame := client.read()).code != raw_amqp.CLOSE:
            pass

    assert frame.fields[0].value[:2] == [condition, said]


def test_sessions_that_have_ended_keep_no_memory() -> None:
    sizes: list[int] = []
    with serving_bus() as bus, late_client(bus) as client:
        for number in range(2 * ROUNDS):
            if number % ROUNDS == 0:
                sizes.append(bus.memory_bytes())
            channel = CHANNELS[number % len(CHANNELS)]
            client.begin(channel)
            refused = attach(channel, path="nowhere")
            client.write(refused + late(channel, MANY) + end(channel) + late(channel, MANY))
            client.send()
        sizes.append(bus.memory_bytes())

    assert sizes[2] - sizes[1] < GROWTH_BYTES_MAX, sizes


def test_when_a_session_ends_while_what_it_sent_is_delayed_the_namespace_and_others_go_on() -> None:
    # What is delayed holds a link of the session longer than Proton does.
    with (
        serving_bus(action="delay", operation="send", seconds=0.03) as bus,
        late_client(bus) as client,
    ):
        for number in range(ROUNDS):
            channel = CHANNELS[number % len(CHANNELS)]
            client.begin(channel)
            client.write(attach(channel) + transfer(channel, 0) + end(channel))
        client.send()

        assert bus.depth(QUEUE)["active"] == ROUNDS + 1


def test_a_message_that_is_refused_leaves_nothing_of_proton_to_the_garbage_collector(
    bus: Bus,
) -> None:
    # It may run on any thread, while the namespace's own is in the midst of the same connection.
    gc.collect()
    gc.disable()
    try:
        with late_client(bus) as client:
            client.begin(74)
            fields = (OUTGOING, uint(0), b"0", uint(0), False, False)
            unreadable = framed(raw_amqp.TRANSFER, *fields, payload=b"?", channel=74)
            client.write(attach(74) + unreadable)
            client.send()
        until(lambda: not any(map(is_link, gc.get_objects())), what="the last link goes")
    finally:
        gc.enable()


def is_link(one: object) -> bool:
    return type(one) in (Sender, Receiver)


def test_what_comes_behind_a_wrong_frame_does_not_take_its_condition_away(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        LateClient(client).begin(74)
        client.socket.sendall(flow(9) + attach(74) + late(74, MANY))
        while (frame := client.read()).code != raw_amqp.CLOSE:
            pass

    assert frame.fields[0].value[:2] == ["amqp:not-allowed", "no such channel: 9"]


@pytest.mark.parametrize(
    "frame", [b"\0", b"\0\x53", b"\0\x53\x11\xd0\0\0", b"\x40", raw_amqp.encode([1])]
)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_frame_that_cannot_be_read_ends_the_connection_with_a_condition(
    bus: Bus, frame: bytes, is_open: bool
) -> None:
    with raw_client(bus.connection_string) as client:
        client.authenticate("ANONYMOUS")
        opening = framed(raw_amqp.OPEN, "raw", "localhost") if is_open else b""
        client.socket.sendall(raw_amqp.AMQP + opening + raw_amqp.enclose(frame))
        assert client.read_bytes(8) == raw_amqp.AMQP
        assert client.read().code == raw_amqp.OPEN
        last = client.read()
        with pytest.raises(EOFError):
            client.read()

    assert last.code == raw_amqp.CLOSE
    assert last.fields[0].value[0] == "amqp:decode-error"


@pytest.mark.parametrize("delivery_id", [-1, 2**32, 2**63 - 1])
def test_a_delivery_id_that_is_no_number_of_32_bits_does_not_end_the_connection_without_a_condition(
    bus: Bus, delivery_id: int
) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        LateClient(client).begin(74)
        first = (OUTGOING, uint(7), b"t", uint(0), False, False)
        odd = (OUTGOING, delivery_id, *first[2:])
        frames = (
            framed(raw_amqp.TRANSFER, *one, payload=LARGE, channel=74) for one in (first, odd)
        )
        client.socket.sendall(attach(74) + b"".join(frames) + framed(raw_amqp.CLOSE))
        while client.read().code != raw_amqp.CLOSE:
            pass


def test_a_session_that_allows_fewer_handles_than_it_uses_ends_the_connection_with_a_condition(
    bus: Bus,
) -> None:
    windows = (uint(0), uint(5000), uint(5000))
    with opened_client(bus.connection_string, QUEUE) as client:
        client.socket.sendall(framed(raw_amqp.BEGIN, None, *windows, uint(0), channel=74))
        client.socket.sendall(attach(74) + framed(raw_amqp.CLOSE))
        while (frame := client.read()).code != raw_amqp.CLOSE:
            pass

    assert frame.fields[0].value[0] == "amqp:not-allowed"
