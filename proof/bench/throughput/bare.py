"""The least a consumer can do: receive under session locks with azure-servicebus, and complete.

    python -m proof.bench.throughput.bare CONNECTION QUEUE

As many sessions at once, and as patient with an empty one, as the hosts it is compared with. Runs
until its standard input ends.
"""

import asyncio
import sys
from contextlib import suppress

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

PARALLEL, IDLE_SECONDS = 100, 1.0


async def serve_sessions(client: ServiceBusClient, queue: str) -> None:
    while True:
        with suppress(OperationTimeoutError):
            receiver = client.get_queue_receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=IDLE_SECONDS
            )
            async with receiver:
                async for message in receiver:
                    await receiver.complete_message(message)


async def run(connection: str, queue: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with ServiceBusClient.from_connection_string(connection) as client:
        visits = [asyncio.create_task(serve_sessions(client, queue)) for _ in range(PARALLEL)]
        await ended.wait()
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
