"""What an account with a data directory keeps over a restart."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from local.cosmos.server import Cosmos
from wire.cosmos_account import CONFIG, THREE_REGIONS, running_account

pytestmark = pytest.mark.wire


def test_items_tags_and_the_change_feed_survive_a_restart(tmp_path: Path) -> None:
    with running_account(data_dir=tmp_path) as account:
        first = dict(account.journal.create_item({"id": "000", "session": "s", "n": 1}))
        account.client.create_database("extra")
        list(account.journal.query_items_change_feed(start_time="Beginning"))
        position = account.journal.client_connection.last_response_headers["etag"]

    with running_account(data_dir=tmp_path) as account:
        assert dict(account.journal.read_item("000", "s")) == first
        assert [one["id"] for one in account.client.list_databases()] == ["extra", "lockstep"]
        second = account.journal.upsert_item({"id": "000", "session": "s", "n": 2})
        feed = account.journal.query_items_change_feed(continuation=position)
        assert [one["n"] for one in feed] == [2]

    assert second["_rid"] == first["_rid"]
    assert second["_etag"] != first["_etag"]


def test_a_tag_is_never_given_twice_even_when_the_newest_item_was_deleted(tmp_path: Path) -> None:
    with running_account(data_dir=tmp_path) as account:
        first = account.journal.create_item({"id": "000", "session": "s"})
        account.journal.delete_item("000", "s")

    with running_account(data_dir=tmp_path) as account:
        second = account.journal.create_item({"id": "000", "session": "s"})

    assert second["_etag"] != first["_etag"]


def test_partitions_and_positions_in_each_survive_a_restart(tmp_path: Path) -> None:
    tails = [f"N{number}" for number in range(20)]
    with running_account(data_dir=tmp_path) as account:
        for tail in tails:
            account.divided.create_item({"id": "1", "tail": tail})
        account.divided.create_item({"id": "gone", "tail": "N0"})
        account.divided.delete_item("gone", "N0")
        list(account.divided.query_items_change_feed(start_time="Beginning"))
        position = account.divided.client_connection.last_response_headers["etag"]

    containers = tuple(replace(one, partitions=2) for one in CONFIG.containers)
    with running_account(
        data_dir=tmp_path, config=replace(CONFIG, containers=containers)
    ) as account:
        assert len(list(account.divided.read_feed_ranges())) == 5
        assert list(account.divided.query_items_change_feed(continuation=position)) == []
        for tail in tails:
            account.divided.create_item({"id": "2", "tail": tail})
        feed = account.divided.query_items_change_feed(continuation=position)
        assert sorted((one["tail"], one["id"]) for one in feed) == sorted(
            (tail, "2") for tail in tails
        )


def test_the_write_region_survives_a_restart_as_long_as_it_exists(tmp_path: Path) -> None:
    with running_account(data_dir=tmp_path, config=THREE_REGIONS) as account:
        account.cosmos.move_write_region("north")

    with running_account(data_dir=tmp_path, config=THREE_REGIONS) as account:
        assert account.cosmos.write_region == "north"
        account.journal.create_item({"id": "000", "session": "s"})

    fewer = replace(THREE_REGIONS, regions=("west", "east"))
    with running_account(data_dir=tmp_path, config=fewer) as account:
        assert account.cosmos.write_region == "west"
        assert [one["id"] for one in account.journal.read_all_items()] == ["000"]


def test_a_file_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cosmos.sqlite"
    foreign = sqlite3.connect(path)
    foreign.executescript("CREATE TABLE items (lsn INTEGER PRIMARY KEY, body TEXT)")
    foreign.close()
    before = path.read_bytes()

    with pytest.raises(OSError, match="another version"), Cosmos(CONFIG, data_dir=tmp_path):
        pass

    assert path.read_bytes() == before
