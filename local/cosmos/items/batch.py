"""Transactional batches: up to a hundred operations in one partition, all applied or none.

Specification: "Transactional batch operations in Azure Cosmos DB". The response lists one result
per operation; when one fails it carries its own status and every other one 424.
"""

from collections.abc import Callable
from typing import Any

from local.cosmos.items import charges
from local.cosmos.items.documents import ItemResult, PartitionItems, parse_json
from local.cosmos.items.patch import parse_patch
from local.cosmos.items.storage import Storage
from local.cosmos.responses import (
    BadRequest,
    CosmosResponse,
    NotOffered,
    RequestRefused,
    write_json,
)

OPERATIONS_MAX = 100
BATCH_BYTES_MAX = 2 * 1024 * 1024
FAILED_DEPENDENCY = 424
KNOWN_KEYS = {"operationType", "id", "resourceBody", "ifMatch"}
BY_ID = ("Read", "Replace", "Patch", "Delete")

type BatchAction = Callable[[PartitionItems, dict[str, Any]], ItemResult]

ACTIONS: dict[str, BatchAction] = {
    "Create": lambda items, op: items.create(op.get("resourceBody")),
    "Read": lambda items, op: items.read(op["id"]),
    "Replace": lambda items, op: items.replace(op["id"], op.get("resourceBody"), op.get("ifMatch")),
    "Upsert": lambda items, op: items.upsert(op.get("resourceBody"), op.get("ifMatch")),
    "Patch": lambda items, op: items.patch(
        op["id"], parse_patch(op.get("resourceBody")), op.get("ifMatch")
    ),
    "Delete": lambda items, op: items.delete(op["id"], op.get("ifMatch")),
}


def run_batch(storage: Storage, items: PartitionItems, payload: bytes) -> CosmosResponse:
    """Apply all operations in order, or none; the HTTP status is 200 or 207."""
    operations = parse_operations(payload)
    results: list[ItemResult] = []
    try:
        with storage.transaction():
            for operation in operations:
                action = ACTIONS[operation["operationType"]]
                results.append(action(items, operation))
    except RequestRefused as refusal:  # by the operation after those that have results
        return respond_with_failure(len(operations), len(results), refusal)
    body = f"[{','.join(write_result(one) for one in results)}]"
    return CosmosResponse(200, body.encode(), round(sum(one.charge for one in results), 2))


def parse_operations(payload: bytes) -> list[dict[str, Any]]:
    """Read and check the body; a refusal is of the whole batch."""
    if len(payload) > BATCH_BYTES_MAX:
        raise RequestRefused(413, f"a batch may have {BATCH_BYTES_MAX} bytes at most")
    operations = parse_json(payload)
    if not isinstance(operations, list) or not 1 <= len(operations) <= OPERATIONS_MAX:
        raise BadRequest(f"a batch must have 1 to {OPERATIONS_MAX} operations")
    for operation in operations:
        kind = operation.get("operationType") if isinstance(operation, dict) else None
        if not isinstance(kind, str) or kind not in ACTIONS:
            raise NotOffered(f"the batch operation {kind!r}")
        for key in operation:
            if key not in KNOWN_KEYS:
                raise NotOffered(f"{key!r} in a batch operation")
        if kind in BY_ID and not isinstance(operation.get("id"), str):
            raise BadRequest(f"the batch operation {kind!r} needs an id")
        if "ifMatch" in operation and kind in ("Create", "Read"):
            raise NotOffered(f"ifMatch on the batch operation {kind!r}")
    return operations


def write_result(result: ItemResult) -> str:
    """One result as JSON; the item's text is passed on as it is stored."""
    head = {"statusCode": result.status, "requestCharge": result.charge}
    if not result.body:
        return write_json(head)
    tagged = write_json(head | {"eTag": result.etag})
    return f'{tagged[:-1]},"resourceBody":{result.body}}}'


def respond_with_failure(count: int, index: int, refusal: RequestRefused) -> CosmosResponse:
    """The results when the operation at an index was refused; only it is charged."""
    results: list[dict[str, Any]] = [
        {"statusCode": FAILED_DEPENDENCY, "requestCharge": 0.0} for _ in range(count)
    ]
    results[index] = {"statusCode": refusal.status, "requestCharge": charges.REFUSAL}
    results[index]["message"] = refusal.message
    if refusal.substatus is not None:
        results[index]["subStatusCode"] = refusal.substatus
    return CosmosResponse(207, write_json(results).encode(), charges.REFUSAL)
