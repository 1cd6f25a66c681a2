"""docs/local.md on what Cosmos DB honours is what the code says, and the other way round."""

import re

import pytest

from local.cosmos.http import account, requests
from local.cosmos.http.batches import BATCH_ACTIONS
from local.cosmos.http.documents import RANGE_GONE
from local.cosmos.http.requests import KINDS, parse_address
from local.cosmos.items import patch
from local.cosmos.items.containers import KNOWN_PROPERTIES
from local.cosmos.items.indexing import KNOWN_KEYS
from local.cosmos.query.merging import NOT_SERVABLE
from local.cosmos.responses import RequestRefused
from local.cosmos.sql.functions import AGGREGATES, FUNCTIONS
from local.cosmos.sql.parser import parse_query
from tests.docs.local_page import (
    ITEM,
    ITEMS,
    ROOT,
    cells,
    coded,
    modules,
    names,
    paragraph,
    section,
)


def test_every_resource_and_property_of_a_container() -> None:
    resources, settings = paragraph("Cosmos DB", "Resources").split("Container properties")

    assert set(coded(resources)) == set(KINDS)
    assert set(coded(settings.split("Throughput")[0])) == KNOWN_PROPERTIES | KNOWN_KEYS


def test_every_operation_on_items() -> None:
    examples: dict[str, tuple[str, str, dict[str, str]]] = {
        "create": ("POST", ITEMS, {}),
        "upsert": ("POST", ITEMS, {"x-ms-documentdb-is-upsert": "true"}),
        "read": ("GET", ITEM, {}),
        "replace": ("PUT", ITEM, {}),
        "patch": ("PATCH", ITEM, {}),
        "delete": ("DELETE", ITEM, {}),
        "batch": ("POST", ITEMS, {"x-ms-cosmos-is-batch-request": "true"}),
        "query": ("POST", ITEMS, {"x-ms-documentdb-isquery": "true"}),
        "query-plan": ("POST", ITEMS, {"x-ms-cosmos-is-query-plan-request": "True"}),
        "feed": ("GET", ITEMS, {"A-IM": "Incremental Feed"}),
        "account": ("GET", "/", {}),
    }

    called = {
        requests.CosmosRequest(method, parse_address(path), headers, b"", "").operation
        for method, path, headers in examples.values()
    }

    assert called == set(examples) == names("Cosmos DB", "operation")
    operations = cells("Cosmos DB", "operation")
    assert set(coded(operations["batch"])) == set(BATCH_ACTIONS)
    assert set(coded(operations["patch"])) == patch.APPLY.keys() | {"condition"}


def test_every_header_and_substatus() -> None:
    source = modules("local/cosmos")
    headers = set(re.findall(r'"(x-ms-[\w-]+|If-[\w-]+|A-IM|Prefer)"', source))
    substatuses = {*re.findall(r"substatus=(\d+)", source)} | {
        str(RANGE_GONE),
        str(account.RID_MISMATCH),
        str(NOT_SERVABLE),
    }

    assert names("Cosmos DB", "header") == headers
    assert set(re.findall(r"\b1\d{3}\b", paragraph("Cosmos DB", "Everywhere"))) == substatuses


def test_every_query_that_is_honoured_can_be_parsed_and_shows_every_word() -> None:
    examples = names("Cosmos DB", "query", 1)
    for example in examples:
        parse_query(example, {"@p": 1})

    text = " ".join(examples)
    grammar = (ROOT / "local/cosmos/sql/grammar.lark").read_text()
    grammar, _ = grammar.split("// What the service knows")
    words = {
        word
        for found in re.findall(r": /(.+)\\b/i", grammar)
        for word in re.findall("[A-Z]+", found)
    }
    assert {"SELECT", "DESC", "NULL"} < words
    assert set(re.findall(r"\b[A-Z_]{2,}\b", text)) == {*words, *FUNCTIONS, *AGGREGATES}
    operators = re.findall(r"^(?:COMPARISON|ADDITIVE|MULTIPLICATIVE): (.+)$", grammar, re.MULTILINE)
    marks = set(re.findall(r'"([^"]+)"', " ".join(operators)))
    assert len(operators) == 3
    assert marks - {mark for mark in marks if f" {mark} " in text} == {"||"}
    assert "Two bars join texts" in section("Cosmos DB")


def test_every_query_that_is_refused_is_refused() -> None:
    for example in names("Cosmos DB", "query refused", 1):
        with pytest.raises(RequestRefused):
            parse_query(example, {})
