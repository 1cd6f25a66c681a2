"""Aggregates over several partition keys: right, or refused, and never silently wrong."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

from wire.cosmos_account import RunningAccount, running_account
from wire.cosmos_flights import run

pytestmark = pytest.mark.wire

OTHER_KEYS = [None, False, True, "abc", "xyz", "oo"]
NUMBERS = range(1, 21)
READINGS = range(1, 11)  # all of one key
ALL = len(OTHER_KEYS) + len(NUMBERS) + len(READINGS)


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        for container in (running.flights, running.divided):
            keys = [*OTHER_KEYS, *NUMBERS]
            items = [{"id": str(n), "tail": key} for n, key in enumerate(keys)]
            items += [{"id": f"r{n}", "tail": "same", "n": n} for n in READINGS]
            for item in items:
                container.create_item(item)
        yield running


@pytest.fixture(params=["one physical partition", "five physical partitions"])
def flights(account: RunningAccount, request: pytest.FixtureRequest) -> ContainerProxy:
    return account.flights if request.param.startswith("one") else account.divided


@pytest.mark.parametrize("order", ["", " ORDER BY c.tail"])
@pytest.mark.parametrize(
    ("aggregate", "condition", "expected"),
    [
        ("AVG", "IS_NUMBER(c.tail)", sum(NUMBERS) / len(NUMBERS)),
        ("SUM", "IS_NUMBER(c.tail)", sum(NUMBERS)),
        ("COUNT", "true", ALL),
        ("MIN", "IS_NUMBER(c.tail)", 1),
        ("MAX", "IS_STRING(c.tail)", "xyz"),
    ],
)
def test_over_all_keys_an_aggregate_is_right_with_an_order_or_without(
    flights: ContainerProxy, aggregate: str, condition: str, expected: Any, order: str
) -> None:
    text = f"SELECT VALUE {aggregate}(c.tail) FROM c WHERE {condition}{order}"

    assert run(flights, text) == [expected]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("AVG", sum(READINGS) / len(READINGS)),
        ("COUNT", len(READINGS)),
        ("MAX", max(READINGS)),
        ("MIN", min(READINGS)),
        ("SUM", sum(READINGS)),
    ],
)
def test_a_condition_that_names_the_key_does_not_bind_an_aggregate_to_its_partition(
    flights: ContainerProxy, aggregate: str, expected: float
) -> None:
    condition = "FROM c WHERE c.tail = 'same'"

    with pytest.raises(CosmosHttpResponseError, match="SELECT VALUE of an aggregate"):
        run(flights, f"SELECT {aggregate}(c.n) {condition}")

    assert run(flights, f"SELECT VALUE {aggregate}(c.n) {condition}") == [expected]
    bound = flights.query_items(f"SELECT {aggregate}(c.n) AS a FROM c", partition_key="same")
    assert list(bound) == [{"a": expected}]
