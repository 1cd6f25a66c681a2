"""The recorder of a run: reads what comes out of both regions by azure-servicebus alone.

    python -m proof.chaos.recorder RECORD

The connection strings come from the environment, as JSON.
Every copy that is received is appended to the record before it is settled, so it is there at least
once. The number that its queue gave it tells a copy that was sent twice from one that was only
handed out twice, and the order in which copies arrived. It knows nothing of the engine.
"""

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from local.testing.children import wait_for_parent_to_end
from proof.chaos.messages import BUSES_SETTING, EFFECTS_QUEUE, ERROR_QUEUE
from proof.chaos.records import Record

RECEIVED_AT_ONCE = 50
WAIT_SECONDS = 2.0
AGAIN_SECONDS = 0.5
# A broker that does not respond for so long is not waited for: the client is given up.
STUCK_SECONDS = 10.0
RETRIES: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0.1}
PREFIX = "cloudEvents_"

log = logging.getLogger("proof.chaos.recorder")


@dataclass(frozen=True, slots=True)
class RecordedQueue:
    region: str
    connection: str
    queue: str
    record: Record

    async def watch(self) -> None:
        """Receive for ever, with a new client whenever something goes wrong."""
        while True:
            try:
                await self.receive()
            except Exception as error:
                # Whatever an injected fault does to a client, the recorder goes on.
                log.info("%s %s: %s", self.region, self.queue, error or type(error).__name__)
                await asyncio.sleep(AGAIN_SECONDS)

    async def receive(self) -> None:
        async with ServiceBusClient.from_connection_string(self.connection, **RETRIES) as client:
            if self.queue == ERROR_QUEUE:
                while True:
                    await self.receive_session(client)
            async with client.get_queue_receiver(self.queue) as receiver:
                while True:
                    await self.receive_some(receiver)

    async def receive_session(self, client: ServiceBusClient) -> None:
        """Receive what the next session has, if there is one; a session with more comes again."""
        try:
            async with client.get_queue_receiver(
                self.queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_SECONDS
            ) as receiver:
                await self.receive_some(receiver)
        except OperationTimeoutError:
            return

    async def receive_some(self, receiver: ServiceBusReceiver) -> None:
        async with asyncio.timeout(STUCK_SECONDS):
            messages = await receiver.receive_messages(RECEIVED_AT_ONCE, WAIT_SECONDS)
        if messages:
            self.record.append(*(self.line(message) for message in messages))
        for message in messages:
            async with asyncio.timeout(STUCK_SECONDS):
                await receiver.complete_message(message)

    def line(self, message: ServiceBusReceivedMessage) -> dict[str, Any]:
        """Write down what was received; the fingerprint is of every byte that the sender chose."""
        body = b"".join(bytes(section) for section in message.body)
        # The SDK hands out application properties as bytes.
        found = message.application_properties or {}
        properties = {decode_text(name): decode_text(value) for name, value in found.items()}
        sent = json.dumps([message.message_id, message.session_id, properties], sort_keys=True)
        return {
            "at": time.time(),
            "region": self.region,
            "queue": self.queue,
            "number": message.sequence_number,
            "id": message.message_id,
            "type": properties.get(f"{PREFIX}type"),
            "session": message.session_id,
            "fingerprint": sha256(sent.encode() + b"\0" + body).hexdigest(),
            "body": body.decode(errors="replace"),
        }


def decode_text(value: object) -> Any:
    return value.decode() if isinstance(value, bytes) else value


async def record_all(buses: Mapping[str, str], record: Record) -> None:
    """Record every queue of effects and errors until whoever started us stops us or dies."""
    recording = [
        asyncio.create_task(RecordedQueue(region, connection, queue, record).watch())
        for region, connection in buses.items()
        for queue in (EFFECTS_QUEUE, ERROR_QUEUE)
    ]
    await asyncio.to_thread(wait_for_parent_to_end)
    for task in recording:
        task.cancel()
    await asyncio.wait(recording, timeout=STUCK_SECONDS)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    log.setLevel(logging.INFO)
    with Record(Path(sys.argv[1])) as appended:
        asyncio.run(record_all(json.loads(os.environ[BUSES_SETTING]), appended))
