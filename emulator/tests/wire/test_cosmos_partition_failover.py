"""Single partitions whose writes move to another region, through unchanged azure-cosmos clients.

The account has three regions and says that its partitions fail over by themselves; faults move the
writes, as Azure would, and faults of one partition are what it would move them for.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from local.cosmos.items.partitions import cut_ring
from local.faults import Fault, InvalidFault, check_aim
from wire.cosmos_account import THREE_REGIONS, RunningAccount, running_account
from wire.cosmos_clients import CLIENTS, container_of, done

pytestmark = pytest.mark.wire

ITEMS = "/dbs/lockstep/colls/divided/docs"
BATCH = {"x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "true"}
RING = cut_ring(5)
MOVED = 2
# A key in each physical partition.
TAILS = {RING.find_partition(json.dumps(f"N{number}")): f"N{number}" for number in range(50)}
MOVE = {
    "component": "cosmos.divided",
    "action": "move-writes",
    "entity": str(MOVED),
    "region": "west",
}


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account(config=replace(THREE_REGIONS, partitions_fail_over=True)) as running:
        yield running


@pytest.fixture(params=CLIENTS)
async def divided(account: RunningAccount, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with container_of(request.param, account, "divided") as container:
        yield container


def arm(account: RunningAccount, document: Mapping[str, Any]) -> int:
    """Put a fault in force as the control endpoint does."""
    fault = Fault.parse(dict(document))
    check_aim(fault, account.cosmos.targets())
    return account.faults.arm(fault)


def regions_that_take(account: RunningAccount, partition: int, name: str) -> list[str]:
    """Write an item and a batch in each region; return those that took both.

    The others refuse them with 403/3, and name the region that takes them.
    """
    taken, named = [], set[str]()
    key = {"x-ms-documentdb-partitionkey": json.dumps([TAILS[partition]])}
    for region, endpoint in account.cosmos.region_endpoints.items():
        port = int(endpoint.rstrip("/").rpartition(":")[2])
        item = {"id": f"{name}-{region}", "tail": TAILS[partition]}
        batch = [{"operationType": "Upsert", "resourceBody": {**item, "id": f"{item['id']}-b"}}]
        answers = [
            account.ask(port, "POST", ITEMS, item, key),
            account.ask(port, "POST", ITEMS, batch, {**key, **BATCH}),
        ]
        if [status for status, *_ in answers] == [201, 200]:
            taken.append(region)
            continue
        for status, headers, document in answers:
            assert (status, headers["x-ms-substatus"], document["code"]) == (403, "3", "Forbidden")
            named.add(document["message"].partition("region ")[2].partition(",")[0])
    assert named == set(taken)
    return taken


def stored(account: RunningAccount) -> list[tuple[str, str]]:
    """Key and id of every item, sorted."""
    return sorted((one["tail"], one["id"]) for one in account.divided.read_all_items())


def test_the_account_says_that_its_partitions_fail_over_by_themselves() -> None:
    for is_on in (True, False):
        with running_account(config=replace(THREE_REGIONS, partitions_fail_over=is_on)) as account:
            described = account.send("GET", "/")[1]
            assert described["enablePerPartitionFailoverBehavior"] is is_on
            assert [one["name"] for one in described["writableLocations"]] == ["east"]


def test_when_the_writes_of_a_partition_have_moved_its_new_region_alone_takes_them(
    account: RunningAccount,
) -> None:
    fault = arm(account, MOVE)

    assert {n: regions_that_take(account, n, "moved") for n in range(5)} == {
        n: ["west" if n == MOVED else "east"] for n in range(5)
    }
    assert stored(account) == sorted(
        (TAILS[n], f"moved-{'west' if n == MOVED else 'east'}{rest}")
        for n in range(5)
        for rest in ("", "-b")
    )
    described = account.send("GET", "/")[1]
    assert [one["name"] for one in described["writableLocations"]] == ["east"]

    account.faults.disarm(fault)
    assert regions_that_take(account, MOVED, "back") == ["east"]


def test_when_the_writes_of_all_partitions_have_moved_databases_are_still_written_at_home(
    account: RunningAccount,
) -> None:
    arm(account, {"component": "cosmos", "action": "move-writes", "region": "north"})

    assert [regions_that_take(account, n, "all") for n in range(5)] == [["north"]] * 5
    account.client.create_database("other")
    assert account.counters.snapshot()["cosmos"]["account"].keys() >= {"201"}
    assert "403" not in account.counters.snapshot()["cosmos"]["account"]


def test_when_the_account_fails_over_too_a_moved_partition_stays_where_it_is(
    account: RunningAccount,
) -> None:
    arm(account, MOVE)

    account.cosmos.move_write_region("north")

    assert regions_that_take(account, MOVED, "own") == ["west"]
    assert regions_that_take(account, 0, "account") == ["north"]


def test_without_failover_by_partitions_no_partition_moves_and_all_go_by_the_account() -> None:
    with running_account(config=THREE_REGIONS) as account:
        with pytest.raises(InvalidFault, match="PerPartitionAutomaticFailover: true"):
            arm(account, MOVE)

        account.cosmos.move_write_region("west")

        assert [regions_that_take(account, n, "all") for n in range(5)] == [["west"]] * 5


async def test_a_client_writes_a_moved_partition_in_its_new_region_and_the_others_in_theirs(
    account: RunningAccount, divided: Any
) -> None:
    arm(account, {**MOVE, "region": "north"})
    others = [tail for number, tail in TAILS.items() if number != MOVED]

    for number in range(2):
        for tail in others:
            await done(divided.create_item({"id": str(number), "tail": tail}))
    assert account.counted("create") == {"201": 8}  # at once: nobody else is disturbed
    for number in range(2):
        await done(divided.create_item({"id": str(number), "tail": TAILS[MOVED]}))

    assert stored(account) == sorted((tail, str(n)) for tail in TAILS.values() for n in range(2))
    # The first asked the other regions, and the second asked where the first had been taken.
    assert account.counted("create") == {"403": 2, "201": 10}


async def test_when_the_writes_move_back_in_the_middle_of_a_commit_it_is_applied_once(
    account: RunningAccount, divided: Any
) -> None:
    arm(account, {**MOVE, "times": 1})  # they are back once the first try was refused
    entry = {"id": "0", "tail": TAILS[MOVED], "n": 0}
    head = {"id": "head", "tail": TAILS[MOVED], "n": 0}

    await done(
        divided.execute_item_batch(
            [("create", (entry,)), ("create", (head,))], partition_key=TAILS[MOVED]
        )
    )

    assert account.counted("batch") == {"403": 3, "200": 1}  # refused once in each region
    assert [
        {key: one[key] for key in entry}
        for one in sorted(account.divided.read_all_items(), key=lambda one: one["id"])
    ] == [entry, head]


async def test_when_one_partition_fails_in_its_region_it_is_written_where_its_writes_went(
    account: RunningAccount, divided: Any
) -> None:
    arm(account, {**MOVE, "action": "status", "status": 503, "region": "east"})
    arm(account, MOVE)

    for tail in TAILS.values():
        await done(divided.create_item({"id": "0", "tail": tail}))

    assert stored(account) == sorted((tail, "0") for tail in TAILS.values())
    assert account.counted("create") == {"503": 1, "201": 5}


def test_when_one_partition_is_down_what_is_asked_of_the_others_is_answered(
    account: RunningAccount,
) -> None:
    account.divided.create_item({"id": "0", "tail": TAILS[MOVED]})
    arm(account, {"component": "cosmos.divided", "action": "down", "entity": str(MOVED)})

    for number, tail in TAILS.items():
        key = {"x-ms-documentdb-partitionkey": json.dumps([tail])}
        if number == MOVED:
            with pytest.raises(ConnectionError):
                account.send("GET", f"{ITEMS}/0", headers=key)
        else:
            assert account.send("POST", ITEMS, {"id": "0", "tail": tail}, key)[0] == 201
    assert account.counted("read") == {"down": 1}
