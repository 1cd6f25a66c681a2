"""What a job has fed, kept beside the job: any folder that Spark can write, on disk or in a lake.

A run is bound in three steps, each of which stands or is not there at all: the plan's files, the
step `planned`, and, once everything was sent, the step `sent`. A crash before `planned` leaves
files that nobody reads; a crash after it leaves a plan that the next run sends first, byte for
byte. So a number is bound to its content before the content is first sent.

Two feeds at once do no harm, with no lock to be left behind. Each writes a plan of its own, and
only one of them gets the name of the step `planned`: the other is refused before it has sent
anything. A feed that begins while another is sending sends that one's plan too, the same ids,
numbers and bytes, before its own goes on from there.

A manifest grows with what was fed, and only its columns `session`, `key`, `place`, `digest` and
`sequence` are read to plan the next run.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from secrets import token_hex

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark.exclusive import Files
from spark.schemas import PLAN

PLANNED, SENT = "planned", "sent"
WHOSE = (StructField("run", IntegerType()), StructField("feed", StringType()))
STEPS = StructType(
    [
        *WHOSE,
        StructField("step", StringType()),
        StructField("events", LongType()),
        StructField("watermark", StringType()),
        StructField("since", StringType()),
    ]
)
NOTHING_THERE = "PATH_NOT_FOUND"


class ManifestRefused(Exception):
    """The manifest holds something that is not a feed's, or another feed came first."""


@dataclass(frozen=True, slots=True)
class Step:
    """A run's plan was bound by a feed, or all of it was sent; `since` when, for people to read."""

    run: int
    feed: str
    step: str
    events: int
    watermark: str | None
    since: str


@dataclass(frozen=True, slots=True)
class History:
    """The steps that were taken, the oldest run first."""

    steps: Sequence[Step] = ()

    @property
    def newest(self) -> int:
        """The number of the newest bound run; 0 before the first."""
        return max((step.run for step in self.steps), default=0)

    @property
    def bound(self) -> list[str]:
        """Every bound run, with the feed whose plan of it counts."""
        return [f"{step.run}/{step.feed}" for step in self.steps if step.step == PLANNED]

    @property
    def unsent(self) -> list[Step]:
        """The runs that were bound and not sent, the oldest first."""
        sent = {step.run for step in self.steps if step.step == SENT}
        return [step for step in self.steps if step.step == PLANNED and step.run not in sent]

    @property
    def watermark(self) -> str | None:
        """How far runs that were sent have read their source; None before the first."""
        marks = (step.watermark for step in reversed(self.steps) if step.step == SENT)
        return next((mark for mark in marks if mark is not None), None)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest at a path (a folder, or a URL that Spark can write), as one feed uses it."""

    spark: SparkSession
    path: str
    token: str = field(default_factory=lambda: token_hex(4))

    @property
    def feed(self) -> str:
        """What this feed is called in the manifest: Spark's name of the application, and a token.

        An application may run two feeds, and two machines may name theirs alike.
        """
        return f"{self.spark.sparkContext.applicationId}-{self.token}"

    def history(self) -> History:
        """Every step that was taken until now."""
        rows = self.read("steps", "json", STEPS).collect()
        if any(row["feed"] is None for row in rows):
            raise ManifestRefused(f"{self.path} says of a run, but not whose it is; take a new one")
        steps = [Step(*(row[name] for name in STEPS.names)) for row in rows]
        return History(sorted(steps, key=lambda step: (step.run, step.step)))

    def fed(self, group: str, history: History) -> DataFrame:
        """All that a group was bound to by then (schemas.PLAN)."""
        written = self.read("plan", "parquet", StructType([*PLAN.fields, *WHOSE]))
        is_bound = F.concat_ws("/", "run", "feed").isin(history.bound)
        return written.where(is_bound & (F.col("group") == group)).select(*PLAN.names)

    def plan_of(self, step: Step) -> DataFrame:
        """What one run is bound to (schemas.PLAN)."""
        return self.spark.read.schema(PLAN).parquet(self.plan(step.run, step.feed))

    def bind(self, run: int, plan: DataFrame, watermark: str | None) -> Step:
        """Bind a run to its plan; it is to be sent next.

        Raises ManifestRefused when another feed has bound the run since the history was read.
        """
        place = self.plan(run, self.feed)
        plan.write.parquet(place, mode="overwrite")
        count = self.spark.read.schema(PLAN).parquet(place).count()
        planned = Step(run, self.feed, PLANNED, count, watermark, now())
        if not self.take(planned):
            self.require_own(run)
        return planned

    def require_own(self, run: int) -> None:
        """Raise ManifestRefused when another feed has bound a run; our own answer may be lost."""
        steps = self.history().steps
        first = next((s for s in steps if (s.run, s.step) == (run, PLANNED)), None)
        if first is None:
            raise ManifestRefused(f"{self.path}: the step of run {run} cannot be read")
        if first.feed != self.feed:
            raise ManifestRefused(
                f"{self.path} is in use: the feed {first.feed} has bound run {run} at "
                f"{first.since}, after this one had read it; its own plan was not sent, run again"
            )

    def settle(self, planned: Step) -> None:
        """Note that all of a run was sent; another feed may have noted it already."""
        self.take(replace(planned, step=SENT, since=now()))

    def take(self, step: Step) -> bool:
        """Write a step: one file of one line, there whole or not at all; False if it was taken."""
        said = {name: value for name, value in asdict(step).items() if value is not None}
        name = f"{self.path}/steps/run={step.run}/step={step.step}/step.json"
        return Files(self.spark).create(name, json.dumps(said) + "\n")

    def plan(self, run: int, feed: str) -> str:
        """Where a feed keeps its plan of a run."""
        return f"{self.path}/plan/run={run}/feed={feed}"

    def require(self) -> None:
        """Raise FilesRefused when the file system cannot keep two feeds apart."""
        Files(self.spark).require(self.path)

    def read(self, table: str, form: str, schema: StructType) -> DataFrame:
        """A table of the manifest; empty where nothing was written yet."""
        try:
            return self.spark.read.format(form).schema(schema).load(f"{self.path}/{table}")
        except AnalysisException as error:
            if error.getCondition() != NOTHING_THERE:
                raise ManifestRefused(
                    f"{self.path} is no manifest: {error.getCondition()}"
                ) from None
        # Rows from Python, even none, would start a Python worker to hand them over.
        nothing = (F.lit(None).cast(each.dataType).alias(each.name) for each in schema)
        return self.spark.range(0).select(*nothing)


def now() -> str:
    """The driver's time, for people to read; nothing is decided by it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
