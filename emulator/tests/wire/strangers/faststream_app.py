"""FastStream's broker for Service Bus: a queue's handler answers through a topic's subscription.

Told a connection string; prints what the handlers got.
"""

import asyncio
import sys

from faststream_azure_servicebus import ServiceBusBroker

broker = ServiceBusBroker(sys.argv[1])
got, done = [], asyncio.Event()


@broker.subscriber(queue="parcels")
async def weigh(body: dict) -> None:
    got.append(("parcels", body["id"]))
    await broker.publish({"weighed": body["id"]}, topic="news")


@broker.subscriber(topic="news", subscription="everything")
async def tell(body: dict) -> None:
    got.append(("news", body["weighed"]))
    if len(got) == 6:
        done.set()


async def main() -> None:
    async with broker:
        await broker.start()
        for number in range(3):
            await broker.publish({"id": number}, queue="parcels")
        await asyncio.wait_for(done.wait(), 60)
    print("got", sorted(got), flush=True)


asyncio.run(main())
