"""One wrong message in a million, found by reconciliation: synthetic frames, no cloud."""

import hashlib
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.numbering import digest_event
from spark.reconciliation import find_differences
from spark.runtime import open_spark
from testbed.command import RunFailed

SESSIONS = 4000
GROUP, TYPE = "bench", "account.add"


def find_one_wrong_of(messages: int) -> None:
    """Plant one wrong digest among so many messages; raises RunFailed unless just it is found."""
    with open_spark("local[2]") as spark:
        wrong = int(hashlib.sha256(str(messages).encode()).hexdigest(), 16) % messages
        events = make_events(spark, messages)
        began = time.monotonic()
        found = find_differences(events, make_journal(events, wrong), GROUP).collect()
        seconds = time.monotonic() - began
    findings_found = [(row["finding"], row["id"]) for row in found]
    if findings_found != [("different content", f"id-{wrong}")]:
        raise RunFailed(f"planted id-{wrong}, found {findings_found[:5]}")
    print(f"books: 1 wrong in {messages} found, and nothing else, in {seconds:.1f} s", flush=True)


def make_events(spark: SparkSession, messages: int) -> DataFrame:
    return spark.range(messages).select(
        F.format_string("session-%d", F.col("id") % SESSIONS).alias("session"),
        F.lit(GROUP).alias("group"),
        F.floor(F.col("id") / SESSIONS).alias("sequence"),
        F.lit(TYPE).alias("type"),
        F.format_string('{"amount":%d}', "id").alias("body"),
        F.format_string("id-%d", "id").alias("id"),
        F.lit(None).cast("string").alias("time"),
    )


def make_journal(events: DataFrame, wrong: int) -> DataFrame:
    """Entries that cover the events one by one; one of them says something else."""
    changed = events.withColumn(
        "body", F.when(F.col("id") == f"id-{wrong}", "{}").otherwise(F.col("body"))
    ).withColumn("digest", digest_event())
    covered = F.struct("id", "type", "digest", "group", "sequence")
    return changed.select(
        "session",
        F.lpad(F.col("sequence").cast("string"), 12, "0").alias("id"),
        F.lit("completed").alias("status"),
        F.array(covered).alias("covers"),
    )
