"""Claim and update: every message has a work item that is claimed, worked on and completed.

Follows the text of "Geo-replicating Azure Service Bus with guaranteed ordering" (2018), not its
sample code: create the work item, 409 means that somebody else has it; update it to Working on the
condition that nobody else did; handle the message; update it to Completed; only then settle. The
other region's copy comes later, finds Completed and settles; while it finds Working it abandons.
The article writes to a legacy system; here that is the state document of the session.
"""

from typing import Any

import azure.functions as func
from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosResourceExistsError

from proof.bench.baselines import take_messages
from proof.bench.baselines.common import BaselineStore, find_document, track_message

app = func.FunctionApp()
store = BaselineStore()


class BusyElsewhere(Exception):
    """Another consumer works on the message: raising abandons it, so it comes again."""


@take_messages(app)
async def receive(message: func.ServiceBusMessage) -> None:
    """Claim, work, complete; returning settles the message."""
    items = await store.container("workitems")
    item = await claim(items, message)
    match item["status"]:
        case "Completed":
            return
        case "Working":
            raise BusyElsewhere(item["id"])
    item = await update(items, item, "Working")
    await work(message)
    await update(items, item, "Completed")


async def claim(items: ContainerProxy, message: func.ServiceBusMessage) -> dict[str, Any]:
    session, item_id = message.session_id, f"{message.session_id}_{message.message_id}"
    try:
        return await items.create_item({"id": item_id, "session": session, "status": "Pending"})
    except CosmosResourceExistsError:
        return await items.read_item(item_id, partition_key=session)


async def update(items: ContainerProxy, item: dict[str, Any], status: str) -> dict[str, Any]:
    """Store a new status, unless somebody else changed the work item: then 412, and it abandons."""
    return await items.replace_item(
        item["id"],
        {**item, "status": status},
        etag=item["_etag"],
        match_condition=MatchConditions.IfNotModified,
    )


async def work(message: func.ServiceBusMessage) -> None:
    """Bring the session's state document up to date: one read, one write."""
    aircraft = await store.container("aircraft")
    session = str(message.session_id)
    fresh: dict[str, Any] = {"id": session, "session": session}
    document = await find_document(aircraft, session, session) or fresh
    state = track_message(document.get("state", {}), message)
    await aircraft.upsert_item({**document, "state": state})
