"""What a job has fed, kept beside the job: any folder that Spark can write, on disk or in a lake.

A run is bound in three steps, each of which stands or is not there at all: the plan's files, the
step `planned`, and, once everything was sent, the step `sent`. A crash before `planned` leaves
files that nobody reads and the next run replaces; a crash after it leaves a plan that the next run
sends first, byte for byte. So a number is bound to its content before the content is first sent.

One feed at a time may use a manifest. It grows with what was fed, and only its columns `session`,
`key`, `place`, `digest` and `sequence` are read to plan the next run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark.schemas import PLAN

RUN = StructField("run", IntegerType())
PLANNED, SENT = "planned", "sent"
STEPS = StructType(
    [
        StructField("events", LongType()),
        StructField("watermark", StringType()),
        RUN,
        StructField("step", StringType()),
    ]
)
NOTHING_THERE = "PATH_NOT_FOUND"


class ManifestRefused(Exception):
    """The manifest holds something that is not a feed's."""


@dataclass(frozen=True, slots=True)
class Step:
    """A run's plan was bound, or all of it was sent."""

    run: int
    step: str
    events: int
    watermark: str | None


@dataclass(frozen=True, slots=True)
class History:
    """The steps that were taken, the oldest run first."""

    steps: Sequence[Step] = ()

    @property
    def newest(self) -> int:
        """The number of the newest bound run; 0 before the first."""
        return max((step.run for step in self.steps), default=0)

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
    """The manifest at a path (a folder, or a URL that Spark can write)."""

    spark: SparkSession
    path: str

    def history(self) -> History:
        """Every step that was taken until now."""
        rows = self.read("steps", "json", STEPS).collect()
        steps = [Step(row["run"], row["step"], row["events"], row["watermark"]) for row in rows]
        return History(sorted(steps, key=lambda step: (step.run, step.step)))

    def fed(self, group: str, history: History) -> DataFrame:
        """All that a group was bound to by then (schemas.PLAN)."""
        bound = self.read("plan", "parquet", StructType([*PLAN.fields, RUN]))
        is_bound = (F.col("run") <= history.newest) & (F.col("group") == group)
        return bound.where(is_bound).select(*PLAN.names)

    def plan_of(self, run: int) -> DataFrame:
        """What one run is bound to (schemas.PLAN)."""
        return self.spark.read.schema(PLAN).parquet(f"{self.path}/plan/run={run}")

    def bind(self, run: int, plan: DataFrame, watermark: str | None) -> Step:
        """Bind a run to its plan; it is to be sent next."""
        plan.write.parquet(f"{self.path}/plan/run={run}", mode="overwrite")
        planned = Step(run, PLANNED, self.plan_of(run).count(), watermark)
        self.take(planned)
        return planned

    def settle(self, planned: Step) -> None:
        """Note that all of a run was sent."""
        self.take(replace(planned, step=SENT))

    def take(self, step: Step) -> None:
        """Write a step: one file of one line, there at once or not at all."""
        line = self.spark.range(1, numPartitions=1).select(
            F.lit(step.events).cast("long").alias("events"), text(step.watermark).alias("watermark")
        )
        line.write.json(f"{self.path}/steps/run={step.run}/step={step.step}", mode="overwrite")

    def read(self, table: str, form: str, schema: StructType) -> DataFrame:
        """A table of the manifest; empty where nothing was written yet."""
        try:
            return self.spark.read.format(form).schema(schema).load(f"{self.path}/{table}")
        except AnalysisException as error:
            if error.getCondition() != NOTHING_THERE:
                raise ManifestRefused(
                    f"{self.path} is no manifest: {error.getCondition()}"
                ) from None
        return self.spark.createDataFrame([], schema)


def text(value: str | None) -> Any:
    """A text literal that may be null."""
    return F.lit(value).cast("string")
