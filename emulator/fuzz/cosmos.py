"""Requests to Cosmos DB: valid ones, mutated, beside a client whose items must stay as they are."""

import base64
import json
import re
from contextlib import closing
from email.utils import formatdate
from hashlib import sha256
from hmac import digest
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from azure.core import MatchConditions
from azure.cosmos import CosmosClient, PartitionKey

from fuzz.campaign import Service
from fuzz.values import damage, fill, mutate
from local.testing.cloud import CloudProcess
from local.testing.raw_amqp import SECONDS_MAX, require

EXPIRING = {"PartitionKey": "/key", "DefaultTtl": 2}
CONFIG: dict[str, Any] = {
    "UserConfig": {"Namespaces": []},
    "Cosmos": {
        "Database": "fuzzed",
        "Containers": [{"Name": "one", **EXPIRING}, {"Name": "many", **EXPIRING, "Partitions": 3}],
    },
}
EDGES = [10**400, "x" * 300]
EDGES += json.loads(r"""[
    null, true, false, 0, 1, -1, 2147483648, 9007199254740993, 9223372036854775808, 0.1, 1e308,
    -0.0, NaN, Infinity, "", "a", "\u0000", "\ud800", "é", "1", "/a", "/a/-", "/", "//", "c.a = 1",
    "2020-01-01T00:00:00Z", [], [0], ["a"], {}, {"a": 1}, {"": {}}, {"id": "a"}, [[[[[[[[[]]]]]]]]]
]""")
EDGE = tuple(EDGES)
GRAMMAR = Path(__file__).with_name("cosmos.grammar").read_text(encoding="utf-8")
CHOICES: dict[str, list[str]] = {
    name: re.split(r"\s+\|\s", choices)
    for name, choices in re.findall(r"^(\w+) ::= (.+(?:\n .+)*)", GRAMMAR, re.MULTILINE)
}
KEY, RANGE = "x-ms-documentdb-partitionkey", "x-ms-documentdb-partitionkeyrangeid"
OF_KEY: dict[str, Any] = {KEY: '["<key>"]'}
BATCH = {"x-ms-cosmos-is-batch-request": "True"}
ATOMIC = {**BATCH, "x-ms-cosmos-batch-atomic": "True", KEY: '["a"]'}
QUERY = {
    "x-ms-documentdb-isquery": "True",
    "x-ms-documentdb-query-enablecrosspartition": "<maybe>",
    "x-ms-cosmos-is-query-plan-request": "<rarely>",
    "x-ms-max-item-count": "1",
    RANGE: "<range>",
}
ITEM = {"id": "<id>", "key": "<key>", "n": 3, "a": {"b": (1, EDGE)}, "list": [1, "a", None]}
CHANGE = {"op": "<operation>", "path": "<path>", "from": "<path>", "value": (1, EDGE)}
CHANGES = {"operations": ([CHANGE], [CHANGE] * 2, [CHANGE] * 3)}
PATCH = (CHANGES, CHANGES, {**CHANGES, "condition": "FROM c WHERE <e>"})
STEP = (
    {"id": "<id>", "operationType": ("Read", "Delete")},
    {"operationType": "Create", "resourceBody": ITEM},
    {"id": "<id>", "operationType": ("Replace", "Upsert"), "resourceBody": ITEM},
    {"id": "<id>", "operationType": "Patch", "resourceBody": PATCH},
)
STEPS = ([STEP], [STEP] * 2, [STEP] * 4)
EACH = [tuple({**one, "partitionKey": '["<key>"]'} for one in STEP)] * 2
PARAMETERS = [{"name": "@p", "value": EDGE}, {"name": "@q", "value": EDGE}]
SELECT = {"query": "<query>", "parameters": PARAMETERS}
RESUMED = {**SELECT, "resumeFilter": {"value": [EDGE], "rid": "AAAA", "exclude": True}}
CONTAINER = json.loads("""{
    "id": "made", "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2},
    "defaultTtl": 2, "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/n", "/a/b"]}]},
    "indexingPolicy": {"indexingMode": "consistent", "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/a/?"}],
        "compositeIndexes": [[{"path": "/n", "order": "descending"}, {"path": "/id"}]]}
}""")


class Request(NamedTuple):
    """One request; `path` is not quoted yet."""

    method: str
    path: str
    headers: dict[str, Any]
    body: Any = None


REQUESTS = (
    *[Request("POST", "<docs>", OF_KEY | {"x-ms-documentdb-is-upsert": "<maybe>"}, ITEM)] * 4,
    *[Request("<access>", "<docs>/<id>", OF_KEY | {"If-Match": "<tag>"}, ITEM)] * 2,
    *[Request("PATCH", "<docs>/<id>", OF_KEY, PATCH)] * 2,
    Request("POST", "<docs>", ATOMIC, STEPS),
    Request("POST", "<docs>", BATCH | {RANGE: "<range>"}, EACH),
    *[Request("POST", "<docs>", QUERY, (SELECT, SELECT, SELECT, RESUMED))] * 5,
    Request("GET", "<docs>", {"A-IM": "<feed>", "If-None-Match": "<tag>", RANGE: "<range>"}),
    Request("GET", "<docs>", {"x-ms-max-item-count": "1"}),
    *[Request("POST", "dbs/fuzzed/colls", {}, CONTAINER)] * 3,
    Request("POST", "dbs/fuzzed/colls", QUERY, {"query": "SELECT * FROM c"}),
    *[Request("DELETE", "dbs/fuzzed/colls/made", {})] * 2,
    Request("GET", "dbs/fuzzed/colls/one", {}),
    Request("GET", "", {}),
)


def make_requests(rng: Random) -> list[Request]:
    """Requests over one connection."""
    requests = []
    for _ in range(rng.randint(1, 4)):
        requests.append(make_request(rng))
        if rng.random() < 0.4:
            again = requests[-1].headers | {"x-ms-continuation": "{continuation}"}
            requests.append(requests[-1]._replace(headers=again))
    return requests


def make_request(rng: Random) -> Request:
    """A request, at times with another body, header, method or path."""

    def choose(value: Any) -> Any:
        return fill(rng, value, CHOICES)

    method, path, headers, body = choose(list(rng.choice(REQUESTS)))
    for _ in range(rng.choice((0, 0, 1, 2)) if body else 0):
        body = mutate(rng, body, EDGES)
    data = None if body is None else json.dumps(body).encode()
    match rng.choice((*[""] * 5, "header", "header", "drop", "method", "path", "body", "row")):
        case "header":
            headers[choose("<header>")] = choose("<text>")
        case "drop" if headers:
            del headers[rng.choice(list(headers))]
        case "method":
            method = choose("<method>")
        case "path":
            path = choose("<docs>").removesuffix("docs") + choose("<end>")
        case "body" if data:
            data = damage(rng, data)
        case "row" if BATCH.items() <= headers.items():  # what looks like HybridRow
            data = b"\x81" + rng.randbytes(rng.randrange(40))
    # The containers of the configuration stay.
    is_removed = method == "DELETE" and path.count("/") < 5 and not path.endswith("made")
    given = {name: text for name, text in headers.items() if text != "-"}
    return Request("GET" if is_removed else method, path, given, data)


class Cosmos(Service[list[Request]]):
    """An account, and a client of it whose items are what it wrote."""

    config = CONFIG
    make = staticmethod(make_requests)

    def __init__(self, cloud: CloudProcess) -> None:
        account = cloud.contract["cosmos"]
        self._host = urlsplit(account["endpoint"]).netloc
        self._secret = base64.b64decode(account["key"])
        database = CosmosClient(account["endpoint"], account["key"]).create_database("steady")
        self._items = database.create_container("items", PartitionKey("/id"))

    def send(self, case: list[Request]) -> None:
        rng = Random(str(case))  # noqa: S311 - to be repeated, not secret
        held = {"{etag}": "", "{continuation}": ""}
        with closing(HTTPConnection(self._host, timeout=SECONDS_MAX)) as connection:
            for one in case:
                headers = {name: held.get(text, text) for name, text in one.headers.items()}
                connection.request(*self._sign(one._replace(headers=headers)))
                answer = connection.getresponse()
                judge_answer(one, answer.status, answer.read())
                held["{etag}"] = answer.getheader("etag", "")
                held["{continuation}"] = edit_token(rng, answer.getheader("x-ms-continuation", ""))

    def check(self) -> None:
        """Write an item, change, find and remove it."""
        written = self._items.create_item({"id": "own", "n": 1})
        unchanged = {"etag": written["_etag"], "match_condition": MatchConditions.IfNotModified}
        changed = self._items.replace_item("own", written | {"n": 2}, **unchanged)
        found = list(self._items.query_items("SELECT * FROM c", enable_cross_partition_query=True))
        require(found == [changed] and changed["n"] == 2, found)
        self._items.delete_item("own", "own")

    def _sign(self, request: Request) -> tuple[str, str, bytes | None, dict[str, bytes]]:
        """Method, address, body and headers as they are sent."""
        parts = request.path.split("/") if request.path else []
        is_feed = len(parts) % 2 == 1
        link = unquote("/".join(parts[:-1] if is_feed else parts))
        kind = "" if not parts else parts[-1 if is_feed else -2]
        date = formatdate(usegmt=True)
        text = f"{request.method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        signature = base64.b64encode(digest(self._secret, text.encode(), sha256)).decode()
        token = quote(f"type=master&ver=1.0&sig={signature}", safe="")
        headers = {"authorization": token, "x-ms-date": date} | request.headers
        sent = {name: value.encode() for name, value in headers.items()}
        return request.method, "/" + quote(request.path, safe="/%"), request.body, sent


def edit_token(rng: Random, token: str) -> str:
    """The same continuation token, damaged, or with another value in the JSON that is in it."""
    try:
        raw = base64.urlsafe_b64decode(token)
        start = raw.index(b"[")
        values = json.dumps(mutate(rng, json.loads(raw[start:]), EDGES))
        changed = base64.urlsafe_b64encode(raw[:start] + values.encode()).decode()
    except ValueError:
        changed = token
    damaged = re.sub(r"[^!-~]", "", damage(rng, token.encode()).decode("latin-1"))
    return rng.choice((token, changed, changed, damaged))


def judge_answer(request: Request, status: int, body: bytes) -> None:
    """Require what a client can read, and no failure of the service."""
    is_readable = True
    if body and not body.startswith(b"\x81"):  # HybridRow
        try:
            document = json.loads(body)
            is_readable = status < 400 or bool(document.get("message"))
        except (AttributeError, ValueError):
            is_readable = False
    require(status < 500 and is_readable, f"{request}: {status} {body!r}")
