"""The change feed in latest-version mode through the unchanged azure-cosmos client."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.cosmos import ContainerProxy
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from wire.cosmos_account import Clock, RunningAccount, running_account

pytestmark = pytest.mark.wire


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


def read(container: ContainerProxy, **rest: Any) -> tuple[list[str], str]:
    """Ids of all changes from a point, and the continuation to go on from."""
    found = [one["id"] for one in container.query_items_change_feed(**rest)]
    return found, container.client_connection.last_response_headers["etag"]


def test_each_item_appears_once_at_its_newest_version_in_the_order_of_change(
    account: RunningAccount,
) -> None:
    for number in ("1", "2", "3"):
        account.flights.create_item({"id": number, "tail": f"N{number}", "n": 0})
    account.flights.upsert_item({"id": "1", "tail": "N1", "n": 1})
    account.flights.delete_item("2", "N2")

    changes = list(account.flights.query_items_change_feed(start_time="Beginning"))

    assert [(one["id"], one["n"]) for one in changes] == [("3", 0), ("1", 1)]
    assert changes[0]["_lsn"] < changes[1]["_lsn"]
    assert changes[1]["_etag"] == account.flights.read_item("1", "N1")["_etag"]


def test_a_continuation_yields_what_came_after_and_nothing_twice(account: RunningAccount) -> None:
    account.flights.create_item({"id": "1", "tail": "N1"})
    first, position = read(account.flights, start_time="Beginning")

    nothing, position = read(account.flights, continuation=position)
    account.flights.create_item({"id": "2", "tail": "N2"})
    second, position = read(account.flights, continuation=position)
    last, _ = read(account.flights, continuation=position)

    assert (first, nothing, second, last) == (["1"], [], ["2"], [])


def test_from_now_yields_only_what_comes_later(account: RunningAccount) -> None:
    account.flights.create_item({"id": "old", "tail": "N1"})
    before, position = read(account.flights, start_time="Now")

    account.flights.create_item({"id": "new", "tail": "N1"})

    assert before == []
    assert read(account.flights, continuation=position)[0] == ["new"]


def test_from_a_point_in_time_skips_what_is_older(account: RunningAccount) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    account.flights.create_item({"id": "old", "tail": "N1"})
    clock.seconds += 100
    account.flights.create_item({"id": "new", "tail": "N1"})

    start = datetime.fromtimestamp(clock.seconds - 50, UTC)

    assert read(account.flights, start_time=start)[0] == ["new"]


def test_pages_hold_at_most_the_items_asked_for(account: RunningAccount) -> None:
    for number in range(7):
        account.flights.create_item({"id": str(number), "tail": "N1"})

    feed = account.flights.query_items_change_feed(start_time="Beginning", max_item_count=3)
    pages = [[one["id"] for one in page] for page in feed.by_page()]

    assert pages == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_the_feed_of_one_partition_key_holds_nothing_else(account: RunningAccount) -> None:
    for number in range(20):
        account.flights.create_item({"id": str(number), "tail": f"N{number % 4}"})

    feed = account.flights.query_items_change_feed(start_time="Beginning", partition_key="N3")

    assert [one["id"] for one in feed] == ["3", "7", "11", "15", "19"]


def test_feed_ranges_cover_everything(account: RunningAccount) -> None:
    account.flights.create_item({"id": "1", "tail": "N1"})

    ranges = list(account.flights.read_feed_ranges())
    feeds = [
        account.flights.query_items_change_feed(start_time="Beginning", feed_range=one)
        for one in ranges
    ]

    assert [one["id"] for feed in feeds for one in feed] == ["1"]


def test_other_containers_do_not_leak_into_the_feed(account: RunningAccount) -> None:
    account.journal.create_item({"id": "journal", "session": "s"})
    account.flights.create_item({"id": "flight", "tail": "N1"})

    assert read(account.flights, start_time="Beginning")[0] == ["flight"]


def test_all_versions_and_deletes_mode_is_refused_by_name(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="Full-Fidelity"):
        list(account.flights.query_items_change_feed(mode="AllVersionsAndDeletes"))


def test_a_drained_feed_answers_not_modified_with_a_position(account: RunningAccount) -> None:
    account.flights.create_item({"id": "1", "tail": "N1"})

    path = "/dbs/lockstep/colls/flights/docs"
    incremental = {"A-IM": "Incremental Feed"}
    status, answer = account.send("GET", path, headers=incremental)
    drained, _ = account.send("GET", path, headers=incremental | {"If-None-Match": '"1"'})

    assert (status, [one["id"] for one in answer["Documents"]]) == (200, ["1"])
    assert drained == 304
    assert account.counted("feed") == {"200": 1, "304": 1}


@pytest.mark.parametrize("position", ["here", '"-1"', f'"{10**30}"', "9" * 5000])
def test_what_is_no_position_in_the_feed_is_refused(account: RunningAccount, position: str) -> None:
    headers = {"A-IM": "Incremental Feed", "If-None-Match": position}

    status, answer = account.send("GET", "/dbs/lockstep/colls/flights/docs", headers=headers)

    assert (status, answer["code"]) == (400, "BadRequest")
    assert "is not a position in the change feed" in answer["message"]


async def test_the_asynchronous_client_reads_the_same_feed(account: RunningAccount) -> None:
    account.flights.create_item({"id": "1", "tail": "N1"})

    async with AsyncCosmosClient(account.cosmos.endpoint, account.cosmos.key) as client:
        flights = client.get_database_client("lockstep").get_container_client("flights")
        feed = flights.query_items_change_feed(start_time="Beginning")
        found = [one["id"] async for one in feed]

    assert found == ["1"]
