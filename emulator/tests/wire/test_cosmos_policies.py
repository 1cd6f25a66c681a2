"""What an account or a container is when its settings leave something open."""

import json
from typing import Any
from urllib.parse import unquote_plus

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.cosmos.partition_key import NonePartitionKeyValue

from local.cosmos.config import CosmosConfig
from wire.cosmos_account import SECTION, RunningAccount, running_account

pytestmark = pytest.mark.wire

COUNT = "SELECT VALUE COUNT(1) FROM c"
METRICS = "x-ms-documentdb-query-metrics"
INDEXES = "x-ms-cosmos-index-utilization"
ROOT = {"path": "/*"}
ETAG = {"path": '/"_etag"/?'}


@pytest.mark.parametrize(
    ("policy", "included", "excluded"),
    [
        ({"indexingMode": "consistent"}, [ROOT], [ETAG]),
        ({"includedPaths": [], "excludedPaths": []}, [ROOT], [ETAG]),
        ({"excludedPaths": [{"path": "/big/*"}]}, [ROOT], [{"path": "/big/*"}, ETAG]),
        ({"includedPaths": [{"path": "/"}]}, [{"path": "/"}], [ETAG]),
        ({"includedPaths": [{**ROOT, "indexes": [{"kind": "Hash"}]}]}, [ROOT], [ETAG]),
        (
            {"includedPaths": [{"path": "/a/?"}], "excludedPaths": [ROOT]},
            [{"path": "/a/?"}],
            [ROOT],
        ),
    ],
)
def test_a_root_that_no_path_speaks_of_is_indexed(
    policy: dict[str, Any], included: list[Any], excluded: list[Any]
) -> None:
    with running_account() as account:
        container = account.database.create_container(
            "c", partition_key=PartitionKey("/pk"), indexing_policy=policy
        )
        container.create_item({"id": "1", "pk": "p", "b": 1})
        kept = container.read()["indexingPolicy"]
        is_root_indexed = ROOT in included or {"path": "/"} in included
        if is_root_indexed:
            found = list(
                container.query_items("SELECT c.id FROM c ORDER BY c.b", partition_key="p")
            )
            assert found == [{"id": "1"}]

    assert (kept["includedPaths"], kept.get("excludedPaths", [])) == (included, excluded)


@pytest.mark.parametrize("policy", [0.1, "all", True, [1]])
def test_an_indexing_policy_that_is_no_object_is_refused(policy: Any) -> None:
    body = {"id": "c", "partitionKey": {"paths": ["/pk"]}, "indexingPolicy": policy}
    with running_account() as account:
        status, document = account.send("POST", "/dbs/lockstep/colls", body)

    assert (status, document["message"]) == (400, "indexingPolicy must be an object")


def test_a_refusal_quotes_half_of_a_surrogate_pair_as_it_came() -> None:
    body = {"id": "c", "partitionKey": {"paths": ["/pk"]}, "defaultTtl": "\ud800"}
    with running_account() as account:
        status, document = account.send("POST", "/dbs/lockstep/colls", body)

    assert status == 400
    assert document["message"].endswith("not \ud800")


@pytest.mark.parametrize(
    ("path", "item", "key"),
    [
        ('/"level\' 1"/"le/vel"', {"level' 1": {"le/vel": "a"}}, "a"),
        ("/'level\" 1'/'le/vel'", {'level" 1': {"le/vel": "b"}}, "b"),
        ("/address", {"address": {"state": "WA"}}, NonePartitionKeyValue),
        ("/", {"a": "c"}, NonePartitionKeyValue),
    ],
)
def test_the_path_of_a_key_may_be_quoted_or_lead_to_an_object(
    path: str, item: dict[str, Any], key: Any
) -> None:
    with running_account() as account:
        container = account.database.create_container("c", partition_key=PartitionKey(path))
        container.create_item({"id": "1", **item})
        read = container.read_item("1", partition_key=key)
        patched = container.patch_item("1", key, [{"op": "add", "path": "/n", "value": 1}])
        found = [one["id"] for one in container.query_items("SELECT * FROM c", partition_key=key)]

    assert {name: read[name] for name in item} == item
    assert (patched["n"], found) == (1, ["1"])


@pytest.mark.parametrize("path", ["", "a", "//", "/a/", '/"a', "/a'b"])
def test_a_path_of_a_key_that_leads_nowhere_is_refused(path: str) -> None:
    with running_account() as account, pytest.raises(CosmosHttpResponseError, match="path"):
        account.database.create_container("c", partition_key=PartitionKey(path))


def test_a_key_that_is_an_array_is_refused() -> None:
    with running_account() as account, pytest.raises(CosmosHttpResponseError, match="key value"):
        account.flights.create_item({"id": "1", "tail": ["N1"]})


@pytest.mark.parametrize("name", ["x" * 256, "a/b", "a\tb", "a?", "a#", "a\\b", "a "])
def test_a_name_of_a_container_that_azure_refuses_is_refused_here(name: str) -> None:
    body = {"id": name, "partitionKey": {"paths": ["/a"]}}
    with running_account() as account:
        refused = [account.send("POST", "/dbs", {"id": name})]
        refused += [account.send("POST", "/dbs/lockstep/colls", body)]
        status, _ = account.send("POST", "/dbs/lockstep/colls", {**body, "id": "x" * 255})

    assert [answer[0] for answer in refused] == [400, 400]
    assert all("less than '255' characters" in answer["message"] for _, answer in refused)
    assert status == 201


def test_an_answer_says_where_it_was_found() -> None:
    path = "/dbs/lockstep/colls/flights"
    with running_account() as account:
        _, received, _ = account.ask(account.cosmos.port, "GET", path)

    assert received["content-location"] == f"http://127.0.0.1:{account.cosmos.port}{path}"


@pytest.mark.parametrize(
    ("text", "loaded", "given"),
    [("SELECT * FROM c", 4, 4), ("SELECT * FROM c WHERE c.n + 0 = 2", 4, 1), (COUNT, 0, 1)],
)
def test_the_metrics_of_a_query_tell_what_it_loaded(text: str, loaded: int, given: int) -> None:
    with running_account() as account:
        for number in range(4):
            account.flights.create_item({"id": str(number), "tail": "N1", "n": number})
        asked = account.flights.query_items(text, partition_key="N1", populate_query_metrics=True)
        found = list(asked)
        silent = account.flights.query_items(text, partition_key="N1")
        list(silent)
        header = asked.get_response_headers()[METRICS]
        other = silent.get_response_headers()

    metrics = dict(entry.split("=") for entry in header.split(";"))
    assert len(found) == given
    assert int(metrics["retrievedDocumentCount"]) == loaded
    assert int(metrics["outputDocumentCount"]) == given
    assert float(metrics["indexUtilizationRatio"]) == (given / loaded if loaded else 1.0)
    assert METRICS not in other


@pytest.mark.parametrize(
    ("text", "used", "lacking"),
    [
        ("SELECT * FROM c", ["/pk/?"], []),
        ("SELECT * FROM c WHERE c.n = 1 AND c.big.x > 1", ["/n/?", "/pk/?"], ["/big/x/?"]),
        ("SELECT * FROM c WHERE c.n = 1 OR c.big.x > 1", ["/pk/?"], ["/big/x/?"]),
        ("SELECT * FROM c WHERE c.n + 0 = 1", ["/pk/?"], []),  # no index could decide it
        ('SELECT * FROM c WHERE ARRAY_CONTAINS(c.l, "a")', ["/l/[]/?", "/pk/?"], []),
        ("SELECT * FROM c ORDER BY c.n DESC", ["/n/?", "/pk/?"], []),
    ],
)
def test_index_metrics_name_what_a_query_used_and_lacked(
    text: str, used: list[str], lacking: list[str]
) -> None:
    with running_account() as account:
        policy = {"excludedPaths": [{"path": "/big/*"}]}
        container = account.database.create_container(
            "c", partition_key=PartitionKey("/pk"), indexing_policy=policy
        )
        asked = container.query_items(text, partition_key="p", populate_index_metrics=True)
        list(asked)
        metrics: Any = container.client_connection.last_response_headers[INDEXES]
        list(container.query_items(text, partition_key="p"))
        assert INDEXES not in container.client_connection.last_response_headers

    assert [one["IndexSpec"] for one in metrics["UtilizedSingleIndexes"]] == used
    assert [one["IndexSpec"] for one in metrics["PotentialSingleIndexes"]] == lacking
    assert metrics["UtilizedCompositeIndexes"] == metrics["PotentialCompositeIndexes"] == []


def test_index_metrics_name_the_composite_index_of_an_order() -> None:
    with running_account() as account:
        paths = [{"path": "/a", "order": "ascending"}, {"path": "/b c", "order": "descending"}]
        policy = {"includedPaths": [ROOT], "compositeIndexes": [paths]}
        container = account.database.create_container(
            "c", partition_key=PartitionKey("/pk"), indexing_policy=policy
        )
        text = 'SELECT * FROM c ORDER BY c.a, c["b c"] DESC'
        list(container.query_items(text, partition_key="p", populate_index_metrics=True))
        metrics: Any = container.client_connection.last_response_headers[INDEXES]

    (composite,) = metrics["UtilizedCompositeIndexes"]
    assert composite["IndexSpecs"] == ["/a ASC", '/"b c" DESC']


def test_index_metrics_come_as_json_by_the_header_of_the_clients_of_net_and_javascript() -> None:
    with running_account() as account:
        paths = [{"path": "/a"}, {"path": "/b%é+"}]
        policy = {
            "includedPaths": [ROOT],
            "excludedPaths": [{"path": "/big/?"}],
            "compositeIndexes": [paths],
        }
        account.database.create_container(
            "c", partition_key=PartitionKey("/pk"), indexing_policy=policy
        )
        text = 'SELECT * FROM c WHERE c.n = 1 AND c.big = 1 ORDER BY c.a, c["b%é+"]'
        _, headers, _ = account.ask(
            account.cosmos.port,
            "POST",
            "/dbs/lockstep/colls/c/docs",
            {"query": text},
            {
                "x-ms-documentdb-isquery": "True",
                "x-ms-documentdb-partitionkey": '["p"]',
                "x-ms-cosmos-populateindexmetrics-V2": "True",
            },
        )

    # An order that a client can read as it is, but for what it takes for a percent code.
    assert headers[INDEXES].startswith('{"Utilized":{"SingleIndexes":[{"IndexSpec":"/n/?"},')
    assert json.loads(unquote_plus(headers[INDEXES])) == {
        "Utilized": {
            "SingleIndexes": [{"IndexSpec": "/n/?"}, {"IndexSpec": "/pk/?"}],
            "CompositeIndexes": [{"IndexSpecs": ["/a ASC", '/"b%é+" ASC']}],
        },
        "Potential": {
            "SingleIndexes": [{"IndexSpec": "/big/?", "IndexImpactScore": "High"}],
            "CompositeIndexes": [],
        },
    }


def test_a_container_without_an_index_stays_without_one() -> None:
    with running_account() as account:
        policy = {"indexingMode": "none", "automatic": False}
        container = account.database.create_container(
            "c", partition_key=PartitionKey("/pk"), indexing_policy=policy
        )

        with pytest.raises(CosmosHttpResponseError, match="ORDER BY needs an index"):
            list(container.query_items("SELECT * FROM c ORDER BY c.b", partition_key="p"))


def test_an_account_of_session_consistency_charges_relaxed_reads_and_refuses_stronger_ones() -> (
    None
):
    config = CosmosConfig.parse({**SECTION, "Consistency": "Session"})
    with running_account(config=config) as account:
        account.flights.create_item({"id": "1", "tail": "N1"})
        charges = [read_charge(account, level) for level in (None, "Eventual")]
        _, described = account.send("GET", "/")
        path = "/dbs/lockstep/colls/flights/docs/1"
        headers = {"x-ms-documentdb-partitionkey": '["N1"]', "x-ms-consistency-level": "Strong"}
        status, refusal = account.send("GET", path, headers=headers)

    assert charges == ["1.0", "1.0"]
    assert described["userConsistencyPolicy"] == {"defaultConsistencyLevel": "Session"}
    assert (status, "stronger than the account's Session" in refusal["message"]) == (400, True)


def read_charge(account: RunningAccount, level: str | None) -> str:
    headers = {"x-ms-documentdb-partitionkey": '["N1"]'}
    if level is not None:
        headers["x-ms-consistency-level"] = level
    path = "/dbs/lockstep/colls/flights/docs/1"
    _, received, _ = account.ask(account.cosmos.port, "GET", path, headers=headers)
    return received["x-ms-request-charge"]


def test_a_replaced_item_may_take_another_id_but_none_that_is_taken() -> None:
    with running_account() as account:
        account.flights.create_item({"id": "old", "tail": "N1"})
        account.flights.create_item({"id": "taken", "tail": "N1"})

        replaced = account.flights.replace_item("old", {"id": "new", "tail": "N1"})
        with pytest.raises(CosmosHttpResponseError) as refusal:
            account.flights.replace_item("new", {"id": "taken", "tail": "N1"})
        ids = [one["id"] for one in account.flights.read_all_items()]

    assert (replaced["id"], refusal.value.status_code) == ("new", 409)
    assert sorted(ids) == ["new", "taken"]


def test_a_request_of_more_than_two_mebibytes_is_refused_though_its_item_is_smaller() -> None:
    path = "/dbs/lockstep/colls/flights/docs"
    headers = {"x-ms-documentdb-partitionkey": '["N1"]'}
    with running_account() as account:
        status, _ = account.send("POST", path, escaped(300_000), headers)
        refused, answer = account.send("POST", path, escaped(400_000), headers)

    assert (status, refused) == (201, 413)
    assert "2097152 bytes" in answer["message"]


def escaped(characters: int) -> str:
    """An item whose text takes six bytes a character in the request, and two in the store."""
    text = "\\u00e9" * characters
    return f'{{"id":"{characters}","tail":"N1","text":"{text}"}}'


def test_databases_and_containers_are_found_by_conditions() -> None:
    with running_account() as account:
        account.client.create_database("other")
        named = [{"name": "@id", "value": "other"}]
        text = "SELECT * FROM root r WHERE r.id = @id"
        databases = [one["id"] for one in account.client.query_databases(text, parameters=named)]
        paths: list[Any] = list(
            account.database.query_containers(
                "SELECT VALUE c.partitionKey.paths[0] FROM c WHERE c.id != 'journal'"
            )
        )
        with pytest.raises(CosmosHttpResponseError, match="more than conditions"):
            list(account.client.query_databases("SELECT TOP 1 * FROM c"))

    assert databases == ["other"]
    assert paths == ["/tail", "/tail"]
