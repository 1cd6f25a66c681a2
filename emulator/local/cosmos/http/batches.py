"""Batches of operations on items: atomic ones in one partition, and bulk, each for itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from local.cosmos import charges
from local.cosmos.exact_json import parse_json
from local.cosmos.http.hybrid_row import (
    BINARY,
    FLOAT64,
    INT32,
    TRUE,
    UINT32,
    UTF8,
    VERSION,
    Schema,
    decode_row,
    encode_row,
    read_records,
    write_records,
)
from local.cosmos.items.documents import ItemResult, PartitionItems
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
BATCH_KEYS = {
    *("operationType", "id", "resourceBody", "ifMatch", "ifNoneMatch", "partitionKey"),
    "minimalReturnPreference",
}
# The schemas of the .NET clients' batches: HybridRowBatchSchemas.json in azure-cosmos-dotnet-v3.
OPERATION_SCHEMA = Schema(
    number=2145473648,
    fixed={"operationType": INT32, "resourceType": INT32},
    variable={
        "partitionKey": UTF8,
        "effectivePartitionKey": BINARY,
        "id": UTF8,
        "binaryId": BINARY,
        "resourceBody": BINARY,
    },
    sparse={
        "indexingDirective": UTF8,
        "ifMatch": UTF8,
        "ifNoneMatch": UTF8,
        "timeToLiveInSeconds": INT32,
        "minimalReturnPreference": TRUE,
    },
)
RESULT_SCHEMA = Schema(
    number=2145473649,
    fixed={"statusCode": INT32, "subStatusCode": INT32},
    variable={"eTag": UTF8, "resourceBody": BINARY},
    sparse={"retryAfterMilliseconds": UINT32, "requestCharge": FLOAT64},
)
OPERATION_TYPES = {0: "Create", 1: "Patch", 2: "Read", 4: "Delete", 5: "Replace", 20: "Upsert"}
DOCUMENT_TYPE = 2
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


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of one operation; `body` is the item as JSON, empty if it is not sent."""

    status: int
    charge: float
    etag: str = ""
    body: str = ""
    substatus: int | None = None
    message: str = ""


def run_batch(storage: Storage, items: PartitionItems, payload: bytes) -> CosmosResponse:
    """Apply up to a hundred operations in one partition in order, or none.

    Specification: "Transactional batch operations in Azure Cosmos DB". The HTTP status is 200, or
    207. The response lists one result per operation; when one fails it carries its own status and
    every other one 424.
    """
    operations = parse_operations(payload)
    if any("partitionKey" in operation for operation in operations):
        raise NotOffered("'partitionKey' in an operation of an atomic batch")
    results: list[OperationResult] = []
    status = 200
    try:
        with storage.transaction():
            for operation in operations:
                action = BATCH_ACTIONS[operation["operationType"]]
                results.append(describe_result(action(items, operation), operation))
    except RequestRefused as refusal:  # by the operation after those that have results
        status, failed = 207, len(results)
        results = [OperationResult(FAILED_DEPENDENCY, 0.0)] * len(operations)
        results[failed] = describe_refusal(refusal)
    charge = round(sum(one.charge for one in results), 2)
    return CosmosResponse(status, write_results(results, payload), charge)


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
    results: list[OperationResult] = []
    has_failed = False
    for operation in operations:
        if has_failed and not does_go_on:
            results.append(OperationResult(FAILED_DEPENDENCY, 0.0))
            continue
        try:
            result = run_alone(storage, find_items, operation)
        except RequestRefused as refusal:
            has_failed = True
            results.append(describe_refusal(refusal))
        else:
            results.append(describe_result(result, operation))
    charge = round(sum(one.charge for one in results), 2)
    return CosmosResponse(207 if has_failed else 200, write_results(results, payload), charge)


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


def describe_result(result: ItemResult, operation: dict[str, Any]) -> OperationResult:
    body = "" if operation.get("minimalReturnPreference") else result.body
    return OperationResult(result.status, result.charge, result.etag, body)


def describe_refusal(refusal: RequestRefused) -> OperationResult:
    return OperationResult(
        refusal.status, charges.REFUSAL, substatus=refusal.substatus, message=refusal.message
    )


def parse_operations(payload: bytes) -> list[dict[str, Any]]:
    """Read and check the body; a refusal is of the whole batch."""
    if len(payload) > BATCH_BYTES_MAX:
        raise RequestRefused(413, f"a batch may have {BATCH_BYTES_MAX} bytes at most")
    if payload.startswith(VERSION):
        operations = [read_operation(row) for row in read_records(payload)]
    else:
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


def read_operation(row: bytes) -> dict[str, Any]:
    """An operation of a .NET client, in the form of one in JSON."""
    operation = decode_row(OPERATION_SCHEMA, row)
    if operation.pop("resourceType", None) != DOCUMENT_TYPE:
        raise NotOffered("a batch of other resources than items")
    number = operation.get("operationType", -1)
    operation["operationType"] = OPERATION_TYPES.get(number, number)
    if "resourceBody" in operation:
        operation["resourceBody"] = parse_json(operation["resourceBody"])
    return operation


def write_results(results: list[OperationResult], payload: bytes) -> bytes:
    """The body of the answer, in the form that the request has."""
    if payload.startswith(VERSION):
        return write_records(write_result_row(one) for one in results)
    return f"[{','.join(write_result(one) for one in results)}]".encode()


def write_result(result: OperationResult) -> str:
    """One result as JSON; the item's text is passed on as it is stored."""
    described: dict[str, Any] = {"statusCode": result.status, "requestCharge": result.charge}
    if result.message:
        described["message"] = result.message
    if result.substatus is not None:
        described["subStatusCode"] = result.substatus
    if not result.body:
        return write_json(described)
    tagged = write_json(described | {"eTag": result.etag})
    return f'{tagged[:-1]},"resourceBody":{result.body}}}'


def write_result_row(result: OperationResult) -> bytes:
    """One result as a HybridRow, which has no place for the sentence of a refusal."""
    return encode_row(
        RESULT_SCHEMA,
        {
            "statusCode": result.status,
            "subStatusCode": result.substatus,
            "eTag": result.etag or None,
            "resourceBody": result.body.encode() or None,
            "requestCharge": result.charge,
        },
    )
