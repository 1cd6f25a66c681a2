"""Two feeds use one manifest at the same time: no number ever says two things."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.manifest import Manifest
from spark.feeding.numbering import number_facts
from spark.job.failures import JobRefused
from spark.job.files import SparkFiles
from spark.read.facts import SourceFacts
from spark.schemas import FACTS, REJECTED_ROWS
from spark.send.datasource import EventWriter
from tests.spark.facts import GROUP, fact
from tests.spark.recording import recorded
from tests.spark.test_feed_by_a_manifest import job, run

pytestmark = pytest.mark.spark


def booked(spark: SparkSession, count: int) -> SourceFacts:
    """So many bookings of three accounts, as a source that was validate_flights."""
    facts = [fact(f"acc-{n % 3}", f"k{n}", f"{n:02}", n) for n in range(count)]
    table = spark.createDataFrame(facts, FACTS)
    rejects = spark.createDataFrame([], REJECTED_ROWS)
    repeated = spark.createDataFrame([], "session string, row string")
    return SourceFacts(table, table, rejects, repeated, F.expr("true"), ())


@pytest.mark.proof
def test_a_feed_that_begins_while_another_sends_goes_on_from_its_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = tmp_path / "sent"
    sink.mkdir()

    class Overtaken(EventWriter):
        """Sends only after another feed has come and gone."""

        def send(self, rows: DataFrame, events: int) -> Any:
            told.append(run(job(spark, tmp_path), booked(spark, 6)))
            return super().send(rows, events)

    told: list[Any] = []
    told.append(run(job(spark, tmp_path, Overtaken), booked(spark, 4)))

    assert [(each.resumed, each.counts.sent) for each in told] == [(4, 6), (0, 4)]
    said = {(m["session"], m["sequence"]): set[str]() for m in recorded(sink)}
    for message in recorded(sink):
        said[message["session"], message["sequence"]].add(message["body"])
    assert said == {(f"acc-{n % 3}", n // 3): {f'{{"amount":{n}}}'} for n in range(6)}
    history = job(spark, tmp_path).manifest.read_history()
    assert (history.newest, history.unsent) == (2, [])


def test_of_two_feeds_that_plan_one_run_the_second_is_refused_by_the_first_s_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second = (Manifest(spark, str(tmp_path / "manifest")) for _ in range(2))
    plans = [
        number_facts(spark.createDataFrame([fact("a", "k", "01", amount)], FACTS), GROUP)
        for amount in (1, 2)
    ]

    bound = first.bind(1, plans[0], None)
    with pytest.raises(JobRefused) as refused:
        second.bind(1, plans[1], None)

    assert f"in use: the feed {first.feed} has bound run 1 at {bound.since}" in str(refused.value)
    assert first.feed != second.feed
    fed = second.read_fed(GROUP, second.read_history()).collect()
    assert [row["body"] for row in fed] == ['{"amount":1}']
    assert first.bind(1, plans[0], None).events == 1, "its own name, asked for twice, is its own"


def test_a_name_is_given_to_one_writer_and_its_file_is_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    files, place = SparkFiles(spark), f"file://{tmp_path}/steps/step.json"

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: files.create(place, f'{{"writer": {n}}}'), range(8)))

    assert won.count(True) == 1
    assert json.loads((tmp_path / "steps/step.json").read_text()) == {"writer": won.index(True)}
    assert [file.name for file in (tmp_path / "steps").iterdir()] == ["step.json"]


def test_a_file_system_that_gives_a_name_twice_is_refused(spark: SparkSession) -> None:
    with pytest.raises(JobRefused, match="viewfs:/steps is on viewfs"):
        OtherFiles(spark, Lake("viewfs")).require_exclusive("viewfs:/steps")
    with pytest.raises(JobRefused, match='No FileSystem for scheme "nowhere"'):
        Manifest(spark, "nowhere://steps").require_exclusive()


def test_in_a_lake_a_name_that_is_taken_refuses_the_rename(spark: SparkSession) -> None:
    files = OtherFiles(spark, Lake("abfss"))
    files.require_exclusive("abfss://lake/steps")

    won = [files.create("abfss://lake/steps/step.json", text) for text in ("first", "second")]

    assert won == [True, False]
    assert files.lake.found == {"abfss://lake/steps/step.json": "first"}


@dataclass(frozen=True, slots=True)
class LakePath:
    """A path as Java has it."""

    place: str

    def getParent(self) -> "LakePath":  # noqa: N802 - Java's name
        return LakePath(self.place.rpartition("/")[0])


@dataclass(slots=True)
class Lake:
    """A file system of Hadoop's, as far as files are created in it; it lets nothing be replaced."""

    scheme: str
    found: dict[str, str] = field(default_factory=dict)
    open: str = ""

    def getUri(self) -> "Lake":  # noqa: N802 - Java's name
        return self

    def getScheme(self) -> str:  # noqa: N802 - Java's name
        return self.scheme

    def mkdirs(self, folder: LakePath) -> None:
        assert folder.place == "abfss://lake/steps"

    def create(self, path: LakePath, overwrite: bool) -> "Lake":
        self.open = path.place
        return self

    def write(self, data: bytes) -> None:
        self.found[self.open] = data.decode()

    def close(self) -> None:
        self.open = ""

    def exists(self, path: LakePath) -> bool:
        """What is there may come between this answer and the rename."""
        return False

    def rename(self, draft: LakePath, target: LakePath) -> bool:
        if target.place in self.found:
            return False
        self.found[target.place] = self.found.pop(draft.place)
        return True

    def delete(self, path: LakePath, deep: bool) -> None:
        self.found.pop(path.place, None)


@dataclass(frozen=True, slots=True)
class OtherFiles(SparkFiles):
    """Files in a lake."""

    lake: Lake

    def parse_path(self, place: str) -> LakePath:
        return LakePath(place)

    def find_system(self, path: Any) -> Lake:
        return self.lake
