"""Authorization: one key, known to everybody; any other is refused as Azure would refuse it."""

import time
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from hmac import digest
from urllib.parse import quote_plus

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.nodes.authorization import KEY, KEY_NAME, verify_token
from wire.service_bus import Bus, running_bus

pytestmark = pytest.mark.wire
QUEUE = "parcels"


@pytest.fixture(scope="module")
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def send(bus: Bus, old: str, new: str, queue: str = QUEUE) -> None:
    connection_string = bus.namespace.connection_string.replace(old, new)
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.parametrize(
    ("old", "new"),
    [(f"SharedAccessKey={KEY}", "SharedAccessKey=guessed"), (KEY_NAME, "listen-only")],
)
def test_a_wrong_key_or_key_name_is_unauthorized(bus: Bus, old: str, new: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        send(bus, old, new)

    assert bus.namespace.depth(QUEUE)["active"] == 0
    assert bus.count("authorize", "unauthorized-access") >= 1


def test_an_expired_token_is_unauthorized(bus: Bus) -> None:
    token = signed(f"sb://127.0.0.1/{QUEUE}", time.time() - 1)
    with pytest.raises(ServiceBusAuthenticationError):
        send(bus, old=shared_key(), new=f"SharedAccessSignature={token};")


def test_a_token_covers_what_lies_below_its_path_and_nothing_beside_it(bus: Bus) -> None:
    token = signed(f"sb://127.0.0.1/{QUEUE}", time.time() + 60)

    send(bus, shared_key(), f"SharedAccessSignature={token};")
    with pytest.raises(ServiceBusError, match="unauthorized-access"):
        send(bus, shared_key(), f"SharedAccessSignature={token};", "short")

    assert bus.namespace.depth(QUEUE)["active"] == 1
    assert bus.namespace.depth("short")["active"] == 0


def test_a_token_that_is_no_shared_access_signature_is_refused_by_name() -> None:
    with pytest.raises(AmqpError, match="Only shared access signatures") as refusal:
        verify_token("eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9")

    assert refusal.value.condition is ErrorCondition.UNAUTHORIZED


def shared_key() -> str:
    return f"SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};"


def signed(audience: str, until: float) -> str:
    """A token as the documentation says to make it."""
    resource, expiry = quote_plus(audience), str(int(until))
    signature = b64encode(digest(KEY.encode(), f"{resource}\n{expiry}".encode(), sha256)).decode()
    return (
        f"SharedAccessSignature sr={resource}&sig={quote_plus(signature)}&se={expiry}"
        f"&skn={KEY_NAME}"
    )
