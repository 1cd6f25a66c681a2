"""The recipes of the page about Spark run as they stand there, on rows as connectors have them."""

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cli.cloud import app_settings
from cli.folders import package_app
from cli.regions import CONFIG
from local.testing.patience import until
from lockstep import exercise, given
from proof.testbed.cloud import ROOT, running_cloud
from shared.backtest.app import load_app
from spark import feed, reconcile
from spark.feeding import FeedConfig, select_unfed
from tests.docs.pages import page
from tests.e2e.stack import Stack
from tests.spark.bookings import DOCUMENT, SCHEMA
from tests.spark.recording import recorded

PAGE = page("docs/spark.md").section("Feed a table of your own")
STREAMS = PAGE.section("A stream, batch by batch")
PYTHON = PAGE.programs()
MAPPING: dict[str, Any] = json.loads(STREAMS.programs("json")[0])
FILES = {block.name: block.text for block in PAGE.blocks if block.name}
BATCH, READERS = (
    next(block for block in PYTHON if word in block) for word in ("def feed_batch", "def read_")
)

DELTA = "book string, line int, amount int, _change_type string, _commit_version bigint"
KAFKA = "key string, value string, partition int, offset bigint"

type Change = tuple[str, int, int, int]


def by_delta(what: str, line: int, amount: int, position: int) -> list[dict[str, Any]]:
    """A change of a row in Delta's change feed, which also has what an update replaced."""
    kinds = {"insert": ["insert"], "delete": ["delete"]}
    rows = kinds.get(what, ["update_preimage", "update_postimage"])
    row = {"book": "book:a", "line": line, "amount": amount, "_commit_version": position}
    replaced = {"update_preimage": {"amount": -1}}
    return [row | {"_change_type": kind} | replaced.get(kind, {}) for kind in rows]


def by_kafka(_what: str, line: int, amount: int, position: int) -> list[dict[str, Any]]:
    value = json.dumps({"book": "book:a", "line": line, "amount": amount})
    return [{"key": str(line), "value": value, "partition": 0, "offset": position}]


def by_debezium(what: str, line: int, amount: int, position: int) -> list[dict[str, Any]]:
    """A change as Debezium tells it; what was deleted is followed by a message without a value."""
    row = {"book": "book:a", "line": line, "amount": amount}
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


def test_the_app_that_is_shipped_takes_what_the_example_sends() -> None:
    said = json.loads(FILES["bookings.json"])
    rows = list(csv.DictReader(FILES["bookings.csv"].splitlines()))
    handlers = load_app(ROOT)

    assert len(rows) > 2
    for row in rows:
        handler = handlers.of(said["type"], row[said["session"]])
        body = {name: int(row[name]) for name in said["body"]}
        assert handler.body.model_validate(body).model_dump() == body


def test_the_handler_of_the_page_keeps_what_its_table_holds() -> None:
    names: dict[str, Any] = {}
    exec(FILES["books.py"], names)
    story = [
        {"line": 1, "amount": 10, "deleted": False},
        {"line": 2, "amount": 20, "deleted": False},
        {"line": 1, "amount": 11, "deleted": False},
        {"line": 2, "amount": 20, "deleted": True},
    ]
    assert all(set(body) == set(MAPPING["body"]) for body in story)

    messages = [given("book:a", MAPPING["type"], body) for body in story]

    report = exercise(names["handlers"], messages, hash_seeds=())

    assert report.state("book:a") == {"amounts": {"1": 11}}


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


@pytest.mark.proof
@pytest.mark.e2e
def test_what_the_page_feeds_takes_effect_in_the_app_that_is_shipped(
    spark: SparkSession,
    jobs_here: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = tmp_path / "app"
    package_app(ROOT, app)
    (app / "functions/handlers/books.py").write_text(FILES["books.py"])
    for name in ("bookings.csv", "bookings.json"):
        (tmp_path / name).write_text(FILES[name])
    (commands,) = (text for text in PAGE.programs("shell") if "spark.feed" in text)
    jobs = {"spark.feed": feed.main, "spark.reconcile": reconcile.main}
    # Java, which runs already, is in another folder.
    paths = {name: str(tmp_path / name) for name in (*FILES, "fed/bookings")}

    where = ("--app", str(app), "--config", str(CONFIG))
    with running_cloud(*where, logs=tmp_path / "logs") as cloud:
        stack = Stack(cloud)
        for name, value in app_settings(cloud).items():
            monkeypatch.setenv(name, value)
        for command in commands.splitlines():
            python, option, job, *words = shlex.split(command)
            assert (python, option) == ("python", "-m")
            assert jobs[job]([paths.get(word, word) for word in words]) == 0, capsys.readouterr()
            until(lambda: stack.left_in_queues() == 0, seconds=90, what="draining")
        assert capsys.readouterr().out.splitlines()[-1] == "source and journal agree"
        names: dict[str, Any] = {}
        exec(READERS, names)
        rows = [row for change in (*CHANGES[0], *CHANGES[1]) for row in by_delta(*change)]
        (tmp_path / "in").mkdir()
        for number, part in enumerate((rows, by_delta(*CHANGES[2][0]))):
            lines = "".join(f"{json.dumps(row)}\n" for row in part)
            (tmp_path / f"in/{number}.json").write_text(lines)
            stream = spark.readStream.schema(DELTA).json(str(tmp_path / "in"))
            feed_stream(names["read_delta"](stream), tmp_path)
        until(lambda: stack.left_in_queues() == 0, seconds=90, what="draining")

        balances = {name: stack.state("east", name) for name in ("account:7", "account:8")}
        assert {name: state and state["balance"] for name, state in balances.items()} == {
            "account:7": 150,
            "account:8": 30,
        }
        assert stack.state("west", "book:a") == {"amounts": {"1": 11, "3": 30}}
        ends = {entry["status"] for own in stack.entries().values() for entry in own}
        assert ends == {"completed"}


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
