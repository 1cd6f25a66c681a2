"""Batches of operations on items: atomic ones in one partition, and bulk, each for itself."""

from collections.abc import Callable
from typing import Any

from local.cosmos.items import charges
from local.cosmos.items.documents import ItemResult, PartitionItems, parse_json
from local.cosmos.items.partitions import parse_key_header
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
HYBRID_ROW = b"\x81"  # its version, the first byte of a batch of the .NET clients
BATCH_KEYS = {"operationType", "id", "resourceBody", "ifMatch", "ifNoneMatch", "partitionKey"}
BY_ID = ("Read", "Replace", "Patch", "Delete")

type BatchAction = Callable[[PartitionItems, dict[str, Any]], ItemResult]

BATCH_ACTIONS: dict[str, BatchAction] = {
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
    """Apply up to a hundred operations in one partition in order, or none.

    Specification: "Transactional batch operations in Azure Cosmos DB". The HTTP status is 200, or
    207. The response lists one result per operation; when one fails it carries its own status and
    every other one 424.
    """
    operations = parse_operations(payload)
    if any("partitionKey" in operation for operation in operations):
        raise NotOffered("'partitionKey' in an operation of an atomic batch")
    results: list[ItemResult] = []
    try:
        with storage.transaction():
            for operation in operations:
                action = BATCH_ACTIONS[operation["operationType"]]
                results.append(action(items, operation))
    except RequestRefused as refusal:  # by the operation after those that have results
        return respond_with_failure(len(operations), len(results), refusal)
    body = f"[{','.join(write_result(one) for one in results)}]"
    return CosmosResponse(200, body.encode(), round(sum(one.charge for one in results), 2))


def run_bulk(
    storage: Storage,
    find_items: Callable[[str | None], PartitionItems],
    payload: bytes,
    *,
    does_go_on: bool,
) -> CosmosResponse:
    """Apply up to a hundred operations of one physical partition in order, each for itself.

    An operation names its key by `partitionKey`, in the form of the header; `find_items` gives the
    items of a key, None being that of the request. After a failure the rest is not tried and has
    424 in its results, unless the client wants to go on. The HTTP status is 200, or 207.
    """
    operations = parse_operations(payload)
    written: list[str] = []
    charge, has_failed = 0.0, False
    for operation in operations:
        if has_failed and not does_go_on:
            skipped = {"statusCode": FAILED_DEPENDENCY, "requestCharge": 0.0}
            written.append(write_json(skipped))
            continue
        try:
            result = run_alone(storage, find_items, operation)
        except RequestRefused as refusal:
            has_failed = True
            charge += charges.REFUSAL
            written.append(write_json(describe_refusal(refusal)))
        else:
            charge += result.charge
            written.append(write_result(result))
    body = f"[{','.join(written)}]".encode()
    return CosmosResponse(207 if has_failed else 200, body, round(charge, 2))


def run_alone(
    storage: Storage,
    find_items: Callable[[str | None], PartitionItems],
    operation: dict[str, Any],
) -> ItemResult:
    key = operation.get("partitionKey")
    if not isinstance(key, str | None):
        raise BadRequest("partitionKey of an operation is a text, as in the header")
    items = find_items(None if key is None else parse_key_header(key))
    try:
        with storage.transaction():
            return BATCH_ACTIONS[operation["operationType"]](items, operation)
    except UnicodeEncodeError as error:
        raise BadRequest("the text holds half of a surrogate pair") from error


def describe_refusal(refusal: RequestRefused) -> dict[str, Any]:
    described: dict[str, Any] = {
        "statusCode": refusal.status,
        "requestCharge": charges.REFUSAL,
        "message": refusal.message,
    }
    if refusal.substatus is not None:
        described["subStatusCode"] = refusal.substatus
    return described


def parse_operations(payload: bytes) -> list[dict[str, Any]]:
    """Read and check the body; a refusal is of the whole batch."""
    if len(payload) > BATCH_BYTES_MAX:
        raise RequestRefused(413, f"a batch may have {BATCH_BYTES_MAX} bytes at most")
    if payload.startswith(HYBRID_ROW):
        raise NotOffered("batches and bulk in HybridRow, only in JSON")
    operations = parse_json(payload)
    if operations == []:
        raise BadRequest("Batch request has no operations.")  # clients look for these words
    if not isinstance(operations, list):
        raise BadRequest("a batch must be a list of operations")
    if len(operations) > OPERATIONS_MAX:
        message = "Batch request has more operations than what is supported."
        raise BadRequest(f"{message} It may have {OPERATIONS_MAX} at most.")
    for operation in operations:
        check_operation(operation)
    return operations


def check_operation(operation: Any) -> None:
    kind = operation.get("operationType") if isinstance(operation, dict) else None
    if not isinstance(kind, str) or kind not in BATCH_ACTIONS:
        raise NotOffered(f"the batch operation {kind!r}")
    for key in operation:
        if key not in BATCH_KEYS:
            raise NotOffered(f"{key!r} in a batch operation")
    if kind in BY_ID and not isinstance(operation.get("id"), str):
        raise BadRequest(f"the batch operation {kind!r} needs an id")
    if "ifNoneMatch" in operation and (kind, operation["ifNoneMatch"]) != ("Create", "*"):
        raise NotOffered("'ifNoneMatch' in a batch operation, but for * of a create")
    if "ifMatch" in operation and kind in ("Create", "Read"):
        raise NotOffered(f"ifMatch on the batch operation {kind!r}")


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
    results[index] = describe_refusal(refusal)
    return CosmosResponse(207, write_json(results).encode(), charges.REFUSAL)
