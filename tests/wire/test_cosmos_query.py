"""Queries through the unchanged azure-cosmos client."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from tests.wire.cosmos_account import Clock, RunningAccount, running_account

pytestmark = pytest.mark.wire

FLIGHTS: list[dict[str, Any]] = [
    {
        "id": "1",
        "tail": "N1",
        "from": "JFK",
        "delay": 5,
        "crew": ["Ann", "Bo"],
        "plan": {"fl": 330},
    },
    {"id": "2", "tail": "N1", "from": "LGA", "delay": -3, "crew": [], "plan": {"fl": 350}},
    {"id": "3", "tail": "N1", "from": "JFK", "delay": 5, "cancelled": True, "odd name": "x"},
    {"id": "4", "tail": "N2", "from": "EWR", "delay": None, "crew": ["Cy"], "plan": {"fl": "high"}},
    {"id": "5", "tail": "N2", "from": "JFK", "delay": 2.5, "cancelled": False},
]


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        for flight in FLIGHTS:
            running.flights.create_item(dict(flight))
        yield running


def run(container: ContainerProxy, text: str, **rest: Any) -> list[Any]:
    """All results of a cross-partition query."""
    rest.setdefault("enable_cross_partition_query", True)
    return list(container.query_items(text, **rest))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("c.id = '1'", "1"),
        ('c["from"] = "JFK"', "1 3 5"),
        ('c["odd name"] = "x"', "3"),
        ("c.delay > 2", "1 3 5"),
        ("c.delay >= 2.5 AND c.delay < 5", "5"),
        ("c.delay <= -3", "2"),
        ("5 = c.delay", "1 3"),
        ("c.delay = null", "4"),
        ("c.delay != null", "1 2 3 5"),
        ("c.delay <> 5", "2 4 5"),
        ("c.cancelled", "3"),
        ("NOT c.cancelled", "5"),
        ("c.cancelled = true OR c.tail = 'N2'", "3 4 5"),
        ("c.tail = 'N1' AND (c.delay = 5 OR c['from'] = 'LGA') AND NOT c.cancelled", ""),
        ("NOT IS_DEFINED(c.cancelled)", "1 2 4"),
        ("IS_DEFINED(c.plan.fl)", "1 2 4"),
        ("c.plan.fl > 330", "2"),
        ("STARTSWITH(c['from'], 'JF')", "1 3 5"),
        ("STARTSWITH(c.id, '3')", "3"),
        ("STARTSWITH(c.delay, '3')", ""),
        ("ARRAY_LENGTH(c.crew) = 0", "2"),
        ("ARRAY_LENGTH(c.crew) > 0", "1 4"),
        ("c.id IN ('1', '4', '9')", "1 4"),
        ("c['from'] IN ('LGA', 'EWR')", "2 4"),
        ("c['from'] NOT IN ('LGA', 'EWR')", "1 3 5"),
        ("c.id > '2' AND c.id <= '4'", "3 4"),
        ("c.id != '2'", "1 3 4 5"),
        ("c._ts = 1700000000", "1 2 3 4 5"),
        ("c._ts > 1700000000", ""),
        ("c.missing = c.missing", ""),
        ("true", "1 2 3 4 5"),
        ("false", ""),
    ],
)
def test_a_condition_selects(account: RunningAccount, condition: str, expected: str) -> None:
    found = run(account.flights, f"SELECT VALUE c.id FROM c WHERE {condition} ORDER BY c.id")

    assert found == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT c.id, c.plan.fl FROM c WHERE c.id < '3'", [("1", 330), ("2", 350)]),
        ("SELECT f.id AS number, f['from'] FROM flights f WHERE f.id = '4'", [("4", "EWR")]),
        ("SELECT f.id, f.missing FROM flights AS f WHERE f.id = '4'", [("4",)]),
        ("select value r.delay from root r where r.tail = 'N1' order by r.id", [5, -3, 5]),
        ("SELECT VALUE c.cancelled FROM c ORDER BY c.id", [True, False]),
        ("SELECT VALUE COUNT(1) FROM c", [5]),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.tail = 'N2'", [2]),
        ("SELECT VALUE COUNT(c.cancelled) FROM c", [2]),
        ("SELECT VALUE ARRAY_LENGTH(c.crew) FROM c WHERE c.id = '1'", [2]),
        ("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id DESC", ["5", "4"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 1 LIMIT 2", ["2", "3"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 4 LIMIT 10", ["5"]),
        ("SELECT VALUE c.id FROM c WHERE c.tail = 'N1' ORDER BY c.delay DESC", ["1", "3", "2"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.delay", ["4", "2", "5", "1", "3"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.cancelled DESC OFFSET 0 LIMIT 2", ["3", "5"]),
        ("SELECT VALUE 'it''s'  FROM c WHERE c.id = '1'", None),
        (r"SELECT VALUE 'it\'s' FROM c WHERE c.id = '1'", ["it's"]),
    ],
)
def test_a_selection_shows(account: RunningAccount, text: str, expected: list[Any] | None) -> None:
    if expected is None:
        with pytest.raises(CosmosHttpResponseError) as refusal:
            run(account.flights, text)
        assert refusal.value.status_code == 400
        return

    found = run(account.flights, text)

    assert [tuple(one.values()) if isinstance(one, dict) else one for one in found] == expected


def test_select_star_returns_items_as_they_were_stored(account: RunningAccount) -> None:
    found = run(account.flights, "SELECT * FROM c WHERE c.tail = @tail", parameters=[tail("N2")])

    assert found == [account.flights.read_item(number, "N2") for number in ("4", "5")]


def tail(value: Any) -> dict[str, object]:
    """A query parameter."""
    return {"name": "@tail", "value": value}


def test_a_parameter_is_a_value_and_never_text(account: RunningAccount) -> None:
    nasty = "N2' OR true OR c.tail = '"

    assert (
        run(account.flights, "SELECT * FROM c WHERE c.tail = @tail", parameters=[tail(nasty)]) == []
    )


def test_a_query_bound_to_a_partition_sees_only_it(account: RunningAccount) -> None:
    found = account.flights.query_items("SELECT VALUE c.id FROM c", partition_key="N2")

    assert [str(one) for one in found] == ["4", "5"]


def test_a_query_over_all_partitions_must_be_enabled(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="cross-partition"):
        run(account.flights, "SELECT * FROM c", enable_cross_partition_query=False)


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("SELECT DISTINCT c.id FROM c", "DISTINCT"),
        ("SELECT * FROM c JOIN x IN c.crew", "JOIN"),
        ("SELECT VALUE x FROM x IN c.crew", "IN"),
        ("SELECT * FROM c WHERE c.delay BETWEEN 1 AND 2", "BETWEEN"),
        ("SELECT * FROM c WHERE c.id LIKE 'a%'", "LIKE"),
        ("SELECT * FROM c WHERE c.delay + 1 = 2", r"\+"),
        ("SELECT * FROM c WHERE CONTAINS(c.id, '1')", "CONTAINS"),
        ("SELECT * FROM c WHERE c.crew[0] = 'Ann'", "array indexes"),
        ("SELECT VALUE SUM(c.delay) FROM c", "SUM"),
        ("SELECT COUNT(1) FROM c", "COUNT without VALUE"),
        ("SELECT c.tail FROM c GROUP BY c.tail", "GROUP"),
        ("SELECT {'a': c.id} FROM c", "{"),
        ("SELECT * FROM c WHERE d.id = '1'", "d at position"),
        ("SELECT * FROM c WHERE c.id = @nobody", "@nobody"),
        ("SELECT * FROM c ORDER BY ARRAY_LENGTH(c.crew)", "ORDER BY"),
        ("SELECT * FROM c.crew", "FROM"),
        ("SELECT * FROM c WHERE c.id = '1' c", "c at position"),
        ("SELECT * FROM c ORDER BY c.tail, c.delay", "index"),
        ("SELECT *", "FROM"),
        ("SELECT * FROM c WHERE __import__('os').getcwd()", "__import__|position|IMPORT"),
    ],
)
def test_a_construct_that_is_not_offered_is_refused_by_name(
    account: RunningAccount, text: str, construct: str
) -> None:
    with pytest.raises(CosmosHttpResponseError, match=construct) as refusal:
        run(account.flights, text)

    assert refusal.value.status_code == 400


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
    assert run(sorted_flights, query.format("ASC", "DESC")) == ["4", "1", "3", "5", "2"]
    assert run(sorted_flights, query.format("DESC", "ASC")) == ["2", "5", "1", "3", "4"]
    with pytest.raises(CosmosHttpResponseError, match="index"):
        run(sorted_flights, query.format("ASC", "ASC"))


@pytest.fixture(scope="module")
def long_session(account: RunningAccount) -> ContainerProxy:
    """A partition of 95 entries, and a neighbour."""
    for start in (0, 50):
        entries = [
            ("create", ({"id": f"{at:05}", "session": "long", "n": at % 7},))
            for at in range(start, min(start + 50, 95))
        ]
        account.journal.execute_item_batch(entries, partition_key="long")
    account.journal.create_item({"id": "99999", "session": "short"})
    return account.journal


def texts(pages: Any) -> list[list[str]]:
    """Pages of strings as lists."""
    return [[str(one) for one in page] for page in pages]


@pytest.mark.parametrize("order", ["", "ORDER BY c.id", "ORDER BY c.id DESC", "ORDER BY c._ts"])
def test_pages_join_to_the_whole_without_gap_or_overlap(
    long_session: ContainerProxy, order: str
) -> None:
    query = long_session.query_items(
        f"SELECT VALUE c.id FROM c {order}", partition_key="long", max_item_count=20
    )

    pages = texts(query.by_page())

    assert [len(page) for page in pages] == [20, 20, 20, 20, 15]
    everything = sorted(f"{at:05}" for at in range(95))
    assert [one for page in pages for one in page] == (
        everything[::-1] if "DESC" in order else everything
    )


def test_a_query_resumes_from_a_continuation_token_behind_what_was_shown(
    long_session: ContainerProxy,
) -> None:
    text = "SELECT VALUE c.id FROM c ORDER BY c.id DESC OFFSET 5 LIMIT 30"
    first: Any = long_session.query_items(text, partition_key="long", max_item_count=20).by_page()
    shown = [str(one) for one in next(first)]

    rest = long_session.query_items(text, partition_key="long", max_item_count=20)
    resumed = texts(rest.by_page(first.continuation_token))

    expected = [f"{at:05}" for at in range(89, 59, -1)]
    assert shown == expected[:20]
    assert resumed == [expected[20:]]


def test_a_token_of_another_query_is_refused(long_session: ContainerProxy) -> None:
    pages = long_session.query_items("SELECT * FROM c", partition_key="long", max_item_count=5)
    first: Any = pages.by_page()
    next(first)

    other = long_session.query_items("SELECT c.id FROM c", partition_key="long")
    with pytest.raises(CosmosHttpResponseError, match="another query"):
        list(other.by_page(first.continuation_token))


def test_the_newest_entry_of_a_partition_costs_one_looked_at_item(
    long_session: ContainerProxy,
) -> None:
    charges = []

    def keep(headers: Any, _: Any) -> None:
        charges.append(float(headers["x-ms-request-charge"]))

    newest = long_session.query_items(
        "SELECT TOP 1 * FROM c WHERE c.id < @end ORDER BY c.id DESC",
        parameters=[{"name": "@end", "value": "9"}],
        partition_key="long",
        response_hook=keep,
    )

    assert [one["id"] for one in newest] == ["00094"]
    assert charges == [4.8]  # (2.3 + 0.1) twice, for strong consistency


def test_expired_items_do_not_appear() -> None:
    clock = Clock()
    with running_account(clock) as account:
        account.journal.create_item({"id": "short", "session": "s", "ttl": 5})
        account.journal.create_item({"id": "long", "session": "s"})
        clock.seconds += 5

        assert run(account.journal, "SELECT VALUE c.id FROM c") == ["long"]
        assert run(account.journal, "SELECT VALUE COUNT(1) FROM c") == [1]
