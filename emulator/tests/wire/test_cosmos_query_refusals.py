"""Queries that are refused, by the name of what is not offered or not right."""

import json
from collections.abc import Iterator

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from wire.cosmos_account import RunningAccount
from wire.cosmos_flights import FLIGHTS, account_with_flights, run

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    with account_with_flights() as running:
        yield running


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("SELECT * FROM c JOIN x IN c.crew", "JOIN"),
        ("SELECT VALUE x FROM x IN c.crew", "IN"),
        ("SELECT * FROM c.crew", "FROM"),
        ("SELECT * FROM c WHERE EXISTS(SELECT VALUE 1 FROM c)", "EXISTS"),
        ("SELECT ARRAY(SELECT VALUE 1 FROM c) FROM c", "ARRAY"),
        ("SELECT (SELECT 1 FROM c) FROM c", "SELECT at position 8"),
        ("SELECT VALUE COUNT(DISTINCT c.tail) FROM c", "DISTINCT"),
        ("SELECT c.tail FROM c GROUP BY c.tail", "GROUP"),
        ("SELECT c.tail, COUNT(1) FROM c", "GROUP BY"),
        ("SELECT TOP 1 COUNT(1) FROM c", "aggregate together with"),
        ("SELECT * FROM c WHERE COUNT(1) > 1", "COUNT in this place"),
        ("SELECT VALUE SUM(MAX(c.delay)) FROM c", "MAX in this place"),
        ("SELECT VALUE COUNT() FROM c", "COUNT with 0 arguments"),
        ("SELECT * FROM c WHERE udf.late(c.delay)", "udf"),
        ("SELECT * FROM c WHERE ST_DISTANCE(c.a, c.b) < 1", "ST_DISTANCE"),
        ("SELECT * FROM c WHERE CONTAINS(c.id)", "CONTAINS with 1 arguments"),
        ("SELECT * FROM c WHERE c.delay & 1 = 1", "& at position"),
        ("SELECT * FROM c WHERE c.id LIKE '[z-a]'", "pattern"),
        ("SELECT * FROM c WHERE c.id IN ()", "IN without values"),
        ("SELECT * FROM c WHERE c.crew[c.delay] = 'Ann'", "c at position"),
        ("SELECT * FROM c WHERE d.id = '1'", "d at position"),
        ("SELECT * FROM c WHERE c.id = @nobody", "@nobody"),
        ("SELECT * FROM c WHERE c.delay < 1e999", "too large"),
        ("SELECT * FROM c ORDER BY ARRAY_LENGTH(c.crew)", "ORDER BY"),
        ("SELECT * FROM c ORDER BY c.crew[0]", "ORDER BY"),
        ("SELECT * FROM c ORDER BY c.tail, c.delay", "index"),
        ("SELECT TOP 1 * FROM c OFFSET 1 LIMIT 1", "exclude"),
        ("SELECT TOP -1 * FROM c", "- at position"),
        ("SELECT * FROM c WHERE c.id = '1' c", "c at position"),
        ("SELECT VALUE 'it''s' FROM c", "FROM expected"),
        ("SELECT *", "FROM"),
        (f"SELECT * FROM c WHERE {'(' * 70}true{')' * 70}", "64 parentheses"),
        ("SELECT * FROM c WHERE __import__('os').getcwd()", "__IMPORT__"),
    ],
)
def test_a_construct_that_is_not_offered_is_refused_by_name(
    account: RunningAccount, text: str, construct: str
) -> None:
    with pytest.raises(CosmosHttpResponseError, match=construct) as refusal:
        run(account.flights, text)

    assert refusal.value.status_code == 400


@pytest.mark.parametrize("container", ["flights", "divided"])
def test_several_aggregates_over_all_partitions_are_refused(
    account: RunningAccount, container: str
) -> None:
    with pytest.raises(CosmosHttpResponseError, match="without a partition key"):
        run(getattr(account, container), "SELECT COUNT(1) AS n FROM c")


@pytest.mark.parametrize("text", ["SELECT * FROM c ORDER BY c.id", "SELECT VALUE COUNT(1) FROM c"])
@pytest.mark.parametrize("container", ["flights", "divided"])
def test_what_a_client_must_merge_is_not_answered_on_one_physical_partition_either(
    account: RunningAccount, container: str, text: str
) -> None:
    path = f"/dbs/lockstep/colls/{container}/docs"
    headers = {
        "Content-Type": "application/query+json",
        "x-ms-documentdb-isquery": "True",
        "x-ms-documentdb-query-enablecrosspartition": "True",
    }

    asked = account.ask(account.cosmos.port, "POST", path, {"query": text}, headers)
    chosen = headers | {"x-ms-documentdb-partitionkeyrangeid": "0"}
    answered = account.ask(account.cosmos.port, "POST", path, {"query": text}, chosen)

    assert (asked[0], asked[1]["x-ms-substatus"]) == (400, "1004")
    assert json.loads(asked[2]["additionalErrorInfo"])["queryInfo"]["rewrittenQuery"]
    assert answered[0] == 200


def test_order_by_a_path_without_an_index_is_refused(account: RunningAccount) -> None:
    account.journal.create_item({"id": "0", "session": "s", "position": 1})

    with pytest.raises(CosmosHttpResponseError, match="/position"):
        run(account.journal, "SELECT * FROM c ORDER BY c.position")

    assert len(run(account.journal, "SELECT * FROM c ORDER BY c._ts DESC")) == 1


def test_order_by_two_paths_uses_a_composite_index(account: RunningAccount) -> None:
    policy = {
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [],
        "compositeIndexes": [
            [{"path": "/from", "order": "ascending"}, {"path": "/delay", "order": "descending"}]
        ],
    }
    key = PartitionKey(path="/tail")
    sorted_flights = account.database.create_container("sorted", key, indexing_policy=policy)
    for flight in FLIGHTS:
        sorted_flights.create_item(dict(flight))

    query = 'SELECT VALUE c.id FROM c ORDER BY c["from"] {}, c.delay {}'
    assert run(sorted_flights, query.format("ASC", "DESC")) == ["4", "3", "1", "5", "2"]
    assert run(sorted_flights, query.format("DESC", "ASC")) == ["2", "5", "3", "1", "4"]
    with pytest.raises(CosmosHttpResponseError, match="index"):
        run(sorted_flights, query.format("ASC", "ASC"))
