"""Transactional batches: up to a hundred operations in one partition, all applied or none.

Specification: "Transactional batch operations in Azure Cosmos DB". The answer lists one result per
operation; when one fails it carries its own status and every other one 424.
"""

from collections.abc import Callable
from typing import Any

from local.cosmos.answers import Answer, Refusal, compact, unsupported
from local.cosmos.items.documents import Done, Items, Place, parse_item
from local.cosmos.items.patch import parse_patch
from local.cosmos.items.storage import Storage

OPERATIONS_MAX = 100
BATCH_BYTES_MAX = 2 * 1024 * 1024
FAILED_DEPENDENCY = 424
KNOWN_KEYS = {"operationType", "id", "resourceBody", "ifMatch"}
BY_ID = ("Read", "Replace", "Patch", "Delete")


class OperationFailed(Exception):
    """An operation of the batch was refused; unwinds the transaction."""

    def __init__(self, index: int, refusal: Refusal) -> None:
        super().__init__(index, refusal)
        self.index = index
        self.refusal = refusal


def run_batch(storage: Storage, items: Items, place: Place, payload: bytes) -> Answer:
    """Apply all operations in order, or none; the HTTP status is 200 or 207."""
    operations = parse_operations(payload)
    try:
        with storage.transaction():
            done = [
                attempt(items, place, index, operation)
                for index, operation in enumerate(operations)
            ]
    except OperationFailed as failure:
        return failed_answer(len(operations), failure)
    results = [result_of(one) for one in done]
    charge = round(sum(one.charge for one in done), 2)
    return Answer(200, f"[{','.join(results)}]".encode(), charge)


def parse_operations(payload: bytes) -> list[dict[str, Any]]:
    """Read and check the body; limits and unknown operations are a Refusal of the whole."""
    if len(payload) > BATCH_BYTES_MAX:
        raise Refusal(413, f"a batch may have {BATCH_BYTES_MAX} bytes at most")
    operations = parse_item(payload)
    if not isinstance(operations, list) or not 1 <= len(operations) <= OPERATIONS_MAX:
        raise Refusal(400, f"a batch must have 1 to {OPERATIONS_MAX} operations")
    for operation in operations:
        check_operation(operation)
    return operations


def check_operation(operation: Any) -> None:
    """Raise a Refusal for an operation, or a condition, that is not offered."""
    kind = operation.get("operationType") if isinstance(operation, dict) else None
    if not isinstance(kind, str) or kind not in ACTIONS:
        raise unsupported(f"the batch operation {kind!r}")
    for key in operation:
        if key not in KNOWN_KEYS:
            raise unsupported(f"{key!r} in a batch operation")
    if kind in BY_ID and not isinstance(operation.get("id"), str):
        raise Refusal(400, f"the batch operation {kind!r} needs an id")
    if "ifMatch" in operation and kind in ("Create", "Read"):
        raise unsupported(f"ifMatch on the batch operation {kind!r}")


def attempt(items: Items, place: Place, index: int, operation: dict[str, Any]) -> Done:
    """Run one operation; OperationFailed when it is refused."""
    try:
        return ACTIONS[operation["operationType"]](items, place, operation)
    except Refusal as refusal:
        raise OperationFailed(index, refusal) from refusal


type BatchAction = Callable[[Items, Place, dict[str, Any]], Done]

ACTIONS: dict[str, BatchAction] = {
    "Create": lambda items, place, op: items.create(place, op.get("resourceBody")),
    "Read": lambda items, place, op: items.read(place, op["id"]),
    "Replace": lambda items, place, op: items.replace(
        place, op["id"], op.get("resourceBody"), op.get("ifMatch")
    ),
    "Upsert": lambda items, place, op: items.upsert(
        place, op.get("resourceBody"), op.get("ifMatch")
    ),
    "Patch": lambda items, place, op: items.patch(
        place, op["id"], parse_patch(op.get("resourceBody")), op.get("ifMatch")
    ),
    "Delete": lambda items, place, op: items.delete(place, op["id"], op.get("ifMatch")),
}


def result_of(done: Done) -> str:
    """One result as JSON; the item's text is passed on as it is stored."""
    head = {"statusCode": done.status, "requestCharge": done.charge}
    if not done.body:
        return compact(head)
    tagged = compact(head | {"eTag": done.etag})
    return f'{tagged[:-1]},"resourceBody":{done.body}}}'


def failed_answer(count: int, failure: OperationFailed) -> Answer:
    """The results when one operation failed; only it is charged."""
    refusal = failure.refusal
    charge = refusal.answer().charge
    results: list[dict[str, Any]] = [
        {"statusCode": FAILED_DEPENDENCY, "requestCharge": 0.0} for _ in range(count)
    ]
    results[failure.index] = {
        "statusCode": refusal.status,
        "requestCharge": charge,
        "message": refusal.message,
    }
    if refusal.substatus is not None:
        results[failure.index]["subStatusCode"] = refusal.substatus
    return Answer(207, compact(results).encode(), charge)
