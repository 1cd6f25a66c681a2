"""Bookings of accounts: their mapping, facts and messages, and feeds of them by a manifest."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from shared.domain.message import Message, Number
from spark.feeding import FeedConfig
from spark.feeding.incremental import IncrementalFeed, SendResult
from spark.feeding.judging import classify_facts
from spark.feeding.manifest import Manifest, ManifestHistory
from spark.feeding.rejects import account_for_rows
from spark.job.console import JobConsole
from spark.read.facts import SourceFacts, extract_facts
from spark.read.mapping import SourceMapping
from spark.read.sources import filter_since, read_table
from spark.schemas import FACTS, PLAN
from spark.send.datasource import EventWriter
from tests.spark.recording import RecordingDataSource, recorded

type Fact = tuple[str, str, list[str], str, str, str | None, str | None]
type Bound = tuple[object, ...]

GROUP, TYPE = "bank", "account.add"
COLUMNS = {"account": "string", "line": "int", "amount": "int"}
SCHEMA = "account string, line int, amount int"
ROWS = [("a", 1, 10), ("a", 2, 20), ("b", 1, 30)]
DOCUMENT: dict[str, Any] = {
    "format": "json",
    "columns": COLUMNS,
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["amount"],
    "type": TYPE,
}
# Bookings in CSV that are read from a watermark on, as LINES has them.
MARKED = DOCUMENT | {"format": "csv", "columns": COLUMNS | {"seen": "timestamp"}}
MARKED["watermark"] = "seen"
LINES = [f"acc-{n % 3},{n},{n * 10},2026-01-0{1 + n % 5} 00:00:00" for n in range(9)]


class DriverKilled(BaseException):
    """Nothing gets to clean up."""


def declare(form: str, **changes: object) -> SourceMapping:
    return SourceMapping.parse(DOCUMENT | {"format": form} | changes)


def fact(session: str, key: str, place: str, amount: int, version: str | None = None) -> Fact:
    return (session, key, [place], TYPE, f'{{"amount":{amount}}}', None, version)


def facts_of(spark: SparkSession, facts: list[Fact]) -> DataFrame:
    return spark.createDataFrame(facts, FACTS)


def message(session: str = "acc-7", sequence: int = 0, body: bytes = b'{"amount":1}') -> Message:
    number = Number(GROUP, 0, sequence)
    return Message(
        f"{session}-{sequence}", session, TYPE, body, number, "2026-01-02T03:04:05+00:00"
    )


def bound(stated: Fact, sequence: int) -> Bound:
    """A fact as a plan binds it, with id and digest worked out independently."""
    session, key, place, kind, body, time, version = stated
    identity = hashlib.sha256(f"{GROUP}\n{session}\n{sequence}".encode()).hexdigest()[:32]
    digest = hashlib.sha256(f"{kind}\0{body}".encode()).hexdigest()
    return (session, GROUP, sequence, kind, body, identity, time, key, place, digest, version)


def stood(spark: SparkSession, facts: list[Fact], fed: list[Bound]) -> DataFrame:
    """Facts held against what was fed."""
    return classify_facts(facts_of(spark, facts), spark.createDataFrame(fed, PLAN))


def settings(sink: Path) -> dict[str, str]:
    """What the recording data source is told: the folder stands where the namespace would."""
    return {"LOCKSTEP_REGIONS": "east", "ServiceBus_east": str(sink), "Cosmos": str(sink)}


@dataclass(frozen=True, slots=True)
class Bank:
    """Feeds of bookings by one manifest, with everything of theirs in a folder."""

    spark: SparkSession
    folder: Path
    # Settings of the account that has the steps of the manifest, and what its path begins with.
    account: dict[str, str] = field(default_factory=dict)
    before: str = ""

    @property
    def manifest(self) -> Manifest:
        """The manifest, as another feed has it."""
        return Manifest(self.spark, f"{self.before}{self.folder / 'manifest'}", self.told)

    @property
    def told(self) -> dict[str, str]:
        return settings(self.folder / "sent") | self.account

    @property
    def history(self) -> ManifestHistory:
        return self.manifest.read_history()

    def source(self, lines: list[str], mark: str | None = None) -> SourceFacts:
        """These lines as the job reads them; a new file each time, as a job is a new process."""
        file = self.folder / f"booked-{len(list(self.folder.glob('booked-*')))}.csv"
        file.write_text("\n".join(["account,line,amount,seen", *lines]) + "\n")
        mapping = SourceMapping.parse(MARKED)
        table = filter_since(read_table(self.spark, str(file), mapping), mapping, mark)
        return extract_facts(table, mapping)

    def feed(
        self,
        lines: list[str] | SourceFacts,
        writer: type[EventWriter] = EventWriter,
        lanes: int | None = None,
        **options: Any,
    ) -> SendResult:
        """Feed lines, or facts, with a feed of their own."""
        manifest, rejects = self.manifest, str(self.folder / "rejects")
        job = IncrementalFeed(
            manifest,
            FeedConfig(GROUP, manifest.path, "booked", rejects, **options),
            writer(settings=self.told, source=RecordingDataSource, lanes=lanes),
            JobConsole("feed", is_quiet=True),
        )
        facts = self.source(lines) if isinstance(lines, list) else lines
        return job.run(facts, account_for_rows(facts, rejects))

    def sent(self) -> list[tuple[str, int, str]]:
        """What has been sent since the last look, in the order of sessions and numbers."""
        found = [(m["session"], m["sequence"], m["body"]) for m in recorded(self.folder / "sent")]
        for file in (self.folder / "sent").glob("*.jsonl"):
            file.unlink()
        return sorted(found)


@contextmanager
def counted_passes(context: SparkContext, name: str) -> Iterator[list[int]]:
    """At the end, the jobs and the shuffles of what was done: Spark numbers each that it plans."""
    java, passes = context._jsc.sc(), list[int]()
    context.setJobGroup(name, name)
    before = java.newShuffleId()
    yield passes
    jobs = context.statusTracker().getJobIdsForGroup(name)
    passes += [len(jobs), java.newShuffleId() - before - 1]


def assert_same_table(found: DataFrame, expected: DataFrame) -> None:
    """Equal columns, types and rows, in whatever order the rows come."""
    assert [(f.name, f.dataType) for f in found.schema] == [
        (f.name, f.dataType) for f in expected.schema
    ]
    assert sorted(found.collect(), key=repr) == sorted(expected.collect(), key=repr)
