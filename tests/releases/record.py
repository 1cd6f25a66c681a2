"""Record what this release stores and sends: `python -m tests.releases.record NAME`.

What was recorded stays: it stands for journals and messages that exist when a release is deployed.
Record anew before a release that changes the stored format, so that the next one is held to it.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.domain import wire
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.storage.documents import VERSION_FIELD, WRITTEN_FIELD
from shared.testkit.injected_faults import CallFault
from tests.business import BusinessWorld, dies, payment, plain
from tests.world import World, message

HERE = Path(__file__).parent
OPTIONS = ProducerOptions("bank")
DRAFTS = [Draft(f"draft-{n}", "account.add", b'{"amount":%d}' % (n + 1)) for n in range(2)]
# Of each kind one: numbered, un-numbered, and with everything that may be given.
SENT = (
    message(0),
    plain(0, "account.add"),
    Message(
        "full",
        "acc-1",
        "account.add",
        b'{"amount":1}',
        time="2026-11-24T12:00:00+00:00",
        reply_to="answers",
        reply_session="acc-2",
        correlation="question",
        source="elsewhere",
    ),
)


async def write_journal() -> World:
    """Sessions in every state that a deployment may meet."""
    world = BusinessWorld()
    faults = world.bus.fault_plan
    # Processed, and one that is parked behind a gap.
    await world.east.consumer.consume(message(0, session="gap"))
    await world.east.consumer.consume(message(2, session="gap"))
    # Outputs that one region misses.
    faults.plan("send.east", CallFault.REFUSED)
    await world.west.consumer.consume(message(0, session="pending", kind="account.bill"))
    # A message without a number.
    await world.east.consumer.consume(plain(0, "account.add"))
    # A fault that halts, and what waits behind it.
    await world.east.consumer.consume(message(0, session="halted", kind="account.burn"))
    await world.east.consumer.consume(message(1, session="halted"))
    # A sender's ledger, and copies that one region misses.
    faults.plan("send.west", CallFault.REFUSED)
    await world.producer().publish("sent", DRAFTS, OPTIONS)
    # A claim whose owner is gone.
    await dies(world, payment(0, session="claimed"), "append", CallFault.KILLED_AFTER)
    return world


def without_store_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k not in (VERSION_FIELD, WRITTEN_FIELD)}


def record(name: str) -> Path:
    """Write the file of a name; raises FileExistsError where there is one."""
    world = asyncio.run(write_journal())
    documents = [
        without_store_fields(document)
        for partition in world.journal.partitions.values()
        for document in partition.values()
    ]
    messages = [{"properties": wire.to_properties(m), "body": m.body.decode()} for m in SENT]
    path = HERE / f"{name}.json"
    with path.open("x", encoding="utf-8") as file:
        json.dump({"documents": documents, "messages": messages}, file, indent=1, sort_keys=True)
        file.write("\n")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"wrote {record(sys.argv[1])}\n")
