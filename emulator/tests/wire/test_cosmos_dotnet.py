"""Requests as Microsoft.Azure.Cosmos 3.63, the .NET client, sends them, written by hand."""

import base64
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from zlib import crc32

import pytest

from local.cosmos.items.containers import decode_id
from wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire

CONTAINER = "/dbs/lockstep/colls/divided"
ITEMS = f"{CONTAINER}/docs"
QUERY = {
    "Content-Type": "application/query+json",
    "x-ms-documentdb-isquery": "True",
    "x-ms-documentdb-query-enablecrosspartition": "True",
}
RANGE = "x-ms-documentdb-partitionkeyrangeid"
KEY = {"x-ms-documentdb-partitionkey": '["N0"]'}
TIED = range(60)


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    """Sixty flights over five physical partitions, with many in the same row of an order."""
    with running_account() as running:
        for n in TIED:
            running.divided.create_item({"id": f"{n:02}", "tail": f"N{n % 12}", **describe_row(n)})
        yield running


def describe_row(n: int) -> dict[str, Any]:
    """A row of one of several types, and none for every seventh flight."""
    rows: list[Any] = [1, "a", None, True, 2.5, "b"]
    return {} if n % 7 == 6 else {"row": rows[n // 12]}


def ask(account: RunningAccount, body: dict[str, Any], **more: str) -> tuple[int, Any]:
    headers = QUERY | {name.replace("_", "-"): value for name, value in more.items()}
    return account.send("POST", ITEMS, body, headers)


@pytest.mark.parametrize(
    "header",
    [
        "x-ms-noretry-449",
        "x-ms-cosmos-use-thinclient",
        "x-ms-documentdb-populatequerymetrics",
        "x-ms-cosmos-query-optimisticdirectexecute",
        "x-ms-cosmos-supported-serialization-formats",
        "x-ms-cosmos-batch-ordered",
        "x-ms-cosmos-populateindexmetrics",
        "x-ms-cosmos-populateindexmetrics-v2",
        "x-ms-cosmos-populatequeryadvice",
        "x-ms-dedicatedgateway-max-age",
        "x-ms-dedicatedgateway-bypass-cache",
        "x-ms-documentdb-query-enable-low-precision-order-by",
    ],
)
def test_a_header_that_only_asks_for_a_favour_is_passed_over(
    account: RunningAccount, header: str
) -> None:
    status, _ = account.send("GET", "/", headers={header: "True"})

    assert status == 200


def test_the_account_says_how_large_queries_may_be(account: RunningAccount) -> None:
    _, document = account.send("GET", "/")

    engine = json.loads(document["queryEngineConfiguration"])

    assert engine["maxSqlQueryInputLength"] > 0
    assert engine["sqlAllowGroupByClause"] is False, "the account refuses GROUP BY"


def test_the_resource_id_of_a_container_tells_it_from_that_of_a_user(
    account: RunningAccount,
) -> None:
    _, container = account.send("GET", CONTAINER)
    _, database = account.send("GET", "/dbs/lockstep")
    item = account.divided.read_item("00", "N0")

    raw = base64.b64decode(container["_rid"], altchars=b"+-")

    assert (len(raw), raw[4] & 0x80) == (8, 0x80)
    assert raw[:4] == decode_id(database["_rid"])
    assert decode_id(item["_rid"])[:8] == raw


def read_in_order(account: RunningAccount, order: str, pkrange: int) -> list[dict[str, Any]]:
    """What one physical partition has, in order, in one page."""
    text = f"SELECT * FROM c ORDER BY {order}"
    _, page = ask(account, {"query": text}, **{RANGE: str(pkrange), "x-ms-max-item-count": "100"})
    found: list[dict[str, Any]] = page["Documents"]
    return found


def write_resume_value(item: dict[str, Any], path: str) -> Any:
    """The value of an ORDER BY as the client writes it: undefined is an empty array."""
    return item.get(path, [])


@pytest.mark.parametrize("order", ["c.row", "c.row DESC", "c.id", "c.id DESC"])
@pytest.mark.parametrize("pkrange", [0, 3])
def test_a_sorted_query_goes_on_at_the_item_that_a_resume_filter_names(
    account: RunningAccount, order: str, pkrange: int
) -> None:
    whole = read_in_order(account, order, pkrange)
    path = order.split(maxsplit=1)[0].removeprefix("c.")
    assert len(whole) >= 5
    for place, item in enumerate(whole):
        value = write_resume_value(item, path)
        expected = {
            (item["_rid"], False): whole[place:],
            (item["_rid"], True): whole[place + 1 :],
            (None, False): whole[
                next(
                    at
                    for at, one in enumerate(whole)
                    if write_resume_value(one, path) == value
                    and type(write_resume_value(one, path)) is type(value)
                ) :
            ],
        }
        for (rid, is_excluded), rest in expected.items():
            resume = {"value": [value], "exclude": is_excluded} | ({"rid": rid} if rid else {})
            body = {"query": f"SELECT * FROM c ORDER BY {order}", "resumeFilter": resume}
            more = {RANGE: str(pkrange), "x-ms-max-item-count": "100"}
            assert ask(account, body, **more)[1]["Documents"] == rest


def test_the_pages_of_a_resumed_query_bring_each_item_once(account: RunningAccount) -> None:
    """The client drains all partitions, and starts anew with a resume filter after each page."""
    text = "SELECT * FROM c ORDER BY c.id"
    seen: list[str] = []
    for pkrange in range(5):
        body: dict[str, Any] = {"query": text}
        while True:
            more = {RANGE: str(pkrange), "x-ms-max-item-count": "3"}
            page = ask(account, body, **more)[1]["Documents"]
            if not page:
                break
            seen += [one["id"] for one in page]
            last = {"value": [page[-1]["id"]], "rid": page[-1]["_rid"], "exclude": True}
            body = {"query": text, "resumeFilter": last}

    assert sorted(seen) == [f"{n:02}" for n in TIED]


def test_a_token_and_a_resume_filter_hold_both(account: RunningAccount) -> None:
    whole = read_in_order(account, "c.id", 2)
    first = {"value": [whole[2]["id"]], "rid": whole[2]["_rid"], "exclude": False}
    body = {"query": "SELECT * FROM c ORDER BY c.id", "resumeFilter": first}
    more = {**QUERY, RANGE: "2", "x-ms-max-item-count": "2"}
    port = account.cosmos.port
    _, headers, page = account.ask(port, "POST", ITEMS, body, more)

    again = more | {"x-ms-continuation": headers["x-ms-continuation"]}
    _, _, rest = account.ask(port, "POST", ITEMS, body, again | {"x-ms-max-item-count": "100"})

    assert page["Documents"] == whole[2:4]
    assert rest["Documents"] == whole[4:]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"resumeFilter": {"value": [1]}}, "each expression of ORDER BY"),
        ({"resumeFilter": {"value": [1, 2]}, "order": "c.row"}, "each expression of ORDER BY"),
        ({"resumeFilter": {"value": [1], "rid": "AAAA"}, "order": "c.row"}, "resource id"),
        ({"resumeFilter": {"value": [1], "rid": 7}, "order": "c.row"}, "rid of a resumeFilter"),
        ({"resumeFilter": {"value": [1], "exclude": 1}, "order": "c.row"}, "true or false"),
        ({"resumeFilter": {"value": [1], "after": 1}, "order": "c.row"}, "a resumeFilter has"),
        ({"resumeFilter": {"value": 1}, "order": "c.row"}, "a resumeFilter has"),
        (
            {"resumeFilter": {"value": [{"type": "array", "low": 1, "high": 2}]}, "order": "c.row"},
            "an array or an object",
        ),
        ({"options": {}}, "'options' in the body of a query"),
    ],
)
def test_what_a_query_body_says_beyond_its_text_is_refused_by_name(
    account: RunningAccount, body: dict[str, Any], reason: str
) -> None:
    order = body.pop("order", "")
    text = f"SELECT * FROM c{f' ORDER BY {order}' if order else ''}"

    status, document = ask(account, {"query": text, **body}, **{RANGE: "0"})

    assert status == 400
    assert reason in document["message"]


@pytest.mark.parametrize("passes", [True, False])
def test_a_query_body_may_say_that_the_client_merges_nothing(
    account: RunningAccount, passes: bool
) -> None:
    body = {"query": "SELECT VALUE c.id FROM c WHERE c.id = '00'", "passThrough": passes}

    _, answer = ask(account, body, **KEY)

    assert answer["Documents"] == ["00"]


def test_direct_mode_is_refused_with_the_options_that_choose_the_gateway(
    account: RunningAccount,
) -> None:
    path = "/addresses/?$resolveFor=dbs%2flockstep%2fcolls%2fdivided%2fdocs&$partitionKeyRangeIds=0"
    connection = HTTPConnection("127.0.0.1", account.cosmos.port, timeout=60)

    connection.request("GET", path)
    message = json.loads(connection.getresponse().read())["message"]
    connection.close()

    assert "does not offer direct mode" in message
    assert "ConnectionMode.Gateway in .NET, gatewayMode() in Java" in message


def test_a_body_in_the_binary_encoding_is_refused_by_its_name(account: RunningAccount) -> None:
    # A marker of the format, and then an object, as the client writes it.
    status, document = account.send("POST", ITEMS, b"\x80\xea\x05\x24\x86id12", KEY)

    assert status == 400
    assert "binary encoding: unset AZURE_COSMOS_BINARY_ENCODING_ENABLED" in document["message"]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("SELECT COUNT(1) AS n FROM c", {"n": 5}),
        ("SELECT COUNT(1) AS n, MIN(c.id) AS first FROM c", {"n": 5, "first": "00"}),
    ],
)
def test_aggregates_under_names_are_answered_where_a_key_is_named(
    account: RunningAccount, text: str, result: dict[str, Any]
) -> None:
    """The client asks for a plan, by the key, and sends the query that it names, or its own."""
    asks_plan = {"x-ms-cosmos-is-query-plan-request": "True"}

    _, plan = ask(account, {"query": text}, **KEY, **asks_plan)
    _, page = ask(account, {"query": plan["queryInfo"]["rewrittenQuery"] or text}, **KEY)
    status, refused = ask(account, {"query": text}, **asks_plan)

    assert plan["queryInfo"]["aggregates"] == []
    assert page["Documents"] == [result]
    assert status == 400
    assert "in a query without a partition key" in refused["message"]


BATCH = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-ordered": "True"}
ATOMIC = BATCH | {"x-ms-cosmos-batch-atomic": "True", **KEY}
SEGMENT = bytes.fromhex("81 f0d8ff7f 01 0a000000")  # RecordIO's, which is ten bytes long


def write_record(row: bytes) -> bytes:
    length, checksum = len(row).to_bytes(4, "little"), crc32(row).to_bytes(4, "little")
    return bytes.fromhex("81 f1d8ff7f") + length + checksum + row


def write_create(key: str, name: str, more: bytes = b"") -> bytes:
    """The row of a create: its bits, numbers of operation and resource, key and body."""
    body = json.dumps({"id": name, "tail": key}).encode()
    given = json.dumps([key]).encode()
    values = bytes([len(given)]) + given + bytes([len(body)]) + body
    return write_record(bytes.fromhex("81 7054e17f 47 00000000 02000000") + values + more)


def write_read(name: str) -> bytes:
    values = bytes([len(name)]) + name.encode()
    return write_record(bytes.fromhex("81 7054e17f 13 02000000 02000000") + values)


def split_results(answer: Any) -> list[bytes]:
    """The rows of an answer without their headers, that is, from their bits on."""
    rest, rows = bytes(answer), []
    assert rest.startswith(SEGMENT)
    rest = rest.removeprefix(SEGMENT)
    while rest:
        length = int.from_bytes(rest[5:9], "little")
        row = rest[13 : 13 + length]
        assert write_record(row) == rest[: 13 + length]
        assert row.startswith(bytes.fromhex("81 7154e17f"))
        rows.append(row[5:])
        rest = rest[13 + length :]
    return rows


def status_of(row: bytes) -> int:
    return int.from_bytes(row[1:5], "little")


def find_range(account: RunningAccount, key: str) -> str:
    """The number of the physical partition where the client's own hash puts a key."""
    own = account.divided.feed_range_from_partition_key(key)
    (number,) = (
        number
        for number, one in enumerate(account.divided.read_feed_ranges())
        if account.divided.is_feed_range_subset(one, own)
    )
    return str(number)


def test_a_batch_in_hybrid_row_is_applied_whole(account: RunningAccount) -> None:
    # A transactional batch names its key in the header alone.
    body = b'{"id":"whole","tail":"N0"}'
    row = bytes.fromhex("81 7054e17f 43 00000000 02000000") + bytes([len(body)]) + body
    stream = SEGMENT + write_record(row) + write_read("whole")

    status, answer = account.send("POST", ITEMS, stream, ATOMIC)

    assert status == 200
    created, read = split_results(answer)
    assert (status_of(created), status_of(read)) == (201, 200)
    stored = account.divided.read_item("whole", "N0")
    account.divided.delete_item("whole", "N0")
    # The bits of status, tag and body; no substatus; the tag, and the item as it is stored.
    assert created[0] == read[0] == 0b1101
    etag = stored["_etag"].encode()
    assert created[9:].startswith(bytes([len(etag)]) + etag)
    assert b'"id":"whole","tail":"N0"' in read
    # Last comes the charge: a double, the sixth name of the schema.
    assert created[-10:-8] == read[-10:-8] == b"\x10\x06"


def test_a_batch_in_hybrid_row_that_fails_leaves_nothing(account: RunningAccount) -> None:
    body = b'{"id":"never","tail":"N0"}'
    row = bytes.fromhex("81 7054e17f 43 00000000 02000000") + bytes([len(body)]) + body
    stream = SEGMENT + write_record(row) + write_read("missing")

    status, answer = account.send("POST", ITEMS, stream, ATOMIC)

    assert status == 207
    assert [status_of(row) for row in split_results(answer)] == [424, 404]
    assert account.send("GET", f"{ITEMS}/never", None, ATOMIC)[0] == 404


def test_operations_of_bulk_in_hybrid_row_stand_alone(account: RunningAccount) -> None:
    """Each with its key, in one physical partition; the second wants no body back."""
    named = find_range(account, "N0")
    twin = next(key for key in map(str, range(1000)) if find_range(account, key) == named)
    stream = SEGMENT + write_create("N0", "bulk") + write_create(twin, "bulk", b"\x03\x0c")
    stream += write_create("N0", "bulk")
    headers = BATCH | {"x-ms-cosmos-batch-continue-on-error": "True", RANGE: named}

    status, answer = account.send("POST", ITEMS, stream, headers)

    account.divided.delete_item("bulk", "N0")
    account.divided.delete_item("bulk", twin)
    first, second, third = split_results(answer)
    assert status == 207
    assert [status_of(row) for row in (first, second, third)] == [201, 201, 409]
    assert b'"id":"bulk"' in first
    assert b"bulk" not in second
    assert second[0] == 0b0101


def test_a_damaged_batch_in_hybrid_row_is_refused(account: RunningAccount) -> None:
    stream = SEGMENT + write_create("N0", "damaged")

    status, document = account.send("POST", ITEMS, stream[:-1] + b"!", ATOMIC)

    assert status == 400
    assert "CRC-32" in document["message"]


def test_a_create_that_allows_no_other_version_is_a_create(account: RunningAccount) -> None:
    headers = {"x-ms-documentdb-partitionkey": '["N99"]', "If-None-Match": "*"}

    created, _ = account.send("POST", ITEMS, {"id": "new", "tail": "N99"}, headers)
    again, _ = account.send("POST", ITEMS, {"id": "new", "tail": "N99"}, headers)
    account.divided.delete_item("new", "N99")

    assert (created, again) == (201, 409)
