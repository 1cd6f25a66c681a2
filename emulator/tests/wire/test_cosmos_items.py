"""Operations on single items, as the service documents them, through both clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from wire.cosmos_account import Clock, RunningAccount, running_account
from wire.cosmos_clients import done, every

pytestmark = pytest.mark.wire


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


def entry(item_id: str = "000", session: str = "DL1742", **rest: Any) -> dict[str, Any]:
    """An item of the journal."""
    return {"id": item_id, "session": session, **rest}


def own(document: dict[str, Any]) -> dict[str, Any]:
    """A document without its system properties."""
    return {name: value for name, value in document.items() if not name.startswith("_")}


def under(version: dict[str, Any]) -> dict[str, Any]:
    """The condition that an item still has this version."""
    return {"etag": version["_etag"], "match_condition": MatchConditions.IfNotModified}


async def test_a_created_item_reads_back_with_its_system_properties(
    account: RunningAccount, journal: Any
) -> None:
    item = entry(state={"at": "Zürich", "legs": [1, 2.5, None]})

    created = await done(journal.create_item(dict(item)))
    read = await done(journal.read_item("000", "DL1742"))

    assert own(read) == item
    assert dict(read) == dict(created)
    assert {"_rid", "_self", "_etag", "_ts"} <= set(read)
    assert read["_ts"] == int(account.clock())
    assert read.get_response_headers()["etag"] == read["_etag"]


async def test_creating_an_id_twice_in_a_partition_is_a_conflict(journal: Any) -> None:
    await done(journal.create_item(entry(by="east")))

    with pytest.raises(CosmosResourceExistsError):
        await done(journal.create_item(entry(by="west")))

    assert (await done(journal.read_item("000", "DL1742")))["by"] == "east"


async def test_the_same_id_may_stand_in_two_partitions(journal: Any) -> None:
    await done(journal.create_item(entry(session="DL1742")))
    await done(journal.create_item(entry(session="UA88")))

    assert (await done(journal.read_item("000", "UA88")))["session"] == "UA88"


async def test_an_id_may_be_made_up_by_the_client(journal: Any) -> None:
    made = await done(
        journal.create_item({"session": "DL1742"}, enable_automatic_id_generation=True)
    )

    assert own(await done(journal.read_item(made["id"], "DL1742"))) == own(made)


async def test_a_replace_under_a_stale_tag_is_refused_and_changes_nothing(journal: Any) -> None:
    first = await done(journal.create_item(entry(n=1)))
    await done(journal.replace_item("000", entry(n=2), **under(first)))

    with pytest.raises(CosmosAccessConditionFailedError):
        await done(journal.replace_item("000", entry(n=3), **under(first)))

    assert (await done(journal.read_item("000", "DL1742")))["n"] == 2


async def test_a_replace_keeps_the_resource_id_and_changes_the_tag(journal: Any) -> None:
    first = await done(journal.create_item(entry(n=1)))

    second = await done(journal.replace_item(first, {**first, "n": 2}))

    assert own(second) == entry(n=2)
    assert second["_rid"] == first["_rid"]
    assert second["_etag"] != first["_etag"]


async def test_an_upsert_creates_and_then_replaces(account: RunningAccount, journal: Any) -> None:
    await done(journal.upsert_item(entry(n=1)))
    await done(journal.upsert_item(entry(n=2)))

    assert own(await done(journal.read_item("000", "DL1742"))) == entry(n=2)
    assert account.counted("upsert") == {"201": 1, "200": 1}


async def test_an_upsert_under_a_stale_tag_is_refused(journal: Any) -> None:
    first = await done(journal.create_item(entry(n=1)))
    await done(journal.upsert_item(entry(n=2)))

    with pytest.raises(CosmosAccessConditionFailedError):
        await done(journal.upsert_item(entry(n=3), **under(first)))

    assert (await done(journal.read_item("000", "DL1742")))["n"] == 2


async def test_a_deleted_item_is_gone_and_its_id_is_free_again(journal: Any) -> None:
    first = await done(journal.create_item(entry()))

    await done(journal.delete_item("000", "DL1742"))

    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.read_item("000", "DL1742"))
    again = await done(journal.create_item(entry()))
    assert again["_etag"] != first["_etag"]
    assert again["_rid"] != first["_rid"]


async def test_a_delete_under_a_stale_tag_is_refused(journal: Any) -> None:
    first = await done(journal.create_item(entry()))
    await done(journal.replace_item("000", entry(n=2)))

    with pytest.raises(CosmosAccessConditionFailedError):
        await done(journal.delete_item("000", "DL1742", **under(first)))

    assert (await done(journal.read_item("000", "DL1742")))["n"] == 2


async def test_reading_replacing_or_deleting_what_is_absent_is_not_found(journal: Any) -> None:
    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.read_item("000", "DL1742"))
    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.replace_item("000", entry()))
    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.delete_item("000", "DL1742"))


async def test_an_item_may_be_named_by_itself(account: RunningAccount, journal: Any) -> None:
    first = await done(journal.create_item(entry(n=1)))
    await done(journal.create_item(entry("001")))

    assert dict(await done(journal.read_item(first, "DL1742"))) == dict(first)
    await done(journal.replace_item(first, entry(n=2)))
    increment = {"op": "incr", "path": "/n", "value": 1}
    patched = await done(journal.patch_item(first, "DL1742", [increment]))
    assert own(patched) == entry(n=3)
    await done(journal.delete_item(first, "DL1742"))

    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.read_item(first, "DL1742"))
    assert account.counters.snapshot()["cosmos.journal"]["delete"]["204"]["count"] == 1
    assert [one["id"] for one in await every(journal.read_all_items())] == ["001"]


async def test_a_write_may_be_answered_without_the_item(journal: Any) -> None:
    created = await done(journal.create_item(entry(n=1), no_response=True))
    replaced = await done(journal.replace_item("000", entry(n=2), no_response=True))

    assert (dict(created), dict(replaced)) == ({}, {})
    read = await done(journal.read_item("000", "DL1742"))
    assert read["n"] == 2
    assert replaced.get_response_headers()["etag"] == read["_etag"]


async def test_all_items_or_some_are_read_at_once(journal: Any) -> None:
    for session in ("DL1742", "UA88", "LX14"):
        for item_id in ("000", "001"):
            await done(journal.create_item(entry(item_id, session)))

    wanted = [("001", "DL1742"), ("000", "LX14"), ("002", "UA88")]
    some = await done(journal.read_items(wanted))
    everything = await every(journal.read_all_items())

    assert sorted((one["session"], one["id"]) for one in some) == [
        ("DL1742", "001"),
        ("LX14", "000"),
    ]
    assert len({(one["session"], one["id"]) for one in everything}) == len(everything) == 6


async def test_an_item_is_gone_when_its_time_to_live_is_over(
    account: RunningAccount, journal: Any
) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    await done(journal.create_item(entry("short", ttl=60)))
    await done(journal.create_item(entry("long")))

    clock.seconds += 59
    assert (await done(journal.read_item("short", "DL1742")))["ttl"] == 60
    clock.seconds += 1

    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.read_item("short", "DL1742"))
    with pytest.raises(CosmosResourceNotFoundError):
        await done(journal.replace_item("short", entry("short")))
    assert own(await done(journal.create_item(entry("short", n=2)))) == entry("short", n=2)
    assert (await done(journal.read_item("long", "DL1742")))["id"] == "long"


async def test_every_write_begins_the_time_to_live_anew(
    account: RunningAccount, journal: Any
) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    await done(journal.create_item(entry(ttl=60)))
    clock.seconds += 59
    await done(journal.replace_item("000", entry(ttl=60)))
    clock.seconds += 59

    assert (await done(journal.read_item("000", "DL1742")))["ttl"] == 60


def test_time_to_live_means_nothing_where_the_container_has_it_switched_off(
    account: RunningAccount,
) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    account.flights.create_item({"id": "short", "tail": "N1", "ttl": 1})

    clock.seconds += 1000

    assert account.flights.read_item("short", "N1")["id"] == "short"
