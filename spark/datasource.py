"""`df.write.format("lockstep")`: the executors send events through the product's producer.

Promised: a retried task sends the same ids, numbers and bytes, so it adds no effect; a session's
order is kept, if each session's rows come whole and in order in one partition, as `numbering.py`
leaves them. Not promised: that a failed write sent nothing. What was sent stays sent, and running
the job again completes it. A stream is written alike, batch by batch; see LockstepStreamWriter.
"""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from shared.domain.errors import LockstepError
from shared.settings import Settings
from spark.options import OptionRefused, WriteOptions
from spark.pace import Pace
from spark.patience import Patience
from spark.progress import Progress
from spark.schemas import EVENTS
from spark.sending import Counts, Manner, Send, send_rows

# Messages are many small objects and none is part of a cycle: looking for cycles as often as Python
# does by itself takes a tenth of a task's time.
OBJECTS_BETWEEN_COLLECTIONS = 50_000

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
    """Writes events (schemas.EVENTS), in batch or as a stream; append only. Options: options.py."""

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

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """As `writer`, before a stream begins."""
        if overwrite:
            raise OptionRefused("what was sent cannot be overwritten; use outputMode('append')")
        require_schema(schema)
        return LockstepStreamWriter(WriteOptions.read(self.options), self.open_send)


@dataclass(frozen=True)
class Partition:
    """Sends one partition in a task of its own."""

    options: WriteOptions
    open_send: OpenSend

    def write(self, iterator: Iterator[Row]) -> PartitionSent:
        """Send one partition; raises what the producer raises, so that Spark tries again."""
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        progress = Progress(TaskContext.get(), self.options.progress)
        try:
            counts = asyncio.run(self.send(iterator, progress))
        except LockstepError as error:
            progress.say(f"{type(error).__name__}: {error}")
            raise
        progress.end(counts)
        return PartitionSent(counts)

    async def send(self, rows: Iterator[Row], progress: Progress) -> Counts:
        """Send the rows at this task's share of the rate."""
        async with self.open_send(self.options.settings) as send:
            return await send_rows(rows, send, self.manner, progress)

    @property
    def manner(self) -> Manner:
        """How this task sends."""
        told = self.options
        pace, patience = Pace(told.rate_of_a_task), Patience(told.patience)
        return Manner(told.batch, pace, told.owner_level, told.gaps, patience)

    def sum_up(self, messages: list[WriterCommitMessage | None], **beside: int) -> None:
        """Write the sum of all tasks to the summary file, where one was asked for."""
        parts = [message.counts for message in messages if isinstance(message, PartitionSent)]
        if self.options.summary is not None:
            told = beside | asdict(sum(parts, Counts()))
            Path(self.options.summary).write_text(json.dumps(told))


class LockstepWriter(Partition, DataSourceWriter):
    """Sends each partition; the driver sums up."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Sum up. Nothing is sent here, so a driver that dies before it has lost nothing."""
        self.sum_up(messages)


class LockstepStreamWriter(Partition, DataSourceStreamWriter):
    """Sends each partition of each micro-batch, sorted by session and number.

    A restart from the checkpoint sends the last batch again: same ids, numbers and bytes. Write it
    repartitioned by session. A task holds its part of a micro-batch in memory to sort it.
    """

    def write(self, iterator: Iterator[Row]) -> PartitionSent:
        """Sort and send one partition."""
        return super().write(iter(sorted(iterator, key=sort_key)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Sum up the batch. Nothing is sent here."""
        self.sum_up(messages, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was sent stays sent; the batch will be sent again."""


def sort_key(row: Row) -> tuple[str, str, int]:
    """Where a row of a stream belongs; a null sorts first, to be refused by name as it is sent."""
    sequence = row["sequence"]
    return (row["session"] or "", row["group"] or "", -1 if sequence is None else sequence)


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
