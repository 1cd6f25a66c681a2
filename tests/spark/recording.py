"""A data source that records in a file what the product's would send, and fails when told to."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from shared.domain.errors import OutcomeUnknown
from shared.domain.message import Message
from spark.datasource import LockstepDataSource
from spark.sending import Send, number_of


@dataclass(frozen=True, slots=True)
class Answer:
    """What the producer would say."""

    sent: int
    owed: int


def attempt() -> int:
    """Which try of its task this is."""
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


def record(folder: Path, message: Message) -> None:
    """Append a message to the file of this partition's attempt."""
    context = TaskContext.get()
    assert context is not None
    line = {
        "id": message.id,
        "session": message.session,
        "sequence": number_of(message).sequence,
        "body": message.body.decode(),
        "time": message.time,
    }
    with (folder / f"{context.partitionId()}-{attempt()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


@asynccontextmanager
async def recording(settings: Mapping[str, str]) -> AsyncIterator[Send]:
    """Records into the folder that stands where the journal's account would be."""
    folder = Path(settings["Cosmos"])
    tries_lost = int(settings["LOCKSTEP_QUEUE"])

    async def send(messages: Sequence[Message]) -> Answer:
        for message in messages:
            record(folder, message)
            if attempt() < tries_lost and number_of(message).sequence == 2:
                raise OutcomeUnknown("both regions are out of reach")
        return Answer(len(messages), owed=1)

    yield send


class RecordingDataSource(LockstepDataSource):
    """The product's data source but for its last step."""

    open_send = staticmethod(recording)

    @classmethod
    def name(cls) -> str:
        return "lockstep_recording"
