"""The least a sender can do: azure-servicebus, full batches of any sessions, one namespace a time.

    python -m proof.bench.spark_feed.bare PLAN QUEUE PART OF SAMPLE CONNECTION...

Sends one part of a sample of a feed's plan (Parquet) to every namespace, each session in order.
Nothing is retried, owed or numbered anew. Prints how many messages, and when it began and ended.
"""

import json
import sys
import time
import zlib
from contextlib import ExitStack

from azure.servicebus import ServiceBusClient
from pyarrow import parquet

from proof.bench.load import send_in_batches, to_sdk_message
from shared.domain.message import Message, Number

COLUMNS = ("session", "group", "sequence", "type", "body", "id", "time")


def read(plan: str, part: int, parts: int, sample: int) -> list[Message]:
    """Read the messages of one part of a plan's first so many, the sessions taking turns.

    The first ones are those of the lowest numbers: each session has its beginning in the sample.
    """
    table = parquet.read_table(plan, columns=list(COLUMNS), partitioning=None)
    table = table.sort_by([("sequence", "ascending"), ("session", "ascending")]).slice(0, sample)
    rows = zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)
    return [
        Message(identity, session, kind, body.encode(), Number(group, 0, sequence), at)
        for session, group, sequence, kind, body, identity, at in rows
        if zlib.crc32(session.encode()) % parts == part
    ]


def main() -> None:
    plan, queue, part, parts, sample, *connections = sys.argv[1:]
    messages = read(plan, int(part), int(parts), int(sample))
    with ExitStack() as stack:
        clients = map(ServiceBusClient.from_connection_string, connections)
        opened = [
            stack.enter_context(stack.enter_context(client).get_queue_sender(queue))
            for client in clients
        ]
        began = time.time()
        for sender in opened:
            send_in_batches(sender, map(to_sdk_message, messages))
        ended = time.time()
    print(json.dumps({"messages": len(messages), "began": began, "ended": ended}))


if __name__ == "__main__":
    main()
