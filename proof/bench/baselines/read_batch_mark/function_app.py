"""Read, batch, mark: an outbox record per message, in the transaction of the business data.

Follows the outbox of NServiceBus with its Cosmos DB persistence: look the message id up; unknown,
store the outbox record and the state in one transactional batch; send what the record holds; mark
the record as dispatched, with a time to live of seven days. A duplicate finds the record. One thing
is kinder here: a record that is marked already is not marked again.
"""

from typing import Any

import azure.functions as func

from proof.bench.baselines import take_messages
from proof.bench.baselines.common import BaselineStore, find_document, track_message

KEPT_SECONDS = 7 * 24 * 3600
STATE = "state"

app = func.FunctionApp()
store = BaselineStore()


@take_messages(app)
async def receive(message: func.ServiceBusMessage) -> None:
    """Process once, mark as dispatched; returning settles the message."""
    documents = await store.container("documents")
    session = str(message.session_id)
    record = await find_document(documents, str(message.message_id), session)
    if record is not None and record["dispatched"]:
        return
    if record is None:
        state = await find_document(documents, STATE, session)
        batch = [("create", (make_outbox_record(message),), {}), store_state(state, message)]
        await documents.execute_item_batch(batch, partition_key=session)
    # Here the record's operations are sent; tracking sends nothing, so there are none.
    await documents.upsert_item(
        make_outbox_record(message) | {"dispatched": True, "ttl": KEPT_SECONDS}
    )


def make_outbox_record(message: func.ServiceBusMessage) -> dict[str, Any]:
    identity = {"id": message.message_id, "session": message.session_id}
    return identity | {"dispatched": False, "operations": []}


def store_state(
    before: dict[str, Any] | None, message: func.ServiceBusMessage
) -> tuple[str, tuple[dict[str, Any]], dict[str, str]]:
    """Return the batch operation that stores the state, provided that it is as it was read."""
    document = {"id": STATE, "session": message.session_id}
    if before is None:
        return "create", ({**document, "state": track_message({}, message)},), {}
    changed = {**document, "state": track_message(before["state"], message)}
    return "upsert", (changed,), {"if_match_etag": before["_etag"]}
