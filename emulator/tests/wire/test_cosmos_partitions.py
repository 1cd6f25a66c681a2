"""Containers of several physical partitions through the unchanged azure-cosmos client."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey, ThroughputProperties
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient

from local.faults import Action
from wire.cosmos_account import Clock, RunningAccount, running_account

pytestmark = pytest.mark.wire

TAILS = [f"N{number}" for number in range(24)]
FEED = {"A-IM": "Incremental Feed"}
ITEMS = "/dbs/lockstep/colls/divided/docs"


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


def fill(flights: ContainerProxy, items_each: int = 2) -> None:
    """A few items for every tail, tail by tail."""
    for tail in TAILS:
        for number in range(items_each):
            flights.create_item({"id": f"{number:03}", "tail": tail})


def names(items: Any) -> list[tuple[str, str]]:
    """What tells items apart, in the order in which they came."""
    return [(one["tail"], one["id"]) for one in items]


def feed_of(flights: ContainerProxy, **where: Any) -> tuple[list[tuple[str, str]], str]:
    """All that is new from a point, and where to go on."""
    found = names(flights.query_items_change_feed(**where))
    return found, flights.client_connection.last_response_headers["etag"]


ALL = [(tail, f"{number:03}") for tail in TAILS for number in range(2)]


def test_ranges_follow_each_other_around_the_whole_ring(account: RunningAccount) -> None:
    _, document = account.send("GET", "/dbs/lockstep/colls/divided/pkranges")
    ranges = document["PartitionKeyRanges"]

    assert [one["id"] for one in ranges] == ["0", "1", "2", "3", "4"]
    starts = [one["minInclusive"] for one in ranges]
    ends = [one["maxExclusive"] for one in ranges]
    assert (starts[0], ends[-1], starts[1:]) == ("", "FF", ends[:-1])


def test_every_tail_is_in_the_range_where_the_clients_own_hash_puts_it(
    account: RunningAccount,
) -> None:
    fill(account.divided)

    owners: dict[str, list[int]] = defaultdict(list)
    for number, feed_range in enumerate(account.divided.read_feed_ranges()):
        for tail, _ in names(account.divided.query_items("SELECT * FROM c", feed_range=feed_range)):
            own = account.divided.feed_range_from_partition_key(tail)
            assert account.divided.is_feed_range_subset(feed_range, own)
            owners[tail].append(number)

    assert {tail: len(numbers) for tail, numbers in owners.items()} == dict.fromkeys(TAILS, 2)
    assert {number for numbers in owners.values() for number in numbers} == {0, 1, 2, 3, 4}


def test_a_query_across_ranges_finds_everything_page_by_page(account: RunningAccount) -> None:
    fill(account.divided)

    query = account.divided.query_items(
        "SELECT * FROM c", enable_cross_partition_query=True, max_item_count=5
    )
    pages = [names(page) for page in query.by_page()]

    assert sorted(name for page in pages for name in page) == sorted(ALL)
    assert max(map(len, pages)) == 5
    assert sorted(names(account.divided.read_all_items())) == sorted(ALL)


def test_the_feed_of_all_ranges_brings_each_change_once_and_then_what_is_new(
    account: RunningAccount,
) -> None:
    fill(account.divided)
    first, position = feed_of(account.divided, start_time="Beginning", max_item_count=4)

    nothing, position = feed_of(account.divided, continuation=position)
    for tail in TAILS:
        account.divided.create_item({"id": "002", "tail": tail})
    second, position = feed_of(account.divided, continuation=position)
    last, _ = feed_of(account.divided, continuation=position)

    assert sorted(first) == sorted(ALL)
    assert (nothing, last) == ([], [])
    assert sorted(second) == sorted((tail, "002") for tail in TAILS)


def test_each_range_has_a_feed_and_positions_of_its_own(account: RunningAccount) -> None:
    fill(account.divided)
    ranges = list(account.divided.read_feed_ranges())
    read = [feed_of(account.divided, feed_range=one, start_time="Beginning") for one in ranges]

    account.divided.create_item({"id": "002", "tail": "N0"})
    later = [feed_of(account.divided, continuation=position)[0] for _, position in read]

    assert sorted(name for found, _ in read for name in found) == sorted(ALL)
    assert sorted(later) == [[], [], [], [], [("N0", "002")]]


def test_a_feed_from_now_on_starts_at_the_newest_change_of_each_range(
    account: RunningAccount,
) -> None:
    fill(account.divided)
    ranges = list(account.divided.read_feed_ranges())
    read = [feed_of(account.divided, feed_range=one, start_time="Now") for one in ranges]

    for tail in TAILS:
        account.divided.create_item({"id": "002", "tail": tail})
    later = [feed_of(account.divided, continuation=position)[0] for _, position in read]

    assert [found for found, _ in read] == [[]] * 5
    assert sorted(name for found in later for name in found) == sorted(
        (tail, "002") for tail in TAILS
    )


def test_a_feed_from_a_moment_skips_what_is_older_in_every_range(account: RunningAccount) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    fill(account.divided, 1)
    clock.seconds += 100
    for tail in TAILS[:5]:
        account.divided.create_item({"id": "001", "tail": tail})

    start = datetime.fromtimestamp(clock.seconds - 50, UTC)

    assert sorted(feed_of(account.divided, start_time=start)[0]) == [
        (tail, "001") for tail in sorted(TAILS[:5])
    ]


def test_the_feed_of_one_tail_holds_nothing_else(account: RunningAccount) -> None:
    fill(account.divided)

    for tail in TAILS:
        found, position = feed_of(account.divided, start_time="Beginning", partition_key=tail)
        assert found == [(tail, "000"), (tail, "001")]
        assert feed_of(account.divided, continuation=position)[0] == []


def test_every_physical_partition_counts_its_own_transactions(account: RunningAccount) -> None:
    fill(account.divided)

    for number in range(5):
        at = {**FEED, "x-ms-documentdb-partitionkeyrangeid": str(number)}
        _, told, page = account.ask(account.cosmos.port, "GET", ITEMS, headers=at)
        lsns = [one["_lsn"] for one in page["Documents"]]
        assert lsns == list(range(1, len(lsns) + 1))
        assert (told["etag"], told["lsn"]) == (f'"{len(lsns)}"', str(len(lsns)))
        assert told["x-ms-session-token"] == f"{number}:-1#{len(lsns)}"


def test_what_one_batch_wrote_has_one_number_and_stays_on_one_page(
    account: RunningAccount,
) -> None:
    account.divided.create_item({"id": "before", "tail": "s"})
    batch = [("create", ({"id": f"{number}", "tail": "s"},)) for number in range(5)]
    account.divided.execute_item_batch(batch, partition_key="s")
    account.divided.create_item({"id": "after", "tail": "s"})

    feed = account.divided.query_items_change_feed(
        start_time="Beginning", partition_key="s", max_item_count=2
    )
    pages = [[(one["id"], one["_lsn"]) for one in page] for page in feed.by_page()]

    batched = [(f"{number}", 2) for number in range(5)]
    assert pages == [[("before", 1), *batched], [("after", 3)]]


def test_answers_about_databases_count_the_writes_of_the_whole_account(
    account: RunningAccount,
) -> None:
    def writes() -> int:
        return int(account.ask(account.cosmos.port, "GET", "/dbs/lockstep")[1]["lsn"])

    before = writes()
    fill(account.divided)
    account.divided.delete_item("000", "N0")

    assert writes() - before == len(ALL) + 1


def test_a_range_that_does_not_exist_is_gone(account: RunningAccount) -> None:
    for number in ("5", "-1", "x", "²"):
        headers = {"x-ms-documentdb-partitionkeyrangeid": number.encode().decode("latin-1")}
        status, told, _ = account.ask(account.cosmos.port, "GET", ITEMS, headers=headers)
        assert (status, told["x-ms-substatus"]) == (410, "1002")


def test_a_feed_that_names_neither_a_range_nor_a_key_is_refused(account: RunningAccount) -> None:
    status, document = account.send("GET", ITEMS, headers=FEED)

    assert status == 400
    assert "partition key range" in document["message"]


def test_a_client_asks_anew_for_the_ranges_when_it_is_told_that_one_is_gone(
    account: RunningAccount,
) -> None:
    fill(account.divided)
    ranges = list(account.divided.read_feed_ranges())
    account.arm(Action.STATUS, "feed", status=410, substatus=1002)

    found = [feed_of(account.divided, feed_range=one, start_time="Beginning")[0] for one in ranges]

    assert sorted(name for names in found for name in names) == sorted(ALL)
    assert account.counted("feed")["410"] == 1


def test_throughput_decides_how_many_partitions_a_new_container_gets(
    account: RunningAccount,
) -> None:
    key = PartitionKey("/k")
    scaled = ThroughputProperties(auto_scale_max_throughput=40_000)
    throughputs = (("a", None, 1), ("b", 10_000, 1), ("c", 25_000, 5), ("d", scaled, 7))
    for name, throughput, expected in throughputs:
        made = account.database.create_container(name, key, offer_throughput=throughput)
        assert len(list(made.read_feed_ranges())) == expected


def test_a_client_follows_a_container_that_was_made_anew_with_more_partitions(
    account: RunningAccount,
) -> None:
    key = PartitionKey("/tail")
    old = account.database.create_container("extra", key)
    fill(old)
    assert len(list(old.read_feed_ranges())) == 1

    with CosmosClient(account.cosmos.endpoint, account.cosmos.key) as other:
        database = other.get_database_client("lockstep")
        database.delete_container("extra")
        fill(database.create_container("extra", key, offer_throughput=30_000))

    assert names([old.read_item("000", "N0")]) == [("N0", "000")]
    assert len(list(old.read_feed_ranges(force_refresh=True))) == 5
    assert sorted(feed_of(old, start_time="Beginning")[0]) == sorted(ALL)


async def test_the_asynchronous_client_reads_ranges_feeds_and_queries(
    account: RunningAccount,
) -> None:
    fill(account.divided)

    async with AsyncCosmosClient(account.cosmos.endpoint, account.cosmos.key) as client:
        flights = client.get_database_client("lockstep").get_container_client("divided")
        ranges = [one async for one in flights.read_feed_ranges()]
        parts = [
            names(
                [
                    change
                    async for change in flights.query_items_change_feed(
                        feed_range=one, start_time="Beginning"
                    )
                ]
            )
            for one in ranges
        ]
        queried = names([one async for one in flights.query_items("SELECT * FROM c")])

    assert [len(part) > 0 for part in parts] == [True] * 5
    assert sorted(name for part in parts for name in part) == sorted(ALL) == sorted(queried)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ms-offer-throughput": "many"},
        {"x-ms-cosmos-offer-autopilot-settings": '{"maxThroughput": "many"}'},
        {"x-ms-cosmos-offer-autopilot-settings": "[]"},
    ],
)
def test_throughput_that_is_not_a_number_is_refused(
    account: RunningAccount, headers: dict[str, str]
) -> None:
    body = {"id": "x", "partitionKey": {"paths": ["/k"]}}
    status, document = account.send("POST", "/dbs/lockstep/colls", body, headers)

    assert (status, document["message"]) == (400, "throughput must be a whole number")
