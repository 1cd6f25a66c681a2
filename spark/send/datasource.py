"""`df.write.format("lockstep")`: the executors send events through the product's producer.

Promised: a retried task sends the same ids, numbers and bytes, so it adds no effect. A session's
order is kept if all its rows are in one partition and in order, as `arranging.py` arranges them.
Not promised: that a failed write has sent nothing. What was sent stays sent, and running the job
again completes it. A stream is written in the same way, batch by batch; see LockstepStreamWriter.
"""

import asyncio
import gc
import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from shared.domain.errors import LockstepError
from shared.domain.message import Message
from shared.settings import Settings
from spark.job.failures import JobRefused
from spark.job.progress import TaskEnds, TaskProgress, TaskReports, gather_ends
from spark.job.runtime import has_driver
from spark.job.settings import OptionRefused, read_app_settings, with_settings
from spark.schemas import EVENTS
from spark.send.arranging import arrange_in_event_order, arrange_in_runs
from spark.send.gathering import GatheringBus
from spark.send.lanes import SentLanes
from spark.send.options import ROWS_MAX_DEFAULT, WriteOptions
from spark.send.rows import (
    BrokenSequence,
    RateLimiter,
    SendCounts,
    SendMessages,
    SendPolicy,
    SendRetry,
    SequenceCheck,
    send_rows,
)

# By default: so many events fill a partition, of which there are so many at most. Each has one
# connection to a namespace, and what a feed has left after a crash is left lane by lane.
EVENTS_A_LANE, LANES_MAX = 5_000, 16

# Messages are many small objects, and none is part of a cycle: looking for cycles as often as
# Python does by default takes a tenth of a task's time.
OBJECTS_BETWEEN_COLLECTIONS = 50_000

# The driver compares the sessions of the tasks up to so many a task: eight megabytes from each.
SESSIONS_COMPARED_MAX = 1_000_000
DIGEST_BYTES = 8

# How long a region is waited for once another has everything. Each copy that is not waited for
# costs a write to Cosmos DB, so a busy namespace (gathering.BUSY_SECONDS_MAX) gets its time.
PATIENCE_SECONDS = 30.0

type OpenSender = Callable[[Mapping[str, str]], AbstractAsyncContextManager[SendMessages]]


class SchemaRefused(ValueError):
    """The table to be written is not a table of events."""


@dataclass(frozen=True, slots=True)
class PartitionSent(WriterCommitMessage):
    """A task's report of what it sent. `sessions` has eight bytes of a digest for each session.

    It is empty for a task with more than SESSIONS_COMPARED_MAX of them.
    """

    counts: SendCounts
    sessions: bytes = b""


@asynccontextmanager
async def open_sender(settings: Mapping[str, str]) -> AsyncIterator[SendMessages]:
    """Send through the product's producer, which is open inside the `with`.

    Sends of several sessions share batches (gathering.py), and each message is encoded once for all
    regions (encoded_bus.py).
    """
    from shared.wiring import Adapters, open_producer
    from spark.send.encoded_bus import EncodedBus

    chosen = Settings.read(settings)
    adapters = Adapters.of(chosen)
    encoding = EncodedBus.of(chosen.service_bus)
    bus = GatheringBus(encoding)
    delivery = replace(adapters.delivery, bus=bus, patience_seconds=PATIENCE_SECONDS)
    adapters = replace(adapters, bus=encoding, delivery=delivery)
    async with open_producer(chosen, adapters) as producer:

        async def send(messages: Sequence[Message]) -> SendCounts:
            published = await producer.send(messages)
            busy_seconds, bus.busy_seconds = bus.busy_seconds, 0.0
            return SendCounts(published.sent, published.pending, busy_seconds=busy_seconds)

        try:
            yield send
        finally:
            await bus.close()


class LockstepDataSource(DataSource):
    """Writes events (schemas.EVENTS), in batch or as a stream; append only. Options: options.py.

    App settings that are no options are in `settings` (with_settings), or else in the
    environment in which Spark was started. `ends` is for a driver that asks which tasks have ended.
    """

    settings: Mapping[str, str] = MappingProxyType({})
    ends: Accumulator[TaskEnds] | None = None
    open_sender: OpenSender = staticmethod(open_sender)

    @classmethod
    def name(cls) -> str:
        return "lockstep"

    def schema(self) -> StructType:
        """Refuse to read, by OptionRefused."""
        raise OptionRefused(
            'nothing can be read of what was sent; spark.read.format("lockstep.journal") reads the '
            "journal"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Check before a task starts; raises SchemaRefused, OptionRefused or InvalidSettings."""
        options = self.check("mode", schema, overwrite)
        return LockstepWriter(options, self.open_sender, self.ends)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LockstepStreamWriter":  # noqa: N802
        return LockstepStreamWriter(self.check("outputMode", schema, overwrite), self.open_sender)

    def check(self, mode: str, schema: StructType, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise OptionRefused(f"what was sent cannot be overwritten; use {mode}('append')")
        # Spark itself gives a stream one.
        if mode == "mode" and "path" in self.options:
            raise OptionRefused("events go to the queues of the app settings: save() has no path")
        require_schema(schema)
        return WriteOptions.read(self.options, self.settings)


@dataclass(frozen=True)
class PartitionWriter:
    options: WriteOptions
    open_sender: OpenSender
    ends: Accumulator[TaskEnds] | None = None

    def write(self, iterator: Iterator[Row]) -> PartitionSent:
        """Send one partition; raises what the producer raises, so that Spark tries again."""
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        context = TaskContext.get()
        self.options.require_counted(0 if context is None else context.partitionId())
        progress = TaskProgress(context, self.options.progress)
        check = SequenceCheck(self.options.gaps)
        try:
            counts = asyncio.run(self.send(iterator, progress, check))
        except LockstepError as error:
            progress.log(f"{type(error).__name__}: {error}")
            raise
        progress.finish(counts.sent, self.ends)
        if self.options.lanes is not None:
            SentLanes.parse(self.options.lanes, self.options.settings).record(
                progress.partition, counts
            )
        return PartitionSent(counts, digest_sessions(check.last))

    async def send(
        self, rows: Iterator[Row], progress: TaskProgress, check: SequenceCheck
    ) -> SendCounts:
        options = self.options
        rate, retry = RateLimiter(options.rate_per_task), SendRetry(options.patience)
        policy = SendPolicy(options.batch, rate, options.owner_level, options.gaps, retry)
        async with self.open_sender(options.settings) as send:
            return await send_rows(rows, send, policy, progress, check)

    def write_summary(self, messages: list[WriterCommitMessage | None], **beside: int) -> None:
        found = [message for message in messages if isinstance(message, PartitionSent)]
        require_whole_sessions(found)
        parts = [message.counts for message in found]
        if self.options.summary is not None:
            document = beside | asdict(sum(parts, SendCounts()))
            Path(self.options.summary).write_text(json.dumps(document))


class LockstepWriter(PartitionWriter, DataSourceWriter):
    """Sends each partition; the driver adds up the counts."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add up. Nothing is sent here, so nothing is lost if the driver dies before it.

        Raises BrokenSequence if a session was in two partitions.
        """
        self.write_summary(messages)


class LockstepStreamWriter(PartitionWriter, DataSourceStreamWriter):
    """Sends each partition of each micro-batch, sorted by session and number.

    A restart from the checkpoint sends the last batch again, with the same ids, numbers and bytes.
    The stream must be repartitioned by session. A task holds its part of a micro-batch in memory
    to sort it.
    """

    def write(self, iterator: Iterator[Row]) -> PartitionSent:
        return super().write(iter(sorted(iterator, key=make_sort_key)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.write_summary(messages, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: what was sent stays sent, and the batch will be sent again."""


def digest_sessions(sessions: Collection[tuple[str, str]]) -> bytes:
    if len(sessions) > SESSIONS_COMPARED_MAX:
        return b""
    digests = (sha256("\n".join(each).encode()).digest() for each in sessions)
    return b"".join(digest[:DIGEST_BYTES] for digest in digests)


def require_whole_sessions(parts: Iterable[PartitionSent]) -> None:
    """Raise BrokenSequence if tasks have sent parts of one session.

    A task sees only its own partition, so this is known when all has been sent.
    """
    seen: set[bytes] = set()
    for part in parts:
        starts = range(0, len(part.sessions), DIGEST_BYTES)
        found = {part.sessions[start : start + DIGEST_BYTES] for start in starts}
        if cut := seen & found:
            raise BrokenSequence(
                f"{len(cut)} sessions are in more than one partition, so their parts overtook each "
                "other; what was sent stays sent, and the journal puts it in order. Write the "
                "table repartitioned by session and sorted by sequence within partitions"
            )
        seen |= found


def make_sort_key(row: Row) -> tuple[str, str, int]:
    """A row's place in its part of a stream. A null sorts first; sending refuses it by name."""
    sequence = row["sequence"]
    return (row["session"] or "", row["group"] or "", -1 if sequence is None else sequence)


def require_schema(schema: StructType) -> None:
    """Raise SchemaRefused naming every column that is missing, has another type, or is unknown."""
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


def require_all_sent(events: int, counts: SendCounts) -> None:
    """Raise JobRefused unless the tasks have sent just as many events as they were to send."""
    if counts.sent != events:
        raise JobRefused(
            f"{events} events were to be sent, but the tasks have read and sent {counts.sent}. "
            "What was sent stays sent, and nothing is recorded as sent: make sure that every "
            "machine reads what any of them has written, then run it again"
        )


@dataclass(frozen=True, slots=True)
class EventWriter:
    """Sends a table of events from the executors: at a rate and in event order, or in bulk.

    `gaps` is for a part of what was sent before. `settings` are connections, over those that are
    in the environment when it sends; Spark gets neither as options. `lanes` is how many partitions
    send, each with connections of its own; by default it follows from the number of events, see
    choose_lanes. `reports` hears from the tasks how far they are and that they have ended. With
    `sent` each task records in the account what it has sent, and not in a file on the driver.
    """

    rate: float | None = None
    batch: int = ROWS_MAX_DEFAULT
    gaps: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    source: type[LockstepDataSource] = LockstepDataSource
    reports: TaskReports | None = None
    lanes: int | None = None
    sent: SentLanes | None = None

    def choose_lanes(self, spark: SparkSession, events: int) -> int:
        """Return how many partitions send so many events.

        A rate is divided by the lanes, so all of them must run at the same time.
        """
        if self.lanes is not None:
            return self.lanes
        enough = max(1, min(LANES_MAX, ceil(events / EVENTS_A_LANE)))
        if self.rate:
            at_once = spark.sparkContext.defaultParallelism if has_driver(spark) else 1
            return min(enough, at_once)
        return enough

    def send(self, rows: DataFrame, events: int) -> SendCounts:
        """Send so many events (schemas.EVENTS and more columns); returns all partitions' counts."""
        spark = rows.sparkSession
        partitions = self.choose_lanes(spark, events)
        source = self.name_source()
        if has_driver(spark):
            source.ends = gather_ends(spark.sparkContext)
        spark.dataSource.register(source)
        arrange = arrange_in_event_order if self.rate else arrange_in_runs
        with TemporaryDirectory(prefix="lockstep-feed-") as folder:
            summary = Path(folder, "counts.json")
            gaps = "allow" if self.gaps else "refuse"
            writer = arrange(rows, partitions).write.format(source.name()).mode("append")
            writer = writer.options(batch=self.batch, gaps=gaps)
            if self.sent is None:
                writer = writer.options(summary=str(summary))
            else:
                writer = writer.options(lanes=self.sent.option)
            if self.reports:
                writer = writer.options(progress=self.reports.address)
            if self.rate:
                writer = writer.options(rate=self.rate, partitions=partitions)
            writer.save()
            if self.sent is not None:
                return self.sent.count()
            return SendCounts(**json.loads(summary.read_text()))

    def name_source(self) -> type[LockstepDataSource]:
        """The data source, under a name of its own for each choice of settings.

        Two feeds of one application may register theirs at the same time, and with a name in common
        one would send with the connections of the other.
        """
        settings = json.dumps(sorted(read_app_settings(self.settings).items()))
        name = f"{self.source.name()}.{sha256(settings.encode()).hexdigest()[:8]}"
        return with_settings(self.source, self.settings, name=name)
