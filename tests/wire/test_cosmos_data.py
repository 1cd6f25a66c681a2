"""What an account with a data directory keeps over a restart."""

from pathlib import Path

import pytest

from tests.wire.cosmos_account import running_account

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
