"""Numbers of more digits than a double has, and of another spelling than Python's.

Requests are written by hand, and answers are compared as text: an SDK would round what it reads.
"""

import json
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest

from wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire

ITEMS = "/dbs/lockstep/colls/flights/docs"
KEY = {"x-ms-documentdb-partitionkey": '["N1"]'}
QUERY = {**KEY, "x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
BATCH = {**KEY, "x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
TICKS = "639313101001234567"  # DateTime.UtcNow.Ticks, whose neighbours are the same double
LAST_LONG = "9223372036854775807"
SPELLINGS = [
    TICKS,
    LAST_LONG,
    "-9223372036854775808",
    "18446744073709551615",
    "9007199254740993",
    "123456789012345678901234567890",
    "1234567890123.4567",
    "12.00",
    "657657567.0",
    "0.1000000000000000055511151231257827",
    "3.224598188088982e+76",
    "1E5",
    "1e-7",
    "-0",
    "-0.0",
    "5e-324",
    "1.7976931348623157E+308",
]


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


def write_item(name: str, number: str, key: str = '"N1"') -> str:
    return f'{{"id":"{name}","tail":{key},"v":{number},"deep":{{"list":[{number},1.5]}}}}'


def ask(
    account: RunningAccount, method: str, path: str, body: Any, headers: dict[str, str]
) -> tuple[int, str]:
    status, _, text = account.exchange(account.cosmos.port, method, path, body, headers)
    return status, text.decode(errors="replace")


def query(account: RunningAccount, text: str, **parameters: str) -> str:
    """The documents of a page, as text; the values of parameters are JSON."""
    named = ",".join(f'{{"name":"@{n}","value":{v}}}' for n, v in parameters.items())
    body = f'{{"query":{json.dumps(text)},"parameters":[{named}]}}'
    status, answer = ask(account, "POST", ITEMS, body, QUERY)
    assert status == 200, answer
    return answer.partition('"Documents":')[2].rpartition(',"_count"')[0]


def create(account: RunningAccount, name: str, number: str) -> str:
    status, text = ask(account, "POST", ITEMS, write_item(name, number), KEY)
    assert status == 201, text
    return text


def delete(account: RunningAccount, *names: str) -> None:
    for name in names:
        account.flights.delete_item(name, "N1")


@pytest.mark.parametrize("number", SPELLINGS)
def test_a_number_that_is_stored_comes_back_digit_for_digit(
    account: RunningAccount, number: str
) -> None:
    own = write_item("1", number)[:-1]

    answers = [create(account, "1", number)]
    answers += [ask(account, "GET", f"{ITEMS}/1", None, KEY)[1]]
    answers += [ask(account, "PUT", f"{ITEMS}/1", f"{own}}}", KEY)[1]]
    upsert = {**KEY, "x-ms-documentdb-is-upsert": "True"}
    answers += [ask(account, "POST", ITEMS, f"{own}}}", upsert)[1]]
    whole = query(account, "SELECT * FROM c")
    feed = ask(account, "GET", ITEMS, None, {**KEY, "A-IM": "Incremental feed"})[1]
    shown = query(account, "SELECT c.v, c.deep.list AS l, [c.deep] AS d FROM c")
    value = query(account, "SELECT VALUE c.v FROM c ORDER BY c.v")
    distinct = query(account, "SELECT DISTINCT VALUE c.v FROM c")
    delete(account, "1")

    assert all(answer.startswith(own) for answer in answers), answers
    assert whole.startswith(f"[{own}")
    assert own in feed
    assert shown == f'[{{"v":{number},"l":[{number},1.5],"d":[{{"list":[{number},1.5]}}]}}]'
    assert value == distinct == f"[{number}]"


def test_a_batch_keeps_the_digits_of_numbers(account: RunningAccount) -> None:
    own = write_item("1", TICKS)
    create_and_read = f'[{{"operationType":"Create","resourceBody":{own}}},'
    create_and_read += '{"operationType":"Read","id":"1"}]'

    status, answer = ask(account, "POST", ITEMS, create_and_read, BATCH)
    delete(account, "1")

    assert status == 200
    assert answer.count(own[:-1]) == 2


def test_a_batch_in_hybrid_row_keeps_the_digits_of_numbers(account: RunningAccount) -> None:
    own = write_item("1", TICKS).encode()
    row = bytes.fromhex("81 7054e17f 43 00000000 02000000") + bytes([len(own)]) + own
    length, checksum = len(row).to_bytes(4, "little"), crc32(row).to_bytes(4, "little")
    record = bytes.fromhex("81 f1d8ff7f") + length + checksum + row
    stream = bytes.fromhex("81 f0d8ff7f 01 0a000000") + record

    status, _, answer = account.exchange(account.cosmos.port, "POST", ITEMS, stream, BATCH)
    delete(account, "1")

    assert status == 200
    assert own[:-1] in answer


def test_a_patch_keeps_the_digits_of_what_it_does_not_touch(account: RunningAccount) -> None:
    create(account, "1", TICKS)
    changes = f'[{{"op":"set","path":"/new","value":{LAST_LONG}}},'
    changes += '{"op":"move","from":"/v","path":"/moved"}]'

    status, text = ask(account, "PATCH", f"{ITEMS}/1", f'{{"operations":{changes}}}', KEY)
    delete(account, "1")

    assert status == 200
    assert f'"deep":{{"list":[{TICKS},1.5]}},"new":{LAST_LONG},"moved":{TICKS}' in text


@pytest.mark.parametrize(
    ("number", "step", "total"),
    [
        ("1", "2", "3"),
        ("1.50", "1", "2.5"),
        ("9007199254740992", "1", "9007199254740992"),
        (TICKS, "1", "639313101001234560"),
        (LAST_LONG, "1", "9.223372036854776e+18"),
    ],
)
def test_an_increment_is_the_sum_of_two_doubles(
    account: RunningAccount, number: str, step: str, total: str
) -> None:
    create(account, "1", number)
    change = f'{{"operations":[{{"op":"incr","path":"/v","value":{step}}}]}}'

    status, text = ask(account, "PATCH", f"{ITEMS}/1", change, KEY)
    delete(account, "1")

    assert status == 200
    assert f'"v":{total},' in text


def test_a_query_compares_numbers_as_doubles(account: RunningAccount) -> None:
    """Both items have the same double, which a third number has as well."""
    create(account, "1", "9007199254740993")
    create(account, "2", "9007199254740992.0")
    same = "SELECT VALUE c.id FROM c WHERE c.v"

    found = [
        query(account, f"{same} = 9007199254740992"),
        query(account, f"{same} = @n", n="9007199254740993"),
        query(account, f"{same} IN (@n)", n="9007199254740993.0"),
        query(account, f"{same} >= 9007199254740993 AND c.v <= 9007199254740992"),
        query(account, f"{same} = 9.007199254740992e15 ORDER BY c.v"),
        query(account, f"{same} < 1 OR ARRAY_CONTAINS(c.deep.list, 9007199254740993)"),
    ]
    above = query(account, f"{same} > 9007199254740992")
    first = query(account, "SELECT DISTINCT VALUE c.v FROM c")
    patched, _ = ask(
        account,
        "PATCH",
        f"{ITEMS}/1",
        '{"condition":"FROM c WHERE c.v = 9007199254740992","operations":'
        '[{"op":"set","path":"/n","value":1}]}',
        KEY,
    )
    delete(account, "1", "2")

    assert found == ['["1","2"]'] * 6
    assert above == "[]"
    assert first == "[9007199254740993]"
    assert patched == 200


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("c.v + 0", "6.393131010012346e+17"),
        ("ABS(c.v)", "6.393131010012346e+17"),
        ("IIF(true, c.v, 1)", TICKS),
        ("@n", "12.00"),
        ("TOSTRING(@n)", '"12"'),
        ("MAX(c.v)", TICKS),
        ("SUM(c.v)", "6.393131010012346e+17"),
        ("IS_NUMBER(c.v) AND IS_PRIMITIVE(c.v)", "true"),
    ],
)
def test_what_a_query_computes_is_a_double_and_what_it_passes_on_keeps_its_digits(
    account: RunningAccount, expression: str, value: str
) -> None:
    create(account, "1", TICKS)

    shown = query(account, f"SELECT VALUE {expression} FROM c", n="12.00")
    delete(account, "1")

    assert shown == f"[{value}]"


def test_a_unique_key_compares_numbers_as_doubles(account: RunningAccount) -> None:
    definition = {"paths": ["/tail"], "kind": "Hash", "version": 2}
    unique = {"uniqueKeys": [{"paths": ["/v"]}]}
    path = "/dbs/lockstep/colls"
    body = {"id": "unique", "partitionKey": definition, "uniqueKeyPolicy": unique}
    account.send("POST", path, body)
    items = f"{path}/unique/docs"

    first, _ = ask(account, "POST", items, write_item("1", "9007199254740993"), KEY)
    second, _ = ask(account, "POST", items, write_item("2", "9007199254740992"), KEY)

    assert (first, second) == (201, 409)


def test_numbers_of_the_same_double_are_one_partition_key(account: RunningAccount) -> None:
    spelled = {"x-ms-documentdb-partitionkey": "[9007199254740993]"}
    other = {"x-ms-documentdb-partitionkey": "[9007199254740992.0]"}

    status, _ = ask(account, "POST", ITEMS, write_item("1", "1", "9007199254740993"), spelled)
    found, text = ask(account, "GET", f"{ITEMS}/1", None, other)
    ask(account, "DELETE", f"{ITEMS}/1", None, other)

    assert (status, found) == (201, 200)
    assert '"tail":9007199254740993' in text


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("NaN", "not JSON: NaN"),
        ("Infinity", "not JSON: Infinity"),
        ("-Infinity", "not JSON: -Infinity"),
        ("1e400", "the number 1e400 is too large"),
        ("-1e400", "the number -1e400 is too large"),
        ("1" + "0" * 400, "is too large"),
        ("01", "not JSON"),
        ("+1", "not JSON"),
        (".5", "not JSON"),
        ("1.", "not JSON"),
        ("0x10", "not JSON"),
        ("1_000", "not JSON"),
        ("1n", "not JSON"),
    ],
)
def test_a_number_that_json_or_a_double_does_not_have_is_refused(
    account: RunningAccount, number: str, reason: str
) -> None:
    in_batch = f'[{{"operationType":"Create","resourceBody":{write_item("1", number)}}}]'
    in_query = f'{{"query":"SELECT @n FROM c","parameters":[{{"name":"@n","value":{number}}}]}}'

    answers = [
        ask(account, "POST", ITEMS, write_item("1", number), KEY),
        ask(account, "POST", ITEMS, in_batch, BATCH),
        ask(account, "POST", ITEMS, in_query, QUERY),
    ]
    key = ask(account, "GET", f"{ITEMS}/1", None, {"x-ms-documentdb-partitionkey": f"[{number}]"})

    assert [status for status, _ in (*answers, key)] == [400] * 4
    assert all(reason in text for _, text in answers), answers
    assert "is not JSON" in key[1]
