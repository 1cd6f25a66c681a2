"""A data source that records in a file what the product's would send, and fails when told to."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from shared.domain.errors import OutcomeUnknown
from shared.domain.message import Message
from spark.send.datasource import LockstepDataSource
from spark.send.rows import SendCounts, SendMessages, get_number

POINTS = ("opening", "before", "within", "unanswered", "closing")
OPENING, BEFORE, WITHIN, UNANSWERED, CLOSING = POINTS


def attempt() -> int:
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
        "sequence": get_number(message).sequence,
        "type": message.type,
        "body": message.body.decode(),
        "time": message.time,
    }
    with (folder / f"{context.partitionId()}-{attempt()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


@asynccontextmanager
async def recording(settings: Mapping[str, str]) -> AsyncIterator[SendMessages]:
    """Records into the folder that stands where the namespace would be.

    So many tries are lost as the queue's name says, at the point that the output queue's name says.
    """
    folder = Path(settings["ServiceBus_east"])
    is_lost = attempt() < int(settings.get("LOCKSTEP_QUEUE", "0"))
    point = settings.get("LOCKSTEP_OUTPUT_QUEUE", WITHIN) if is_lost else None
    fail_at(OPENING, point)

    async def send(messages: Sequence[Message]) -> SendCounts:
        fail_at(BEFORE, point)
        for message in messages:
            record(folder, message)
            if get_number(message).sequence == 2:
                fail_at(WITHIN, point)
        fail_at(UNANSWERED, point)
        return SendCounts(len(messages), pending=1)

    yield send
    fail_at(CLOSING, point)


def fail_at(here: str, point: str | None) -> None:
    if here == point:
        raise OutcomeUnknown("both regions are out of reach")


class RecordingDataSource(LockstepDataSource):
    """The product's data source but for its last step."""

    open_sender = staticmethod(recording)

    @classmethod
    def name(cls) -> str:
        return "lockstep_recording"


def recorded(
    folder: Path, attempt: int | str = "*", partition: int | str = "*"
) -> list[dict[str, Any]]:
    """What one attempt, or one partition, or all of them sent; each partition in its order."""
    files = sorted(folder.glob(f"{partition}-{attempt}.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
