"""The archive of a journal: entries as they were stored, in Parquet, long after their compaction.

A run of the job `archive` adds a folder. An entry that changed after it was archived is there again
as it became, so whoever reads takes the newest of its rows.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.cosmos.exceptions import CosmosResourceNotFoundError
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType, TimestampType

from shared.storage.archive import (
    GENESIS_POSITION,
    WRITTEN_SQL,
    archived_state_id,
    make_archive_row,
)
from spark.read.journal import (
    JournalReader,
    JournalSource,
    open_journal,
    read_journal_settings,
)
from spark.schemas import LONG, TEXT, build_schema

# `written` is when the store wrote the entry, and `document` the entry as JSON.
ARCHIVE = build_schema(session=TEXT, position=LONG, written=TimestampType(), document=TEXT)
# The folders of an archive are named by it.
RUN = build_schema(run=TEXT)


class WrittenSource(JournalSource):
    """The rows of what was written after `since` until `until`, in seconds of the store's clock."""

    @classmethod
    def name(cls) -> str:
        return "lockstep.written"

    def schema(self) -> StructType:
        return ARCHIVE

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - as Spark calls it
        window = (int(self.options[name]) for name in ("since", "until"))
        return WrittenReader(read_journal_settings({}, self.settings), *window)


@dataclass(frozen=True)
class WrittenReader(JournalReader):
    since: int
    until: int

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        window: list[dict[str, object]] = [
            {"name": "@since", "value": self.since},
            {"name": "@until", "value": self.until},
        ]
        with open_journal(self.settings) as journal:
            for document in journal.query_items(
                WRITTEN_SQL, parameters=window, feed_range=dict(partition.value)
            ):
                state, beside = None, archived_state_id(document)
                # What is erased just now has none; the next run removes the rest.
                with suppress(CosmosResourceNotFoundError):
                    state = journal.read_item(beside, document["session"]) if beside else None
                if row := make_archive_row(document, state):
                    session, position, written, text = row
                    yield session, position, datetime.fromtimestamp(written, UTC), text


def read_versions(spark: SparkSession, place: str) -> DataFrame:
    """Every row of an archive with its run, the old ones of an entry and genesis rows as well."""
    return spark.read.schema(StructType([*ARCHIVE.fields, *RUN.fields])).parquet(place)


def with_lives(rows: DataFrame) -> DataFrame:
    """Rows with `life`: when the session of their name began that they are of."""
    begun = F.when(F.col("position") == GENESIS_POSITION, F.col("written"))
    # What is removed whole goes weeks after its last change, so no two lives share a second.
    so_far = Window.partitionBy("session").orderBy("written", "position")
    return rows.withColumn(
        "life", F.coalesce(F.max(begun).over(so_far), F.timestamp_seconds(F.lit(0)))
    )


def read_archive(spark: SparkSession, place: str) -> DataFrame:
    """The entries of an archive, each as it was last: ARCHIVE and `life`, in no order.

    A name may be used again once its session was removed: its entries are then of another `life`,
    and their positions begin anew.
    """
    entries = with_lives(read_versions(spark, place)).where(F.col("position") != GENESIS_POSITION)
    newest = F.max_by(F.struct("written", "document"), "written").alias("newest")
    found = entries.groupBy("session", "life", "position").agg(newest)
    return found.select("session", "life", "position", "newest.written", "newest.document")
