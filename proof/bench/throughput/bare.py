"""The least a consumer can do: receive under session locks with azure-servicebus, and complete.

    python -m proof.bench.throughput.bare CONNECTION QUEUE [--parallel 100] [--idle 1]

As many sessions at once, and as patient with an empty one, as the hosts it is compared with. Runs
until its standard input ends.
"""

import argparse
import asyncio
import sys
from contextlib import suppress

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError


async def serve_sessions(client: ServiceBusClient, queue: str, idle: float) -> None:
    while True:
        with suppress(OperationTimeoutError):
            receiver = client.get_queue_receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=idle
            )
            async with receiver:
                async for message in receiver:
                    await receiver.complete_message(message)


async def run(connection: str, queue: str, parallel: int, idle: float) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with ServiceBusClient.from_connection_string(connection) as client:
        visits = [asyncio.create_task(serve_sessions(client, queue, idle)) for _ in range(parallel)]
        await ended.wait()
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proof.bench.throughput.bare", description=__doc__
    )
    parser.add_argument("connection")
    parser.add_argument("queue")
    parser.add_argument("--parallel", type=int, default=100)
    parser.add_argument("--idle", type=float, default=1.0)
    options = parser.parse_args()
    asyncio.run(run(options.connection, options.queue, options.parallel, options.idle))


if __name__ == "__main__":
    main()
