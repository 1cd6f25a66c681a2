"""Send a stream whose progress says what was sent: `observe_sending(events)`.

A data source that is written in Python has no metrics in a query's progress. What is observed has:
so the events are sent by a transform, whose rows are what each task has sent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType

from spark.schemas import EVENTS, LONG, build_schema
from spark.send.datasource import LockstepDataSource

if TYPE_CHECKING:
    from pyarrow import RecordBatch

COUNTS = build_schema(sent=LONG, pending=LONG, repeated=LONG, busy_seconds=DoubleType())


def observe_sending(
    events: DataFrame,
    name: str = "lockstep",
    source: type[LockstepDataSource] | None = None,
    **options: str,
) -> DataFrame:
    """Send events (schemas.EVENTS) whenever the result is evaluated: one row of counts a task.

    Write it once, to the format `noop`. `observedMetrics` of each progress of the query has under
    `name` the sums of SendCounts. The events are sent as `writeStream.format("lockstep")` sends
    them, with the same options, but for `summary`; that a session was cut across tasks is not
    noticed. `source` is what with_settings returns, if the app settings are not in the environment.
    The driver needs pandas, as Spark asks for it. Raises SchemaRefused, OptionRefused or
    InvalidSettings.
    """
    source = source or LockstepDataSource
    writer = source(options).streamWriter(events.schema, overwrite=False)
    make_row = Row(*EVENTS.names)
    ordered = events.select(*EVENTS.names)

    def send(batches: "Iterable[RecordBatch]") -> "Iterator[RecordBatch]":
        from pyarrow import RecordBatch

        columns = ([column.to_pylist() for column in batch.columns] for batch in batches)
        rows = (make_row(*values) for lists in columns for values in zip(*lists, strict=True))
        yield RecordBatch.from_pylist([asdict(writer.write(rows).counts)])

    sums = [F.sum(column).alias(column) for column in COUNTS.names]
    return ordered.mapInArrow(send, COUNTS).observe(name, *sums)
