"""Requests to Cosmos DB: valid ones, mutated, beside a client whose items must stay as they are."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import sha256
from hmac import digest
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fuzz.campaign import Found, Fuzzed
from fuzz.values import damage, mutate
from local.testing.cloud import CloudProcess
from local.testing.raw_amqp import SECONDS_MAX, require

STEADY = "dbs/steady/colls/items"  # of the well-behaved client; no case can name it
FUZZED = "fuzzed"
CONFIG: dict[str, Any] = {
    "UserConfig": {"Namespaces": []},
    "Cosmos": {
        "Database": FUZZED,
        "Containers": [
            {"Name": "one", "PartitionKey": "/key", "DefaultTtl": 2},
            {"Name": "many", "PartitionKey": "/key", "DefaultTtl": 2, "Partitions": 3},
        ],
    },
}
PLACES = tuple(f"dbs/{FUZZED}/colls/{name}" for name in ("one", "one", "many", "many", "made"))
IDS = ("a", "b", "c", "a b", "é", "a?", "x" * 255)
# A text in braces is replaced by what the answer before it held, mutated at times.
ETAG, CONTINUATION = "{etag}", "{continuation}"
DEEP: Any = [[[[[[[[[[]]]]]]]]]]
EDGES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**64), 10**400, 0.1, 1e308, -0.0),
    *(
        float("nan"),
        float("inf"),
        "",
        "a",
        "\0",
        "\ud800",
        "é",
        "1",
        "x" * 300,
        "/a",
        "/a/-",
        "/",
        "//",
    ),
    *([], [0], ["a"], {}, {"a": 1}, {"": {}}, {"id": "a"}, DEEP, "2020-01-01T00:00:00Z", "c.a = 1"),
)
TEXTS = (
    *(
        "",
        "0",
        "-1",
        "1",
        "2",
        "99999999999999999999",
        "1.5",
        "true",
        "True",
        "*",
        "null",
        "x",
        "é",
    ),
    *("[]", "{}", "[1]", '["a"]', "[null]", "[{}]", "[1e400]", '["a","b"]', '["\\ud800"]', "[[1]]"),
    *("0:-1#1", "0:-1#99999999999999999999", "0:1", "00", "FF", "3F", '"1"', "e30=", "W10=", ","),
)
FUNCTIONS = (
    *("ABS", "ARRAY_CONCAT", "ARRAY_CONTAINS", "ARRAY_LENGTH", "ARRAY_SLICE", "CEILING", "CONCAT"),
    *(
        "CONTAINS",
        "COUNT",
        "DateTimePart",
        "DateTimeToTicks",
        "DateTimeToTimestamp",
        "ENDSWITH",
        "EXP",
    ),
    *(
        "FLOOR",
        "IIF",
        "INDEX_OF",
        "IS_DEFINED",
        "IS_NUMBER",
        "LEFT",
        "LENGTH",
        "LOWER",
        "MAX",
        "MIN",
    ),
    *(
        "POWER",
        "RegexMatch",
        "REPLACE",
        "REVERSE",
        "RIGHT",
        "ROUND",
        "SetIntersect",
        "SetUnion",
        "SIGN",
    ),
    *(
        "SQRT",
        "SQUARE",
        "STARTSWITH",
        "StringToArray",
        "StringToNumber",
        "StringToObject",
        "SUBSTRING",
    ),
    *(
        "SUM",
        "AVG",
        "TicksToDateTime",
        "TimestampToDateTime",
        "ToString",
        "TRIM",
        "TRUNC",
        "udf.x",
        "NO",
    ),
)
ATOMS = (
    *(
        "c",
        "c.id",
        "c.key",
        "c.n",
        "c.a.b",
        'c["a"]',
        "c[0]",
        "c._ts",
        "c.list",
        "@p",
        "@q",
        "true",
    ),
    *(
        "null",
        "undefined",
        "0",
        "1",
        "-1",
        "1.5",
        "1e308",
        "1e400",
        "9007199254740993",
        '"a"',
        "'%_'",
    ),
    *('"2020-01-01T00:00:00Z"', '"["', '"(a+"', '"\\ud800"', "[]", "{}", '"yyyy"', "1" * 400),
)
# E stands for an expression, F for a function.
FORMS = (
    *(
        "E = E",
        "E != E",
        "E < E",
        "E >= E",
        "E AND E",
        "E OR E",
        "NOT E",
        "(E)",
        "[E, E]",
        '{"a": E}',
    ),
    *(
        "E + E",
        "E - E",
        "E * E",
        "E / E",
        "E % E",
        "E || E",
        "-E",
        "E IN (E, E)",
        "E BETWEEN E AND E",
    ),
    *("E LIKE E", "E LIKE E ESCAPE E", "E ? E : E", "E ?? E", "F(E)", "F(E)", "F(E, E)", "F(E, E)"),
    *("F(E, E, E)", "F()", "EXISTS(SELECT VALUE E)", "E & E", "E[0]", "E.a"),
)
QUERIES = (
    *(
        "SELECT * FROM c",
        "SELECT * FROM c WHERE E",
        "SELECT * FROM c WHERE E",
        "SELECT VALUE E FROM c",
    ),
    *(
        "SELECT E AS a, E AS b FROM c WHERE E",
        "SELECT DISTINCT VALUE E FROM c",
        "SELECT TOP 2 * FROM c",
    ),
    *("SELECT * FROM c WHERE c.key = 'a' ORDER BY c.n DESC", "SELECT * FROM c ORDER BY c.n, c.id"),
    *(
        "SELECT VALUE F(E) FROM c",
        "SELECT F(E) AS n FROM c WHERE E",
        "SELECT c.id FROM c OFFSET 1 LIMIT 2",
    ),
    *("SELECT * FROM c ORDER BY E", "SELECT TOP E * FROM c", "SELECT * FROM c JOIN d IN c.list"),
    "SELECT * FROM c GROUP BY E",
)
PATHS = ("/n", "/a", "/a/b", "/list/0", "/list/-", "/key", "/id", "/new", "/_ts", "", "/~1", "a")
FLAGS = {
    "query": "x-ms-documentdb-isquery",
    "cross": "x-ms-documentdb-query-enablecrosspartition",
    "plan": "x-ms-cosmos-is-query-plan-request",
    "upsert": "x-ms-documentdb-is-upsert",
    "batch": "x-ms-cosmos-is-batch-request",
    "atomic": "x-ms-cosmos-batch-atomic",
}
KEY, RANGE = "x-ms-documentdb-partitionkey", "x-ms-documentdb-partitionkeyrangeid"
OTHER_HEADERS = (
    *(
        KEY,
        RANGE,
        "x-ms-max-item-count",
        "x-ms-continuation",
        "x-ms-session-token",
        "If-Match",
        "A-IM",
    ),
    *(
        "If-None-Match",
        "If-Modified-Since",
        "x-ms-start-epk",
        "x-ms-end-epk",
        "x-ms-consistency-level",
    ),
    *(
        "x-ms-offer-throughput",
        "x-ms-cosmos-offer-autopilot-settings",
        "x-ms-date",
        "authorization",
    ),
    *("x-ms-cosmos-populateindexmetrics", "x-ms-documentdb-populatequerymetrics", "Content-Type"),
    *("x-ms-cosmos-intended-collection-rid", "x-ms-cosmos-batch-continue-on-error", "Prefer"),
    *FLAGS.values(),
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `path` is not quoted yet."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Requests over one connection. `edit` changes a continuation token that one hands on."""

    requests: tuple[Request, ...]
    edit: tuple[int, Any]

    def describe(self) -> str:
        return "\n".join(map(repr, (*self.requests, self.edit)))


def make_exchange(rng: Random) -> Exchange:
    requests = []
    for _ in range(rng.randint(1, 4)):
        request = rng.choices(MAKERS, (8, 4, 4, 4, 8, 4, 6, 2))[0](rng, rng.choice(PLACES))
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            request = mutate_request(rng, request)
        requests.append(request)
        if rng.random() < 0.4:
            again = request.headers | {"x-ms-continuation": CONTINUATION}
            requests.append(Request(request.method, request.path, again, request.body))
    return Exchange(tuple(requests), (rng.randrange(7), rng.choice(EDGES)))


def flags(*names: str) -> dict[str, str]:
    return {FLAGS[name]: "True" for name in names}


def write(rng: Random, document: Any) -> str:
    """JSON of a document, mutated at times."""
    for _ in range(rng.choice((0, 0, 1, 2))):
        document = mutate(rng, document, EDGES)
    return json.dumps(document)


def make_item(rng: Random) -> dict[str, Any]:
    numbers = {"n": rng.randrange(5), "a": {"b": rng.choice(EDGES)}, "list": [1, "a", None]}
    return {"id": rng.choice(IDS), "key": rng.choice("ab"), **numbers}


def create(rng: Random, place: str) -> Request:
    item = make_item(rng)
    headers = {KEY: json.dumps([item["key"]])} | flags(*rng.choice(((), ("upsert",))))
    return Request("POST", f"{place}/docs", headers, write(rng, item))


def access(rng: Random, place: str) -> Request:
    method = rng.choice(("GET", "GET", "PUT", "DELETE"))
    headers = {KEY: json.dumps([rng.choice("ab")])}
    if rng.random() < 0.3:
        headers[rng.choice(("If-Match", "If-None-Match"))] = ETAG
    item = make_item(rng)
    body = write(rng, item) if method == "PUT" else None
    return Request(method, f"{place}/docs/{item['id']}", headers, body)


def make_patch(rng: Random) -> dict[str, Any]:
    operations: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(("add", "set", "replace", "remove", "incr", "move"))
        one: dict[str, Any] = {"op": name, "path": rng.choice(PATHS)}
        one |= {"from": rng.choice(PATHS)} if name == "move" else {"value": rng.choice(EDGES)}
        operations.append(one)
    condition = {"condition": f"FROM c WHERE {make_expression(rng, 2)}"}
    return {"operations": operations} | (condition if rng.random() < 0.3 else {})


def patch(rng: Random, place: str) -> Request:
    headers = {KEY: json.dumps([rng.choice("ab")])}
    return Request("PATCH", f"{place}/docs/{rng.choice(IDS)}", headers, write(rng, make_patch(rng)))


def batch(rng: Random, place: str) -> Request:
    operations: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(("Create", "Read", "Replace", "Upsert", "Patch", "Delete"))
        one: dict[str, Any] = {"operationType": name}
        if name != "Create":
            one["id"] = rng.choice(IDS)
        if name in ("Create", "Replace", "Upsert", "Patch"):
            one["resourceBody"] = make_patch(rng) if name == "Patch" else make_item(rng)
        operations.append(one)
    headers = flags("batch", "atomic") | {KEY: '["a"]'}
    if rng.random() < 0.5:  # each for itself
        headers = flags("batch") | {RANGE: rng.choice("012")}
        operations = [one | {"partitionKey": '["a"]'} for one in operations]
    return Request("POST", f"{place}/docs", headers, write(rng, operations))


def make_expression(rng: Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(ATOMS)
    text = re.sub(r"\bF\b", lambda _: rng.choice(FUNCTIONS), rng.choice(FORMS))
    return re.sub(r"\bE\b", lambda _: make_expression(rng, depth - 1), text)


def query(rng: Random, place: str) -> Request:
    text = re.sub(r"\bF\b", lambda _: rng.choice(FUNCTIONS), rng.choice(QUERIES))
    text = re.sub(r"\bE\b", lambda _: make_expression(rng, rng.randint(0, 3)), text)
    if rng.random() < 0.1:
        words = text.split()
        at, other = rng.randrange(len(words)), rng.randrange(len(words))
        words[at] = rng.choice((words[other], "", "(", ",", "'"))
        text = " ".join(words)
    parameters = [{"name": name, "value": rng.choice(EDGES)} for name in ("@p", "@q")]
    document: dict[str, Any] = {"query": text, "parameters": parameters}
    if rng.random() < 0.1:
        document["resumeFilter"] = {"value": [rng.choice(EDGES)], "rid": "AAAA", "exclude": True}
    headers = flags("query", *rng.choice((("cross",), ("cross",), ("plan",), ())))
    headers |= {"Content-Type": "application/query+json", "x-ms-max-item-count": rng.choice("12")}
    headers |= rng.choice(({}, {KEY: '["a"]'}, {RANGE: "0"}, {RANGE: "2"}))
    body = json.dumps(document) if rng.random() < 0.8 else write(rng, document)
    return Request("POST", f"{place}/docs", headers, body)


def read_feed(rng: Random, place: str) -> Request:
    headers = rng.choice(({}, {"A-IM": "Incremental feed"}, {"A-IM": "Full-Fidelity Feed"}))
    headers |= rng.choice(({}, {"If-None-Match": ETAG}, {"If-None-Match": "*"}, {RANGE: "0"}))
    return Request("GET", f"{place}/docs", headers | {"x-ms-max-item-count": "1"})


def define(rng: Random, place: str) -> Request:
    """A container is made, looked at or removed; the two of the configuration stay."""
    made = f"dbs/{FUZZED}/colls/made"
    definition = {
        "id": "made",
        "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2},
        "defaultTtl": 2,
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/n", "/a/b"]}]},
        "indexingPolicy": {
            "indexingMode": "consistent",
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/a/?"}],
            "compositeIndexes": [[{"path": "/n", "order": "descending"}, {"path": "/id"}]],
        },
    }
    posted = Request("POST", f"dbs/{FUZZED}/colls", {}, write(rng, definition))
    searched = Request(
        "POST", f"dbs/{FUZZED}/colls", flags("query"), json.dumps({"query": "SELECT * FROM c"})
    )
    seen = (Request("GET", place), Request("GET", f"{place}/pkranges"), Request("GET", ""))
    return rng.choice((posted, posted, posted, Request("DELETE", made), *seen, searched))


def send_bytes(rng: Random, place: str) -> Request:
    """A body in HybridRow, or what looks like one."""
    start = b"\x81" + bytes(rng.choice((0, 1, 4, 64, 127, 255)) for _ in range(rng.randrange(40)))
    headers = flags("batch") | rng.choice(({RANGE: "0"}, {KEY: '["a"]', **flags("atomic")}))
    return Request("POST", f"{place}/docs", headers, start)


MAKERS: tuple[Callable[[Random, str], Request], ...]
MAKERS = (create, access, patch, batch, query, read_feed, define, send_bytes)


def mutate_request(rng: Random, request: Request) -> Request:
    """The same request with another header, method, path or body."""
    method, path, headers, body = request.method, request.path, dict(request.headers), request.body
    match rng.choice(("header", "header", "header", "drop", "method", "path", "body")):
        case "header":
            headers[rng.choice(OTHER_HEADERS)] = rng.choice((*TEXTS, ETAG, CONTINUATION))
        case "drop" if headers:
            del headers[rng.choice(list(headers))]
        case "method":
            method = rng.choice(("GET", "POST", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE"))
        case "path":
            ends = ("docs/a", "docs", "pkranges", "sprocs/x", "docs/a/attachments", "", "docs/%FF")
            path = f"{rng.choice(PLACES)}/{rng.choice(ends)}"
        case "body" if body is not None:
            body = damage(rng, body if isinstance(body, bytes) else body.encode())
    # The containers of the configuration stay.
    is_item = path.count("/") >= 5
    return Request("GET" if method == "DELETE" and not is_item else method, path, headers, body)


class CosmosTarget:
    """An account, and a client of it whose items are what it wrote."""

    def __init__(self, cloud: CloudProcess) -> None:
        account = cloud.contract["cosmos"]
        self._host = urlsplit(account["endpoint"]).netloc
        self._secret = base64.b64decode(account["key"])
        self._steady = HTTPConnection(self._host, timeout=SECONDS_MAX)
        self._count = 0
        key = {"paths": ["/id"], "kind": "Hash", "version": 2}
        self._ask(201, "POST", "dbs", {"id": "steady"})
        self._ask(201, "POST", "dbs/steady/colls", {"id": "items", "partitionKey": key})

    def send(self, case: Exchange) -> None:
        held = {ETAG: "", CONTINUATION: ""}
        connection = HTTPConnection(self._host, timeout=SECONDS_MAX)
        try:
            for request in case.requests:
                headers = {name: held.get(text, text) for name, text in request.headers.items()}
                status, received, body = self._exchange(
                    connection, Request(request.method, request.path, headers, request.body)
                )
                judge_answer(request, status, body)
                held[ETAG] = received.get("etag", "")
                held[CONTINUATION] = edit_token(received.get("x-ms-continuation", ""), *case.edit)
        except (HTTPException, OSError) as error:
            raise Found(f"no answer: {error!r}") from error
        finally:
            connection.close()

    def check(self) -> None:
        """Write an item, read, change, find and remove it."""
        self._count += 1
        name = f"{STEADY}/docs/{self._count}"
        key = {KEY: json.dumps([str(self._count)])}
        item = {"id": str(self._count), "n": self._count}
        self._ask(201, "POST", f"{STEADY}/docs", item, key)
        read = self._ask(200, "GET", name, None, key)
        require(read["n"] == self._count, read)
        changed = self._ask(200, "PUT", name, item | {"n": -1}, key | {"If-Match": read["_etag"]})
        require(changed["n"] == -1, changed)
        found = self._ask(200, "GET", f"{STEADY}/docs")["Documents"]
        require([one["id"] for one in found] == [item["id"]], found)
        self._ask(204, "DELETE", name, None, key)

    def finish(self) -> None:
        """Raise Found if an item is left."""
        left = self._ask(200, "GET", f"{STEADY}/docs")["Documents"]
        require(left == [], left)
        self._steady.close()

    def _ask(
        self,
        wanted: int,
        method: str,
        path: str,
        document: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        body = None if document is None else json.dumps(document)
        request = Request(method, path, headers or {}, body)
        status, _, text = self._exchange(self._steady, request)
        require(status == wanted, f"{request}: {status} {text!r}")
        return json.loads(text or "null")

    def _exchange(
        self, connection: HTTPConnection, request: Request
    ) -> tuple[int, dict[str, str], bytes]:
        parts = request.path.split("/") if request.path else []
        is_feed = len(parts) % 2 == 1
        link = "/".join(map(unquote, parts[:-1] if is_feed else parts))
        kind = "" if not parts else parts[-1 if is_feed else -2]
        date = formatdate(usegmt=True)
        text = f"{request.method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        signature = base64.b64encode(digest(self._secret, text.encode(), sha256)).decode()
        token = quote(f"type=master&ver=1.0&sig={signature}", safe="")
        headers = {"authorization": token, "x-ms-date": date} | request.headers
        sent = {name: value.encode() for name, value in headers.items()}
        connection.request(request.method, "/" + quote(request.path, safe="/%"), request.body, sent)
        answer = connection.getresponse()
        received = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, received, answer.read()


def judge_answer(request: Request, status: int, body: bytes) -> None:
    """Raise Found unless the answer is what a client can read, and no failure of the service."""
    if status >= 500:
        raise Found(f"{request}: {status} {body!r}")
    if not body or body.startswith(b"\x81"):
        return
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Found(f"{request}: {status} with no JSON: {body!r}") from error
    if status >= 400 and not (isinstance(document, dict) and document.get("message")):
        raise Found(f"{request}: {status} without a message: {body!r}")


def edit_token(token: str, at: int, value: Any) -> str:
    """A continuation token with one of its parts changed, if it has so many."""
    try:
        parts = json.loads(base64.urlsafe_b64decode(token))
        parts[at] = value
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()
    except (ValueError, IndexError, TypeError, KeyError):
        return token


COSMOS = Fuzzed(CONFIG, make_exchange, CosmosTarget)
