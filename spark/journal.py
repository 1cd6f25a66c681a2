"""The journal as a table: `spark.read.format("lockstep.journal")`, or what was exported of it.

The account's feed ranges are the partitions, so executors read it side by side and no disk between
them is assumed. It is read as it stands while the reading lasts, not at one instant.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from azure.cosmos import ContainerProxy, CosmosClient
from azure.identity import DefaultAzureCredential
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from shared.settings import Connection, connection, text
from spark.books import ENTRIES
from spark.options import OptionRefused, app_settings

QUERY = "SELECT c.session, c.id, c.status, c.covers FROM c WHERE c.kind = 'entry'"
NEEDED = (
    "Cosmos",
    "Cosmos__accountEndpoint",
    "Cosmos__clientId",
    "LOCKSTEP_DATABASE",
    "LOCKSTEP_JOURNAL",
)
EXPORTED = StructType(
    [*ENTRIES.fields, StructField("kind", StringType()), StructField("_ts", LongType())]
)


@dataclass(frozen=True)
class FeedRange(InputPartition):
    """A part of the journal's container, as Cosmos DB names it."""

    value: Mapping[str, Any]


class JournalSource(DataSource):
    """The entries of the journal (books.ENTRIES). Options: the app settings of the account."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "lockstep.journal"

    def schema(self) -> StructType:
        """Which messages an entry covers, and how it ended."""
        return ENTRIES

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader; raises OptionRefused, or InvalidSettings where the account is not named."""
        known = {name.lower() for name in NEEDED}
        if unknown := sorted({name.lower() for name in self.options} - known):
            raise OptionRefused(f"unknown options: {', '.join(unknown)}")
        if schema.simpleString() != ENTRIES.simpleString():
            raise OptionRefused(f"{self.name()} has columns of its own; read it without a schema")
        return JournalReader(journal_settings(self.options))


@dataclass(frozen=True)
class JournalReader(DataSourceReader):
    """Reads each feed range in a task of its own."""

    settings: Mapping[str, str]

    def partitions(self) -> Sequence[FeedRange]:
        """The feed ranges, as the account has them now."""
        with account(self.settings) as client:
            ranges = container(client, self.settings).read_feed_ranges(force_refresh=True)
            return [FeedRange(feed_range) for feed_range in ranges]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The entries of one feed range, a page at a time."""
        with account(self.settings) as client:
            journal = container(client, self.settings)
            for entry in journal.query_items(QUERY, feed_range=dict(partition.value)):
                yield (entry["session"], entry["id"], entry["status"], covers(entry))


def covers(entry: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """What an entry covers, as rows of books.COVERED."""
    names = ("id", "type", "digest", "group", "sequence")
    return [tuple(covered.get(name) for name in names) for covered in entry["covers"]]


def journal_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Where the journal is: the driver's environment, overridden by options."""
    found = {name: value for name, value in app_settings(options).items() if name in NEEDED}
    connection(found, "Cosmos", "accountEndpoint")
    return found


def account(settings: Mapping[str, str]) -> CosmosClient:
    """A client for a connection string, or for an endpoint reached with an identity."""
    where: Connection = connection(settings, "Cosmos", "accountEndpoint")
    if where.connection_string is not None:
        return CosmosClient.from_connection_string(where.connection_string)
    identity = DefaultAzureCredential(managed_identity_client_id=where.client_id)
    return CosmosClient(str(where.endpoint), identity)


def container(client: CosmosClient, settings: Mapping[str, str]) -> ContainerProxy:
    """The journal's container."""
    database = client.get_database_client(text(settings, "LOCKSTEP_DATABASE"))
    return database.get_container_client(text(settings, "LOCKSTEP_JOURNAL"))


def read_journal(spark: SparkSession, exported: str | None) -> DataFrame:
    """The entries of the account, or of JSON lines or Parquet exported by its change feed.

    An export may hold a document more than once, as change feeds tell it: the newest `_ts` counts.
    One with a broken line fails, when it is read.
    """
    if exported is None:
        spark.dataSource.register(JournalSource)
        return spark.read.format(JournalSource.name()).load()
    reader = spark.read.schema(EXPORTED).option("mode", "FAILFAST")
    is_parquet = exported.rstrip("/").endswith(".parquet")
    return newest(reader.parquet(exported) if is_parquet else reader.json(exported))


def newest(documents: DataFrame) -> DataFrame:
    """Each entry once (books.ENTRIES), as its newest version has it; nothing else."""
    entries = documents.where(F.coalesce("kind", F.lit("entry")) == "entry")
    version = F.max_by(F.struct("status", "covers"), F.coalesce("_ts", F.lit(0)))
    return (
        entries.groupBy("session", "id")
        .agg(version.alias("newest"))
        .select("session", "id", "newest.status", "newest.covers")
    )
