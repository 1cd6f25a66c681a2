"""Queries through the unchanged azure-cosmos client: what conditions select and what is shown."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

from wire.cosmos_account import Clock, RunningAccount, running_account
from wire.cosmos_flights import account_with_flights, run

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    with account_with_flights() as running:
        yield running


@pytest.fixture(scope="module", params=["one physical partition", "five physical partitions"])
def flights(account: RunningAccount, request: pytest.FixtureRequest) -> ContainerProxy:
    """The flights in a container of either kind: results do not tell which."""
    return account.flights if request.param.startswith("one") else account.divided


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
        ("c.delay BETWEEN -3 AND 2.5", "2 5"),
        ("c.delay NOT BETWEEN -3 AND 2.5", "1 3"),
        ("c['from'] LIKE 'J%'", "1 3 5"),
        ("c['from'] LIKE '_G_'", "2"),
        ("c['from'] LIKE '[A-E]%'", "4"),
        ("c['from'] LIKE '[^A-J]%'", "2"),
        ("c['from'] NOT LIKE '%K'", "2 4"),
        ("c.id LIKE '!_' ESCAPE '!'", ""),
        ("CONTAINS(c['from'], 'W')", "4"),
        ("CONTAINS(c['from'], 'w')", ""),
        ("CONTAINS(c['from'], 'w', true)", "4"),
        ("STARTSWITH(c['from'], 'jf', true)", "1 3 5"),
        ("ENDSWITH(c['from'], 'K')", "1 3 5"),
        ("STRINGEQUALS(c['from'], 'lga', true)", "2"),
        ("LOWER(c['from']) = 'ewr' OR UPPER('lga') = c['from']", "2 4"),
        ("LENGTH(c['odd name']) = 1", "3"),
        ("ARRAY_CONTAINS(c.crew, 'Bo')", "1"),
        ("ARRAY_CONTAINS(c.crew, 'B')", ""),
        ("NOT ARRAY_CONTAINS(c.crew, 'Bo')", "2 4"),
        ("ARRAY_CONTAINS(['LGA', 'EWR'], c['from'])", "2 4"),
        ("ARRAY_CONTAINS([{'a': 1, 'b': c.delay}], {'b': 5}, true)", "1 3"),
        ("c.crew[0] = 'Ann'", "1"),
        ("c['crew'][1] = 'Bo'", "1"),
        ("c.crew = ['Cy']", "4"),
        ("c.plan = {'fl': 350}", "2"),
        ("IS_NULL(c.delay)", "4"),
        ("IS_NUMBER(c.delay) AND NOT IS_NUMBER(c.cancelled)", "1 2 3 5"),
        ("IS_STRING(c.plan.fl)", "4"),
        ("IS_BOOL(c.cancelled)", "3 5"),
        ("IS_ARRAY(c.crew)", "1 2 4"),
        ("IS_OBJECT(c.plan)", "1 2 4"),
        ("IS_PRIMITIVE(c.delay) AND NOT IS_PRIMITIVE(c.plan)", "1 2 3 4 5"),
        ("c.delay + 1 = 6", "1 3"),
        ("c.delay * 2 - 1 = 4", "5"),
        ("c.delay % 2 = 1", "1 3"),
        ("-c.delay = 3", "2"),
        ("c.delay / 0 = 1 OR NOT (c.delay / 0 = 1)", ""),
        ("c.tail || c.id = 'N23'", ""),
        ("c.tail || c.id = 'N24'", "4"),
        ("(c.cancelled ?? true) = true", "1 2 3 4"),
        ("(c.cancelled ? 'no' : 'yes') = 'yes'", "1 2 4 5"),
        ("IIF(c.cancelled, 1, 0) = 1", "3"),
        ("ABS(c.delay) = 3 OR ROUND(c.delay) = 3", "2 5"),
        ("FLOOR(c.delay) = 2 AND CEILING(c.delay) = 3", "5"),
        ("1 = true OR [1] = [true] OR {'a': 0} = {'a': false}", ""),
        ("true", "1 2 3 4 5"),
        ("false", ""),
    ],
)
def test_a_condition_selects(flights: ContainerProxy, condition: str, expected: str) -> None:
    found = run(flights, f"SELECT VALUE c.id FROM c WHERE {condition} ORDER BY c.id")

    assert found == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT c.id, c.plan.fl FROM c WHERE c.id < '3'", [("1", 330), ("2", 350)]),
        ("SELECT f.id AS number, f['from'] FROM flights f WHERE f.id = '4'", [("4", "EWR")]),
        ("SELECT f.id, f.missing FROM flights AS f WHERE f.id = '4'", [("4",)]),
        ("SELECT c.crew[0], c.delay > 4, 'x' AS y FROM c WHERE c.id = '1'", [("Ann", True, "x")]),
        ("SELECT VALUE {'n': c.id, 'b': {'a': c.no}} FROM c WHERE c.id = '1'", [("1", {})]),
        ("SELECT VALUE [c.id, c.no, [c.delay, -1]] FROM c WHERE c.id = '1'", [["1", [5, -1]]]),
        ("SELECT VALUE c.plan FROM c WHERE c.id = '1'", [(330,)]),
        ("select value r.delay from root r where r.tail = 'N1' order by r.id", [5, -3, 5]),
        ("SELECT VALUE c.cancelled FROM c ORDER BY c.id", [True, False]),
        ("SELECT VALUE COUNT(1) FROM c", [5]),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.tail = 'N2'", [2]),
        ("SELECT VALUE COUNT(c.cancelled) FROM c", [2]),
        ("SELECT VALUE SUM(c.delay) FROM c WHERE IS_NUMBER(c.delay)", [9.5]),
        ("SELECT VALUE SUM(c.delay * 2) FROM c WHERE c.delay > 0", [25]),
        ("SELECT VALUE SUM(c.missing) FROM c", [0]),
        ("SELECT VALUE AVG(c.delay) FROM c WHERE c.delay > 0 AND c.delay < 5", [2.5]),
        ("SELECT VALUE MIN(c.delay) FROM c WHERE IS_NUMBER(c.delay)", [-3]),
        ("SELECT VALUE MAX(c['from']) FROM c", ["LGA"]),
        ("SELECT VALUE ARRAY_LENGTH(c.crew) FROM c WHERE c.id = '1'", [2]),
        ("SELECT VALUE CONCAT(c.id, '-', c.tail, '!') FROM c WHERE c.id = '1'", ["1-N1!"]),
        ("SELECT VALUE SUBSTRING(c['from'], 1, 9) FROM c WHERE c.id = '1'", ["FK"]),
        ("SELECT VALUE LEFT(c['from'], 2) || RIGHT(c.tail, 1) FROM c WHERE c.id = '1'", ["JF1"]),
        ("SELECT VALUE INDEX_OF(c['from'], 'K') FROM c WHERE c.id IN ('1', '2')", [2, -1]),
        ("SELECT VALUE REPLACE(TRIM('  a a '), 'a', c.id) FROM c WHERE c.id = '1'", ["1 1"]),
        ("SELECT DISTINCT VALUE c['from'] FROM c ORDER BY c['from']", ["EWR", "JFK", "LGA"]),
        ("SELECT DISTINCT TOP 2 VALUE c['from'] FROM c ORDER BY c['from'] DESC", ["LGA", "JFK"]),
        ("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id DESC", ["5", "4"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 1 LIMIT 2", ["2", "3"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 4 LIMIT 10", ["5"]),
        ("SELECT VALUE c.id FROM c WHERE c.tail = 'N1' ORDER BY c.delay DESC", ["3", "1", "2"]),
        (r"SELECT VALUE 'it\'s' FROM c WHERE c.id = '1'", ["it's"]),
    ],
)
def test_a_selection_shows(flights: ContainerProxy, text: str, expected: list[Any]) -> None:
    found = run(flights, text)

    assert [tuple(one.values()) if isinstance(one, dict) else one for one in found] == expected


def test_repeats_are_left_out_of_any_kind_of_result(flights: ContainerProxy) -> None:
    places = run(flights, "SELECT DISTINCT c.tail, c['from'] FROM c")
    crews = run(flights, "SELECT DISTINCT VALUE ARRAY_LENGTH(c.crew) FROM c")

    assert sorted((one["tail"], one["from"]) for one in places) == [
        ("N1", "JFK"),
        ("N1", "LGA"),
        ("N2", "EWR"),
        ("N2", "JFK"),
    ]
    assert sorted(crews) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT VALUE c.id FROM c ORDER BY c.delay", ["4", "2", "5", "1", "3"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.cancelled DESC OFFSET 0 LIMIT 2", ["3", "5"]),
        ("SELECT VALUE MIN(c.delay) FROM c", [None]),
        ("SELECT VALUE MAX(c.plan.fl) FROM c", ["high"]),
    ],
)
def test_where_one_physical_partition_answers_values_of_all_types_are_compared(
    account: RunningAccount, text: str, expected: list[Any]
) -> None:
    assert run(account.flights, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT VALUE MAX(c.crew) FROM c", []),
        ("SELECT VALUE SUM(c['from']) FROM c", []),
        ("SELECT VALUE AVG(c.missing) FROM c", []),
        ("SELECT VALUE MIN(c.missing) FROM c", []),
        ("SELECT COUNT(1), MAX(c.id) AS last FROM c", [{"$1": 3, "last": "3"}]),
        ("SELECT VALUE {'mean': SUM(c.id) / 2, 'n': COUNT(1) * 2} FROM c", [{"n": 6}]),
    ],
)
def test_within_one_partition_an_aggregate_of_no_value_is_left_out(
    account: RunningAccount, text: str, expected: list[Any]
) -> None:
    assert list(account.flights.query_items(text, partition_key="N1")) == expected


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


def test_expired_items_do_not_appear() -> None:
    clock = Clock()
    with running_account(clock) as account:
        account.journal.create_item({"id": "short", "session": "s", "ttl": 5})
        account.journal.create_item({"id": "long", "session": "s"})
        clock.seconds += 5

        assert run(account.journal, "SELECT VALUE c.id FROM c") == ["long"]
        assert run(account.journal, "SELECT VALUE COUNT(1) FROM c") == [1]
