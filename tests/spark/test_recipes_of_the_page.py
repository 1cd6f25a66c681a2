"""The recipes of the page about Spark run as they stand there, on rows as connectors have them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.feeding import FeedConfig, select_unfed
from tests.docs.pages import page
from tests.spark.bookings import DOCUMENT, SCHEMA
from tests.spark.recording import recorded

PAGE = page("docs/spark.md").section("Feed a table of your own")
STREAMS = PAGE.section("A stream, batch by batch")
PYTHON = PAGE.programs()
MAPPING: dict[str, Any] = json.loads(STREAMS.programs("json")[0])
BATCH, READERS = (
    next(block for block in PYTHON if word in block) for word in ("def feed_batch", "def read_")
)

DELTA = "account string, line int, amount int, _change_type string, _commit_version bigint"
KAFKA = "key string, value string, partition int, offset bigint"

type Change = tuple[str, int, int, int]


def by_delta(what: str, line: int, amount: int, position: int) -> list[dict[str, Any]]:
    """A change of a row in Delta's change feed, which also has what an update replaced."""
    kinds = {"insert": ["insert"], "delete": ["delete"]}
    rows = kinds.get(what, ["update_preimage", "update_postimage"])
    row = {"account": "a", "line": line, "amount": amount, "_commit_version": position}
    replaced = {"update_preimage": {"amount": -1}}
    return [row | {"_change_type": kind} | replaced.get(kind, {}) for kind in rows]


def by_kafka(_what: str, line: int, amount: int, position: int) -> list[dict[str, Any]]:
    value = json.dumps({"account": "a", "line": line, "amount": amount})
    return [{"key": str(line), "value": value, "partition": 0, "offset": position}]


def by_debezium(what: str, line: int, amount: int, position: int) -> list[dict[str, Any]]:
    """A change as Debezium tells it; what was deleted is followed by a message without a value."""
    row = {"account": "a", "line": line, "amount": amount}
    before = {"insert": None, "update": row | {"amount": -1}, "delete": row}[what]
    after = None if what == "delete" else row
    payload = {"before": before, "after": after, "op": what[0], "source": {"lsn": position}}
    message = {"key": str(line), "value": json.dumps({"payload": payload}), "partition": 0}
    tombstone = [message | {"value": None, "offset": 8}] if what == "delete" else []
    return [message | {"offset": 7}, *tombstone]


CHANGES: list[list[Change]] = [
    [("insert", 1, 10, 1), ("insert", 2, 20, 2), ("update", 1, 11, 3)],
    # It comes too late, after a newer state of its row was sent.
    [("update", 1, 10, 2), ("insert", 3, 30, 4)],
    [("delete", 2, 20, 5)],
]
WITH_DELETIONS = [(11, False), (20, False), (30, False), (20, True)]
WITHOUT = [(11, False), (20, False), (30, False)]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("reader", "schema", "build", "expected"),
    [
        ("read_delta", DELTA, by_delta, WITH_DELETIONS),
        ("read_kafka", KAFKA, by_kafka, WITHOUT),
        ("read_debezium", KAFKA, by_debezium, WITH_DELETIONS),
    ],
)
def test_changes_become_events_once_and_the_newest_counts(
    spark: SparkSession,
    tmp_path: Path,
    recorded_here: None,
    reader: str,
    schema: str,
    build: Callable[..., list[dict[str, Any]]],
    expected: list[tuple[int, bool]],
) -> None:
    names: dict[str, Any] = {}
    exec(READERS, names)
    incoming = tmp_path / "in"
    incoming.mkdir()

    for number, changes in enumerate(CHANGES):
        rows = [row for change in changes for row in build(*change)]
        (incoming / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        stream = names[reader](spark.readStream.schema(schema).json(str(incoming)))
        feed_stream(stream, tmp_path)

    assert sent(tmp_path / "sent") == expected
    # The checkpoint is lost, so that everything comes again, in one batch.
    feed_stream(stream, tmp_path, checkpoint="another")
    assert sent(tmp_path / "sent") == expected


def feed_stream(stream: DataFrame, folder: Path, checkpoint: str = "checkpoint") -> None:
    """Run the recipe until all that is there was fed."""
    block = BATCH.replace("{lake}/checkpoint", f"{{lake}}/{checkpoint}")
    names: dict[str, Any] = {"stream": stream, "mapping": MAPPING, "lake": str(folder)}
    exec(block, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert names["query"].exception() is None


@pytest.mark.proof
def test_of_a_table_behind_jdbc_only_what_is_new_is_read(
    spark: SparkSession, tmp_path: Path, recorded_here: None
) -> None:
    block = next(block for block in PYTHON if "spark.read.jdbc" in block)
    url = "jdbc:derby:memory:bank;create=true"
    login = {"driver": "org.apache.derby.jdbc.EmbeddedDriver"}
    mapping = DOCUMENT | {"watermark": "line"}
    options = FeedConfig("bank", str(tmp_path / "fed"), rejects=str(tmp_path / "rejects"))
    names: dict[str, Any] = {"spark": spark, "url": url, "login": login}
    names |= {"mapping": mapping, "options": options}

    read = []
    for lines in ([1, 2, 3], [4, 5]):
        rows = spark.createDataFrame([("a", n, n * 10) for n in lines], SCHEMA)
        rows.write.jdbc(url, "bookings", "append", login)
        exec(block, names)
        read.append(names["result"].rows.rows)

    assert read == [3, 3], "the highest line that was sent is read again"
    assert [amount for amount, _ in sent(tmp_path / "sent")] == [10, 20, 30, 40, 50]
    chosen = select_unfed(names["bookings"], mapping, options)
    assert "PushedFilters: [*" in chosen._jdf.queryExecution().toString()


def sent(sink: Path) -> list[tuple[int, bool]]:
    """The bodies of everything that was sent, in the order of the numbers."""
    found = sorted((m["sequence"], m["body"]) for m in recorded(sink))
    bodies = [json.loads(body) for _, body in found]
    return [(body["amount"], body.get("deleted", False)) for body in bodies]
