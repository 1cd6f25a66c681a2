"""A receiver of sessions that may be killed at any time.

    python -m wire.service_bus_worker CONNECTION_STRING QUEUE LOG LAST SEED

Each of its threads takes one session after the other and handles its messages in order: each is
completed, or now and then abandoned. What happens is appended to the log, a line each: `took`,
`completed` or `abandoned`, the session and the body; a settlement once it was acknowledged. The
message whose body is LAST ends its session. Ends when no session comes any more.
"""

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from wire.service_bus import hurried_client

ABANDONED = 0.01  # how often a message is abandoned
THREADS = 6
WAIT_SECONDS = 5.0  # for a session, or for a message of one


@dataclass(frozen=True, slots=True)
class Worker:
    """Handles sessions."""

    client: ServiceBusClient
    queue: str
    log: int
    last: str
    chance: random.Random

    def run(self) -> None:
        """Handle sessions until none comes any more."""
        while True:
            try:
                with self.client.get_queue_receiver(
                    self.queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_SECONDS
                ) as receiver:
                    self.handle_session(receiver)
            except OperationTimeoutError:
                return
            except ServiceBusError:
                continue  # the lock was lost: somebody goes on where this worker stood

    def handle_session(self, receiver: ServiceBusReceiver) -> None:
        """Handle messages until the last, or one that is abandoned."""
        while messages := receiver.receive_messages(20, max_wait_time=WAIT_SECONDS):
            for message in messages:
                self.note("took", receiver, message)
                if self.chance.random() < ABANDONED:
                    receiver.abandon_message(message)
                    self.note("abandoned", receiver, message)
                    return
                receiver.complete_message(message)
                self.note("completed", receiver, message)
                if str(message) == self.last:
                    return

    def note(
        self, what: str, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage
    ) -> None:
        """Append a line to the log, whole even if another worker writes at the same time."""
        os.write(self.log, f"{what} {receiver.session.session_id} {message}\n".encode())


def main(connection_string: str, queue: str, log: str, last: str, seed: str) -> None:
    """Work in several threads, each over a connection of its own: the client mostly waits."""
    lines = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def work(thread: int) -> None:
        chance = random.Random(f"{seed}.{thread}")
        with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
            Worker(client, queue, lines, last, chance).run()

    with hurried_client(), ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))
    os.close(lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
