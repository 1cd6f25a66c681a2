"""Events out: a DataFrame through the data source, and the sum of what its tasks did."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame

from spark.datasource import LockstepDataSource
from spark.numbering import in_event_order, in_runs
from spark.options import ROWS_MAX_DEFAULT
from spark.sending import Counts


@dataclass(frozen=True, slots=True)
class Load:
    """How events are sent: at a rate, as they happened, or in bulk, as fast as they go.

    `gaps` is for a part of what was sent before. Connections come from `settings`, over the
    environment that Spark's JVM was started in; there they stay out of Spark's plans and pages.
    `progress` is where the tasks tell how far they are.
    """

    rate: float | None = None
    batch: int = ROWS_MAX_DEFAULT
    gaps: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    source: type[LockstepDataSource] = LockstepDataSource
    progress: str | None = None

    def send(self, rows: DataFrame) -> Counts:
        """Send events from the executors; the counts are the sum over all partitions."""
        spark = rows.sparkSession
        lanes = spark.sparkContext.defaultParallelism
        spark.dataSource.register(self.source)
        ordered = in_event_order(rows, lanes) if self.rate else in_runs(rows, lanes)
        with TemporaryDirectory(prefix="lockstep-feed-") as folder:
            summary = Path(folder, "counts.json")
            writer = ordered.write.format(self.source.name()).mode("append")
            writer = writer.options(**self.settings).options(
                batch=self.batch, summary=str(summary), gaps="allow" if self.gaps else "refuse"
            )
            if self.progress:
                writer = writer.options(progress=self.progress)
            if self.rate:
                writer = writer.options(rate=self.rate, partitions=lanes)
            writer.save()
            return Counts(**json.loads(summary.read_text()))
