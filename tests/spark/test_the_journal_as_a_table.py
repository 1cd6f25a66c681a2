"""The journal read by feed range: every entry once, from every partition, and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient

from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from shared.domain.errors import Misconfigured
from shared.settings import InvalidSettings
from spark.job.settings import OptionRefused
from spark.read.journal import (
    ENTRIES,
    IDENTITY,
    JournalReader,
    JournalSource,
    read_journal_settings,
)

pytestmark = pytest.mark.wire

SECTION = {
    "Database": "lockstep",
    "Containers": [{"Name": "divided", "PartitionKey": "/tail", "Partitions": 5}],
}

COVER = {"id": "m-1", "type": "account.add", "digest": "0" * 64}
NUMBER = {"group": "bank", "level": 0, "sequence": 7}


@pytest.fixture
def account() -> Iterator[Cosmos]:
    """A local account whose container `divided` stands for a large journal."""
    with Cosmos(CosmosConfig.parse(SECTION)) as account:
        yield account


@pytest.fixture
def divided(account: Cosmos) -> Iterator[ContainerProxy]:
    with CosmosClient(account.endpoint, account.key) as client:
        yield client.get_database_client("lockstep").get_container_client("divided")


def settings(account: Cosmos) -> dict[str, str]:
    return {
        "Cosmos": account.connection_string,
        "LOCKSTEP_DATABASE": "lockstep",
        "LOCKSTEP_JOURNAL": "divided",
    }


def test_every_partition_is_read_and_every_entry_comes_once(
    account: Cosmos, divided: ContainerProxy
) -> None:
    expected = set()
    for n in range(60):
        session = f"acc-{n}"
        document: dict[str, Any] = {"id": f"{n:012d}", "tail": session, "kind": "entry"}
        document |= {"session": session}
        document |= {"status": "completed", "identities": [COVER | (NUMBER if n else {})]}
        document |= {"halt": {"at": n, **NUMBER}} if n % 2 else {}
        divided.create_item(document)
        divided.create_item({"id": "genesis", "tail": session, "kind": "genesis"})
        number, halt = ("bank", 7) if n else (None, None), (n,) if n % 2 else None
        expected.add((session, f"{n:012d}", "completed", number, halt))
    reader = JournalReader(read_journal_settings(settings(account)))

    parts = [list(reader.read(partition)) for partition in reader.partitions()]

    assert len(parts) == 5
    assert all(parts)
    rows = [row for part in parts for row in part]
    assert len(rows) == 60
    assert {len(row) for row in rows} == {len(ENTRIES.fields)}
    assert {len(cover) for row in rows for cover in row[3]} == {len(IDENTITY.fields)}
    assert {(s, i, status, cover[3:], halt) for s, i, status, (cover,), halt in rows} == expected


def test_an_entry_of_an_older_release_is_refused_by_name(
    account: Cosmos, divided: ContainerProxy
) -> None:
    entry = {"id": f"{0:012d}", "session": "acc-1", "tail": "acc-1", "kind": "entry", "covers": []}
    divided.create_item(entry)
    reader = JournalReader(read_journal_settings(settings(account)))

    with pytest.raises(Misconfigured, match="older release"):
        [row for partition in reader.partitions() for row in reader.read(partition)]


def test_a_journal_without_an_account_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Cosmos", "Cosmos__accountEndpoint"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(InvalidSettings, match="neither Cosmos nor"):
        JournalSource({}).reader(ENTRIES)


def test_an_option_or_a_schema_that_is_not_the_journal_s_is_refused_by_name() -> None:
    with pytest.raises(OptionRefused, match="unknown options: databse"):
        JournalSource({"databse": "x", "lockstep_database": "y"}).reader(ENTRIES)
    with pytest.raises(OptionRefused, match=r"lockstep\.journal has columns of its own"):
        JournalSource({}).reader(IDENTITY)
