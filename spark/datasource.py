"""`df.write.format("lockstep")`: the executors send events through the product's producer.

Promised: a retried task sends the same ids, numbers and bytes, so it adds no effect; a session's
order is kept, if the rows come as `transforms.in_event_order` leaves them. Not promised: that a
failed write sent nothing. What was sent stays sent, and running the job again completes it.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from shared.domain.errors import LockstepError
from shared.settings import Settings
from spark.options import OptionRefused, WriteOptions
from spark.pace import Pace
from spark.schemas import EVENTS
from spark.sending import Counts, Send, send_rows

REPORT_SECONDS = 5.0

type OpenSend = Callable[[Mapping[str, str]], AbstractAsyncContextManager[Send]]


class SchemaRefused(ValueError):
    """The table to be written is not a table of events."""


@dataclass(frozen=True, slots=True)
class PartitionSent(WriterCommitMessage):
    """What one task tells the driver."""

    counts: Counts


@asynccontextmanager
async def through_producer(settings: Mapping[str, str]) -> AsyncIterator[Send]:
    """Send through the product's producer, open while in the context."""
    from shared.wiring import open_producer

    async with open_producer(Settings.read(settings)) as producer:
        yield producer.send


class LockstepDataSource(DataSource):
    """Writes events (schemas.EVENTS) in batch; `mode("append")` only. Options: options.py."""

    open_send: OpenSend = staticmethod(through_producer)

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "lockstep"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Check everything that can be checked before a task starts.

        Raises SchemaRefused, OptionRefused or InvalidSettings.
        """
        if overwrite:
            raise OptionRefused("what was sent cannot be overwritten; use mode('append')")
        require_schema(schema)
        return LockstepWriter(WriteOptions.read(self.options), self.open_send)


@dataclass(frozen=True)
class LockstepWriter(DataSourceWriter):
    """Sends each partition in a task of its own; the driver sums up."""

    options: WriteOptions
    open_send: OpenSend

    def write(self, iterator: Iterator[Row]) -> PartitionSent:
        """Send one partition; raises what the producer raises, so that Spark tries again."""
        progress = Progress(TaskContext.get())
        try:
            return PartitionSent(asyncio.run(self.send(iterator, progress)))
        except LockstepError as error:
            progress.say(f"{type(error).__name__}: {error}")
            raise

    async def send(self, rows: Iterator[Row], progress: "Progress") -> Counts:
        """Send the rows at this task's share of the rate."""
        async with self.open_send(self.options.settings) as send:
            return await send_rows(
                rows,
                send,
                rows_max=self.options.batch,
                pace=Pace(self.options.rate_of_a_task),
                report=progress,
            )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the sum of all tasks to the summary file, where one was asked for."""
        parts = [message.counts for message in messages if isinstance(message, PartitionSent)]
        if self.options.summary is not None:
            Path(self.options.summary).write_text(json.dumps(asdict(sum(parts, Counts()))))


class Progress:
    """Says on stderr, now and then, how far a partition has come."""

    def __init__(self, context: TaskContext | None) -> None:
        self.partition = context.partitionId() if context else 0
        self.attempt = context.attemptNumber() if context else 0
        self.due_at = time.monotonic() + REPORT_SECONDS

    def __call__(self, counts: Counts) -> None:
        """Say it, if the last time is long enough ago."""
        if time.monotonic() >= self.due_at:
            self.due_at = time.monotonic() + REPORT_SECONDS
            self.say(f"{counts.sent} sent")

    def say(self, what: str) -> None:
        """A line about this try of the partition."""
        sys.stderr.write(f"partition {self.partition}, try {self.attempt + 1}: {what}\n")
        sys.stderr.flush()


def require_schema(schema: StructType) -> None:
    """Raise SchemaRefused naming every column that misses, has another type, or is too much."""
    wanted = {field.name: field.dataType for field in EVENTS.fields}
    found = {field.name: field.dataType for field in schema.fields}
    faults = [f"no column {name!r}" for name in wanted if name not in found]
    faults += [
        f"column {name!r} is {found[name].simpleString()}, not {kind.simpleString()}"
        for name, kind in wanted.items()
        if name in found and found[name] != kind
    ]
    faults += [f"unknown column {name!r}" for name in found if name not in wanted]
    if faults:
        raise SchemaRefused(f"not a table of events: {'; '.join(faults)}")
