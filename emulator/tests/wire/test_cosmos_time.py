"""Reads that are late, and a clock that is wrong, as the unchanged client sees them."""

from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from local.faults import Action, Fault
from wire.cosmos_account import THREE_REGIONS, Clock, RunningAccount, running_account

pytestmark = pytest.mark.wire

ENTRY = {"id": "000", "session": "DL1742", "n": 0}
ITEM = "/dbs/lockstep/colls/journal/docs/000"
KEY = {"x-ms-documentdb-partitionkey": '["DL1742"]'}
WEST_FIRST = ["west", "north", "east"]


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account(config=THREE_REGIONS) as running:
        running.journal.create_item(dict(ENTRY))
        yield running


@pytest.fixture
def clock(account: RunningAccount) -> Clock:
    assert isinstance(account.clock, Clock)
    return account.clock


@pytest.fixture
def eventual(account: RunningAccount) -> Iterator[ContainerProxy]:
    """The journal, read in the west at the weakest level."""
    with western(account, "Eventual") as client:
        yield journal_of(client)


def western(account: RunningAccount, level: str | None) -> CosmosClient:
    """A client that reads in the west, at a level of its own or that of the account."""
    cosmos = account.cosmos
    return CosmosClient(
        cosmos.endpoint, cosmos.key, consistency_level=level, preferred_locations=WEST_FIRST
    )


def journal_of(client: CosmosClient) -> ContainerProxy:
    """The journal as one client sees it."""
    return client.get_database_client("lockstep").get_container_client("journal")


def delay_west(account: RunningAccount, seconds: float = 60.0) -> None:
    """Let the west be late."""
    account.faults.arm(Fault("cosmos", Action.STALE_READ, seconds=seconds, region="west"))


def write(account: RunningAccount, number: int) -> None:
    """The next version of the one entry."""
    account.journal.upsert_item({**ENTRY, "n": number})


def seen(journal: ContainerProxy) -> int:
    """The version that a read finds."""
    return int(journal.read_item("000", "DL1742")["n"])


def ids(journal: ContainerProxy) -> list[str]:
    """What a query finds."""
    return [one["id"] for one in journal.query_items("SELECT * FROM c", partition_key="DL1742")]


def test_a_relaxed_read_finds_an_older_version_where_a_strong_one_never_does(
    account: RunningAccount, eventual: ContainerProxy
) -> None:
    delay_west(account)
    write(account, 1)
    write(account, 2)

    with western(account, None) as client:
        assert (seen(eventual), seen(journal_of(client)), seen(account.journal)) == (0, 2, 2)

    account.faults.disarm()
    assert seen(eventual) == 2


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("Eventual", 0),
        ("ConsistentPrefix", 0),
        ("Session", 0),
        ("BoundedStaleness", 1),
        ("Strong", 1),
    ],
)
def test_only_levels_below_bounded_staleness_can_be_late(
    account: RunningAccount, level: str, expected: int
) -> None:
    delay_west(account)
    write(account, 1)

    west = int(account.cosmos.region_endpoints["west"].rstrip("/").rpartition(":")[2])
    _, told, item = account.ask(west, "GET", ITEM, None, {**KEY, "x-ms-consistency-level": level})

    assert item["n"] == expected
    assert told["x-ms-request-charge"] == ("2.0" if expected else "1.0")


def test_other_regions_are_not_late(account: RunningAccount) -> None:
    delay_west(account)
    write(account, 1)

    with CosmosClient(
        account.cosmos.endpoint,
        account.cosmos.key,
        consistency_level="Eventual",
        preferred_locations=["north"],
    ) as client:
        assert seen(journal_of(client)) == 1


def test_a_late_read_catches_up_as_time_goes_by(
    account: RunningAccount, eventual: ContainerProxy, clock: Clock
) -> None:
    delay_west(account, seconds=10)
    found = []
    for number in (1, 2, 3):
        clock.seconds += 6
        write(account, number)
        found.append(seen(eventual))
    clock.seconds += 100

    assert [*found, seen(eventual)] == [0, 0, 1, 3]


def test_what_was_deleted_is_still_there_and_what_is_new_is_not_there_yet(
    account: RunningAccount, eventual: ContainerProxy
) -> None:
    delay_west(account)
    account.journal.delete_item("000", "DL1742")
    account.journal.execute_item_batch(
        [("create", ({"id": "001", "session": "DL1742"},))], partition_key="DL1742"
    )

    assert ids(eventual) == ["000"]
    assert seen(eventual) == 0
    with pytest.raises(CosmosResourceNotFoundError):
        eventual.read_item("001", "DL1742")
    assert ids(account.journal) == ["001"]


def test_what_is_late_comes_in_pages_too(account: RunningAccount, eventual: ContainerProxy) -> None:
    for number in range(1, 4):
        account.journal.create_item({**ENTRY, "id": f"{number:03}"})
    delay_west(account)
    account.journal.delete_item("001", "DL1742")
    account.journal.create_item({**ENTRY, "id": "004"})

    feed = eventual.query_items_change_feed(start_time="Beginning", max_item_count=1)
    query = eventual.query_items(
        "SELECT * FROM c ORDER BY c.id DESC", partition_key="DL1742", max_item_count=1
    )

    assert [one["id"] for one in feed] == ["000", "001", "002", "003"]
    assert [one["id"] for one in query] == ["003", "002", "001", "000"]


def test_a_late_feed_skips_nothing(account: RunningAccount, eventual: ContainerProxy) -> None:
    def feed(**where: Any) -> tuple[list[tuple[str, int]], str]:
        found = [(one["id"], one["n"]) for one in eventual.query_items_change_feed(**where)]
        return found, eventual.client_connection.last_response_headers["etag"]

    delay_west(account)
    account.journal.create_item({**ENTRY, "id": "001"})
    write(account, 1)
    early, position = feed(start_time="Beginning")
    nothing, position = feed(continuation=position)
    account.faults.disarm()

    assert (early, nothing) == ([("000", 0)], [])
    assert feed(continuation=position)[0] == [("001", 0), ("000", 1)]


def test_a_session_never_reads_what_is_older_than_its_own_write(account: RunningAccount) -> None:
    with western(account, "Session") as client:
        journal = journal_of(client)
        delay_west(account)
        journal.upsert_item({**ENTRY, "n": 1})

        assert seen(journal) == 1

    assert account.counted("read") == {"404": 1, "200": 1}


def test_a_client_reads_its_session_elsewhere_after_a_404_with_1002(
    account: RunningAccount,
) -> None:
    account.arm(Action.STATUS, "read", status=404, substatus=1002, region="west")

    with western(account, "Session") as client:
        assert seen(journal_of(client)) == 0

    assert account.counted("read") == {"404": 1, "200": 1}


def test_hits_are_counted_and_spent_by_late_reads_only(
    account: RunningAccount, eventual: ContainerProxy
) -> None:
    account.faults.arm(Fault("cosmos", Action.STALE_READ, "read", seconds=60, times=1))
    write(account, 1)

    assert (seen(account.journal), seen(eventual), seen(eventual)) == (1, 0, 1)


@pytest.mark.parametrize("offset", [-7200.0, 7200.0])
def test_the_stores_clock_can_be_wrong(
    account: RunningAccount, clock: Clock, offset: float
) -> None:
    account.faults.arm(Fault("cosmos", Action.CLOCK_OFFSET, seconds=offset))

    written = account.journal.upsert_item(dict(ENTRY))

    assert written["_ts"] == clock.seconds + offset
    date = parsedate_to_datetime(account.journal.client_connection.last_response_headers["Date"])
    assert date.timestamp() == clock.seconds + offset
    account.faults.disarm()
    assert account.journal.upsert_item(dict(ENTRY))["_ts"] == clock.seconds


def test_times_to_live_go_by_the_stores_clock(account: RunningAccount) -> None:
    account.journal.upsert_item({**ENTRY, "ttl": 60})
    assert seen(account.journal) == 0

    account.faults.arm(Fault("cosmos", Action.CLOCK_OFFSET, seconds=120, region="east"))

    with pytest.raises(CosmosResourceNotFoundError):
        seen(account.journal)
