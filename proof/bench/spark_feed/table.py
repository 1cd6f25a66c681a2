"""A generated table of any size, in Parquet, and a feed of it by `python -m spark.feed`."""

import json
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812

from local.testing.control import count_operations
from proof.bench.spark_feed.runs import FeedCloud, SendRun, run_feed
from proof.testbed.cloud import ROOT
from proof.testbed.command import RunFailed
from spark.runtime import open_spark

ROWS_A_SESSION = 50
MAPPING = {
    "format": "parquet",
    "columns": {"account": "string", "line": "bigint", "amount": "bigint", "note": "string"},
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["amount", "note"],
    "type": "account.add",
}


def write_table(folder: Path, rows: int) -> None:
    """Write bookings, whose accounts take turns; a note is 64 characters that do not compress."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mapping.json").write_text(json.dumps(MAPPING))
    with open_spark("local[2]") as spark:
        line, sessions = F.col("id"), max(1, rows // ROWS_A_SESSION)
        spark.range(rows).select(
            F.format_string("acc-%d", line % sessions).alias("account"),
            line.alias("line"),
            (line % 1000).alias("amount"),
            F.sha2(line.cast("string"), 256).alias("note"),
        ).write.parquet(str(folder / "table"))


def forget_messages(folder: Path) -> Path:
    """Write a local.config.json whose queues drop what nobody takes within a minute.

    Ten million messages in each namespace would not fit the memory of one machine.
    """
    document = json.loads((ROOT / "local.config.json").read_text())
    for namespace in document["UserConfig"]["Namespaces"]:
        for queue in namespace["Queues"]:
            queue["Properties"]["DefaultMessageTimeToLive"] = "PT1M"
            queue["Properties"]["DeadLetteringOnMessageExpiration"] = False
    file = folder / "local.config.json"
    file.write_text(json.dumps(document))
    return file


def feed_table(rows: int, feed_cloud: FeedCloud) -> SendRun:
    """Feed the table; raises RunFailed unless every namespace has taken what was sent, once."""
    taken = count_taken(feed_cloud)
    words = [f"--source={feed_cloud.folder / 'table'}", "--group=bench"]
    words += [f"--mapping={feed_cloud.folder / 'mapping.json'}"]
    done = run_feed("spark.feed", words, feed_cloud)
    now = {name: count - taken[name] for name, count in count_taken(feed_cloud).items()}
    if done.rows != rows or set(now.values()) != {done.events}:
        raise RunFailed(f"{rows} rows: {done.rows} were read, {done.events} sent, {now} taken")
    return done


def count_taken(feed_cloud: FeedCloud) -> dict[str, int]:
    """Count the messages each namespace has taken, those that become visible later included."""
    counters = feed_cloud.cloud.control.read_counters()
    return {
        region: count_operations(counters, f"servicebus.{region}", "send")
        for region in feed_cloud.cloud.regions
    }
