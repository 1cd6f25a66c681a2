"""Partial updates of items, as the service documents them, through both clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceNotFoundError,
)

from wire.cosmos_account import Clock, RunningAccount, running_account
from wire.cosmos_clients import done

pytestmark = pytest.mark.wire

ITEM = {
    "id": "000",
    "session": "DL1742",
    "n": 1,
    "owing": True,
    "legs": ["JFK", "LGA"],
    "crew": {"captain": "Ann"},
}


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        running.journal.create_item(dict(ITEM))
        yield running


def stored(account: RunningAccount) -> dict[str, Any]:
    """The item as it is now, without its system properties."""
    read = account.journal.read_item("000", "DL1742")
    return {name: value for name, value in read.items() if not name.startswith("_")}


async def test_changes_are_made_in_order_and_the_new_version_is_answered(
    account: RunningAccount, journal: Any
) -> None:
    before = account.journal.read_item("000", "DL1742")

    patched = await done(
        journal.patch_item(
            "000",
            "DL1742",
            [
                {"op": "remove", "path": "/owing"},
                {"op": "add", "path": "/legs/1", "value": "EWR"},
                {"op": "add", "path": "/legs/-", "value": "BOS"},
                {"op": "set", "path": "/crew/first officer", "value": {"name": "Bo"}},
                {"op": "replace", "path": "/crew/captain", "value": None},
                {"op": "incr", "path": "/n", "value": 1.5},
                {"op": "incr", "path": "/landed", "value": -2},
                {"op": "move", "from": "/legs/0", "path": "/origin"},
            ],
        )
    )

    assert stored(account) == {
        "id": "000",
        "session": "DL1742",
        "n": 2.5,
        "legs": ["EWR", "LGA", "BOS"],
        "crew": {"captain": None, "first officer": {"name": "Bo"}},
        "landed": -2,
        "origin": "JFK",
    }
    assert dict(patched) == dict(account.journal.read_item("000", "DL1742"))
    assert patched["_rid"] == before["_rid"]
    assert patched["_etag"] != before["_etag"]


async def test_a_condition_that_does_not_hold_refuses_the_patch(
    account: RunningAccount, journal: Any
) -> None:
    change = [{"op": "set", "path": "/n", "value": 2}]
    for condition in ("from c where c.n = 1", "FROM x WHERE ARRAY_CONTAINS(x.legs, 'JFK')"):
        await done(journal.patch_item("000", "DL1742", change, filter_predicate=condition))

    for condition in ("from c where c.n = 1", "from c where c.absent = 1"):
        with pytest.raises(CosmosAccessConditionFailedError):
            await done(journal.patch_item("000", "DL1742", change, filter_predicate=condition))

    assert account.counted("patch") == {"200": 2, "412": 2}


async def test_a_patch_under_a_stale_tag_is_refused(account: RunningAccount, journal: Any) -> None:
    first = account.journal.read_item("000", "DL1742")
    condition = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    increment = [{"op": "incr", "path": "/n", "value": 1}]
    await done(journal.patch_item("000", "DL1742", increment, **condition))

    with pytest.raises(CosmosAccessConditionFailedError):
        await done(journal.patch_item("000", "DL1742", increment, **condition))

    assert stored(account)["n"] == 2


async def test_a_patch_of_what_is_absent_is_not_found(journal: Any) -> None:
    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.patch_item("001", "DL1742", [{"op": "remove", "path": "/n"}]))


async def test_a_patch_in_a_batch_is_applied_with_it_or_not_at_all(
    account: RunningAccount, journal: Any
) -> None:
    settle = ("patch", ("000", [{"op": "remove", "path": "/owing"}]))
    follow = ("create", ({"id": "001", "session": "DL1742"},))
    guarded = ("patch", ("000", [{"op": "incr", "path": "/n", "value": 1}]))
    holds = {"filter_predicate": "from c where NOT IS_DEFINED(c.owing)"}

    with pytest.raises(CosmosBatchOperationError) as failure:
        await done(
            journal.execute_item_batch([follow, (*guarded, holds), settle], partition_key="DL1742")
        )
    assert failure.value.error_index == 1
    codes = [one["statusCode"] for one in failure.value.operation_responses]
    assert codes == [424, 412, 424]
    assert stored(account) == ITEM

    tag = {"if_match_etag": account.journal.read_item("000", "DL1742")["_etag"]}
    results = await done(
        journal.execute_item_batch(
            [follow, (*settle, tag), (*guarded, holds)], partition_key="DL1742"
        )
    )
    assert [one["statusCode"] for one in results] == [201, 200, 200]
    expected = {name: value for name, value in ITEM.items() if name != "owing"} | {"n": 2}
    assert stored(account) == expected
    assert results[2]["resourceBody"]["n"] == 2
    assert account.journal.read_item("001", "DL1742")["id"] == "001"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"op": "replace", "path": "/absent", "value": 1}, "nothing at this path"),
        ({"op": "remove", "path": "/absent"}, "nothing at this path"),
        ({"op": "set", "path": "/absent/n", "value": 1}, "leads nowhere at 'absent'"),
        ({"op": "set", "path": "/n/m", "value": 1}, "below a value"),
        ({"op": "add", "path": "/legs/3", "value": 1}, "no place 3"),
        ({"op": "set", "path": "/legs/2", "value": 1}, "no place 2"),
        ({"op": "set", "path": "/legs/-", "value": 1}, "not an index"),
        ({"op": "remove", "path": "/legs/01"}, "not an index"),
        ({"op": "incr", "path": "/owing", "value": 1}, "not a number"),
        ({"op": "incr", "path": "/n", "value": "1"}, "only a number"),
        ({"op": "move", "from": "/crew", "path": "/crew/old"}, "into itself"),
        ({"op": "move", "from": "/absent", "path": "/n"}, "nothing at this path"),
        ({"op": "add", "path": "/n"}, "needs a value"),
        ({"op": "set", "path": "/id", "value": "001"}, "cannot touch /id"),
        ({"op": "set", "path": "/_ts", "value": 1}, "cannot touch /_ts"),
        ({"op": "set", "path": "/session", "value": "UA88"}, "partition key: /session"),
        ({"op": "move", "from": "/session", "path": "/n"}, "partition key: /session"),
        ({"op": "set", "path": "/ttl", "value": 0}, "ttl"),
        ({"op": "set", "path": "n", "value": 1}, "must look like"),
        ({"op": "add", "path": "/m", "value": 1, "if": "x"}, "'if' in a patch operation"),
        ({"op": "test", "path": "/n", "value": 1}, "'test'"),
        ({"op": "copy", "from": "/n", "path": "/m"}, "'copy'"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_with_the_reason(
    account: RunningAccount, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(CosmosHttpResponseError, match=reason) as refusal:
        account.journal.patch_item(
            "000", "DL1742", [{"op": "incr", "path": "/n", "value": 1}, change]
        )

    assert refusal.value.status_code == 400
    assert stored(account) == ITEM


@pytest.mark.parametrize(
    ("condition", "reason"),
    [("c.n = 1", "FROM"), ("from c", "WHERE"), ("from c where c.n = @n", "@n"), ("", "FROM")],
)
def test_a_condition_that_cannot_be_read_is_refused(
    account: RunningAccount, condition: str, reason: str
) -> None:
    body = {"operations": [{"op": "set", "path": "/n", "value": 2}], "condition": condition}
    key = {"x-ms-documentdb-partitionkey": '["DL1742"]'}

    status, answer = account.send("PATCH", "/dbs/lockstep/colls/journal/docs/000", body, key)

    assert status == 400
    assert reason in answer["message"]


def test_ten_changes_are_accepted_and_one_more_or_none_refused(account: RunningAccount) -> None:
    increments = [{"op": "incr", "path": "/n", "value": 1}] * 11

    account.journal.patch_item("000", "DL1742", increments[:10])
    for changes in (increments, []):
        with pytest.raises(CosmosHttpResponseError, match="1 to 10 operations"):
            account.journal.patch_item("000", "DL1742", changes)

    assert stored(account)["n"] == 11


def test_a_patch_costs_as_much_as_a_replace(account: RunningAccount) -> None:
    account.journal.patch_item("000", "DL1742", [{"op": "set", "path": "/n", "value": 2}])
    account.journal.replace_item("000", stored(account))

    rows = account.counters.snapshot()["cosmos.journal"]
    patched, replaced = (rows[name]["200"]["request_units"] for name in ("patch", "replace"))
    assert patched == replaced == 2 * (5.5 + 2 * 0.5)  # two indexed properties


def test_a_patched_time_to_live_counts_from_the_patch(account: RunningAccount) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    clock.seconds += 100
    account.journal.patch_item("000", "DL1742", [{"op": "add", "path": "/ttl", "value": 60}])

    clock.seconds += 59
    assert stored(account)["ttl"] == 60
    clock.seconds += 1

    with pytest.raises(CosmosResourceNotFoundError):
        stored(account)
