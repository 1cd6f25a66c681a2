"""A write with speculation whose first task is slow: `python -m tests.spark.racing_feed FOLDER`.

The slow attempt stops in the middle of its operations until Spark has started a copy of the task
and both are sending, and stops again until the job is committed. Only then, a zombie, it sends the
rest. What happens is noted as files in the folder. Connections come from the environment.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from local.testing.patience import Patience, PatienceExhausted
from shared.domain.message import Message
from spark.feeding.numbering import number_facts
from spark.job.runtime import LOG_SETTINGS
from spark.schemas import FACTS
from spark.send.datasource import EventWriter, LockstepDataSource, OpenSender, open_sender
from spark.send.rows import SendCounts, SendMessages
from tests.spark.two_machines import two_machines

FACTS_FILE, COUNTS_FILE = "facts.json", "counts.json"
COPY_SENDS, COMMITTED, ZOMBIE_ENDED = "copy-sends", "committed", "zombie-ended"
GROUP = "racing"
BATCH = 4
# The slow attempt's operations before it waits for its copy, and those before the commit.
BEFORE_THE_COPY, BEFORE_THE_COMMIT = 2, 4
WAIT_SECONDS_MAX = 90.0
POLL_SECONDS = 0.05
QUIET = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    # A copy that has lost the race is otherwise ended after two seconds.
    "spark.python.task.killTimeout": f"{WAIT_SECONDS_MAX:.0f}s",
    # As many tasks send: two at once, and one that is done before the slow one.
    "spark.default.parallelism": "3",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": QUIET,
    "spark.executor.extraJavaOptions": QUIET,
}


@dataclass(frozen=True, slots=True)
class Track:
    """The race's notes, in a folder that every process sees."""

    folder: Path

    def note(self, event: str, text: str = "") -> None:
        (self.folder / event).write_text(text)

    def happened(self, event: str) -> bool:
        return (self.folder / event).exists()

    async def until(self, event: str) -> None:
        """Wait for it; raises PatienceExhausted when it does not come."""
        patience = Patience(WAIT_SECONDS_MAX)
        while not self.happened(event):
            if patience.is_over():
                raise PatienceExhausted(f"{event} did not come")
            await asyncio.sleep(POLL_SECONDS)


@dataclass(slots=True)
class Runner:
    """One attempt's sends: the first attempt of the first task is the slow one."""

    track: Track
    send: SendMessages
    operations: int = 0
    as_zombie: int = 0

    async def slowly(self, messages: Sequence[Message]) -> SendCounts:
        """SendMessages, but wait for the copy, and later for the end of the job."""
        self.operations += 1
        if self.operations > BEFORE_THE_COPY:
            await self.track.until(COPY_SENDS)
        if self.operations > BEFORE_THE_COMMIT:
            await self.track.until(COMMITTED)
            self.as_zombie += len(messages)
        return await self.send(messages)

    async def as_copy(self, messages: Sequence[Message]) -> SendCounts:
        answer = await self.send(messages)
        self.track.note(COPY_SENDS)
        return answer


def racing(track: Track) -> OpenSender:
    """The product's producer, on a track."""

    @asynccontextmanager
    async def opened(settings: Mapping[str, str]) -> AsyncIterator[SendMessages]:
        context = TaskContext.get()
        assert context is not None
        async with open_sender(settings) as send:
            runner = Runner(track, send)
            if context.partitionId():
                yield send
            elif context.attemptNumber():
                yield runner.as_copy
            else:
                yield runner.slowly
                track.note(ZOMBIE_ENDED, str(runner.as_zombie))

    return opened


def main() -> None:
    folder = Path(sys.argv[1])
    track = Track(folder)

    class RacingDataSource(LockstepDataSource):
        open_sender = staticmethod(racing(track))

    facts = [tuple(fact) for fact in json.loads((folder / FACTS_FILE).read_text())]
    with two_machines(folder / "work", SETTINGS) as spark:
        events = number_facts(spark.createDataFrame(facts, FACTS), GROUP)
        counts = EventWriter(batch=BATCH, source=RacingDataSource, lanes=2).send(events, 0)
        track.note(COUNTS_FILE, str(counts.sent))
        track.note(COMMITTED)
        asyncio.run(track.until(ZOMBIE_ENDED))


if __name__ == "__main__":
    main()
