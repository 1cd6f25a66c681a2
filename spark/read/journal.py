"""The journal as a table: `spark.read.format("lockstep.journal")`, or an export of it.

The account's feed ranges are the partitions, so executors read them side by side, and need no
shared disk. The journal is read while it may change, so the table is not a snapshot of one instant.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from azure.cosmos import ContainerProxy, CosmosClient
from azure.identity import DefaultAzureCredential
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, StructType

from shared.domain.errors import Misconfigured
from shared.settings import connection, read_text
from shared.storage.documents import OF_OLD_RELEASE
from spark.job.settings import OptionRefused, read_app_settings, with_settings
from spark.schemas import LONG, TEXT, build_schema

QUERY = "SELECT c.session, c.id, c.status, c.identities, c.halt FROM c WHERE c.kind = 'entry'"
JOURNAL_SETTINGS = (
    "Cosmos",
    "Cosmos__accountEndpoint",
    "Cosmos__clientId",
    "LOCKSTEP_DATABASE",
    "LOCKSTEP_JOURNAL",
)
# What is read of the journal's documents of kind `entry`. An id is its position, padded with zeros.
# While a session is halted, its entries say at which position the fault is.
IDENTITY = build_schema(id=TEXT, type=TEXT, digest=TEXT, group=TEXT, sequence=LONG)
HALT = build_schema(at=LONG)
ENTRIES = build_schema(
    session=TEXT, id=TEXT, status=TEXT, identities=ArrayType(IDENTITY), halt=HALT
)
EXPORTED = StructType([*ENTRIES.fields, *build_schema(kind=TEXT, _ts=LONG).fields])


@dataclass(frozen=True)
class JournalPartition(InputPartition):
    """A feed range of the journal's container, as Cosmos DB describes it."""

    value: Mapping[str, Any]


class JournalSource(DataSource):
    """The entries of the journal (ENTRIES). Options: the account's app settings.

    Those that are no options are in `settings` (with_settings), or else in the environment.
    """

    settings: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def name(cls) -> str:
        return "lockstep.journal"

    def schema(self) -> StructType:
        return ENTRIES

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader; raises OptionRefused, or InvalidSettings if the settings name no account."""
        known = {name.lower() for name in JOURNAL_SETTINGS}
        if unknown := sorted({name.lower() for name in self.options} - known):
            raise OptionRefused(f"unknown options: {', '.join(unknown)}")
        if schema.simpleString() != ENTRIES.simpleString():
            raise OptionRefused(f"{self.name()} has columns of its own; read it without a schema")
        return JournalReader(read_journal_settings(self.options, self.settings))


@dataclass(frozen=True)
class JournalReader(DataSourceReader):
    settings: Mapping[str, str]

    def partitions(self) -> Sequence[JournalPartition]:
        with open_journal(self.settings) as journal:
            ranges = journal.read_feed_ranges(force_refresh=True)
            return [JournalPartition(feed_range) for feed_range in ranges]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        with open_journal(self.settings) as journal:
            for entry in journal.query_items(QUERY, feed_range=dict(partition.value)):
                if "identities" not in entry:
                    raise Misconfigured(OF_OLD_RELEASE)
                names = IDENTITY.names
                identities = [tuple(one.get(name) for name in names) for one in entry["identities"]]
                halt = (entry["halt"]["at"],) if entry.get("halt") else None
                yield (entry["session"], entry["id"], entry["status"], identities, halt)


def read_journal_settings(
    options: Mapping[str, str], beside: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings of the journal's account, as job/settings.py finds them."""
    settings = read_app_settings(options, beside)
    found = {name: value for name, value in settings.items() if name in JOURNAL_SETTINGS}
    connection(found, "Cosmos", "accountEndpoint")
    return found


@contextmanager
def open_journal(settings: Mapping[str, str]) -> Iterator[ContainerProxy]:
    """The journal's container, by a connection string, or by an endpoint and an identity."""
    account = connection(settings, "Cosmos", "accountEndpoint")
    if account.connection_string is not None:
        client = CosmosClient.from_connection_string(account.connection_string)
    else:
        identity = DefaultAzureCredential(managed_identity_client_id=account.client_id)
        client = CosmosClient(str(account.endpoint), identity)
    with client:
        database = client.get_database_client(read_text(settings, "LOCKSTEP_DATABASE"))
        yield database.get_container_client(read_text(settings, "LOCKSTEP_JOURNAL"))


def read_journal(spark: SparkSession, exported: str | None) -> DataFrame:
    """The entries in the account, or in JSON lines or Parquet exported by its change feed.

    A change feed repeats a document whenever it changes, so an export may hold it several times;
    the one with the newest `_ts` counts. An export with a broken line fails when it is read, and so
    does one of a journal that an older release began.
    """
    if exported is None:
        spark.dataSource.register(with_settings(JournalSource))
        return spark.read.format(JournalSource.name()).load()
    reader = spark.read.schema(EXPORTED).option("mode", "FAILFAST")
    is_parquet = exported.rstrip("/").endswith(".parquet")
    return keep_newest(reader.parquet(exported) if is_parquet else reader.json(exported))


def keep_newest(documents: DataFrame) -> DataFrame:
    """The entries (ENTRIES) among documents, each in its newest version."""
    entries = documents.where(F.coalesce("kind", F.lit("entry")) == "entry")
    refused = F.raise_error(F.lit(OF_OLD_RELEASE))
    identities = F.coalesce("identities", refused).alias("identities")
    version = F.max_by(F.struct("status", identities, "halt"), F.coalesce("_ts", F.lit(0)))
    return (
        entries.groupBy("session", "id")
        .agg(version.alias("newest"))
        .select("session", "id", "newest.*")
    )
