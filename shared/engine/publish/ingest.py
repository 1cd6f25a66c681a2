"""Accept single messages; those of one session that arrive meanwhile share the next operation.

An operation costs two writes and a send, one after the other, and a session has one at a time. So
while one is under way, what arrives for the session waits, and the next operation takes all of it.
A message that comes alone waits for nobody.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from shared.domain.errors import CallerError, LockstepError
from shared.domain.message import OWNER_LEVEL_MAX, Message
from shared.domain.producer import HTTP_GROUP, Draft, ProducerOptions
from shared.engine.publish.publish import Producer
from shared.engine.publish.session_locks import SessionLocks

# The highest owner level, so that nobody who sends to the queue can fence what ingest accepts.
PRODUCER = ProducerOptions(HTTP_GROUP, owner_level=OWNER_LEVEL_MAX, is_ingest=True)
# How long an id is remembered.
KEY_SECONDS = 24 * 3600
# Each id has a document of its own in the operation's batch, which holds 100 at most; and what is
# stored until every region has it is one document.
TOGETHER_MAX = 50
TOGETHER_BYTES_MAX = 200_000


@dataclass(eq=False, slots=True)
class Arrival:
    """A draft that somebody waits for."""

    draft: Draft
    result: asyncio.Future[Message]


class Ingest:
    """Publishes what comes by HTTP; the id of each draft is remembered for a day."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.locks = SessionLocks()
        self.arrivals: defaultdict[str, list[Arrival]] = defaultdict(list)

    async def take(self, session: str, draft: Draft) -> Message:
        """The draft with its number, safe in some region; see Producer.publish for what is raised.

        Drafts of a session are numbered in the order of these calls. What the store or the
        namespaces refuse is raised in every call that shared the operation; what is wrong with one
        draft, only in its own.
        """
        arrival = Arrival(draft, asyncio.get_running_loop().create_future())
        self.arrivals[session].append(arrival)
        try:
            while not arrival.result.done():
                async with self.locks.of(session):
                    if not arrival.result.done():
                        await self.publish_next(session)
        finally:
            self.withdraw(session, arrival)
        return arrival.result.result()

    def withdraw(self, session: str, arrival: Arrival) -> None:
        """Forget an arrival that nobody waits for any more."""
        waiting = self.arrivals.get(session, [])
        if arrival in waiting:
            waiting.remove(arrival)
        if not waiting:
            self.arrivals.pop(session, None)

    async def publish_next(self, session: str) -> None:
        """One operation for as many waiting drafts as fit; each of them gets its result."""
        # They stay among the arrivals until they have a result. So if this call is cancelled in the
        # middle, the next one publishes them again, and they find the numbers that they have.
        taken = choose_together(self.arrivals[session])
        try:
            await self.publish_together(session, taken)
        except CallerError as error:
            if len(taken) == 1:
                self.end(session, taken[0], error)
                return
            # Something is wrong with one of them, and each learns of its own fault alone.
            for arrival in taken:
                try:
                    await self.publish_together(session, [arrival])
                except LockstepError as own:
                    self.end(session, arrival, own)
        except LockstepError as error:
            for arrival in taken:
                self.end(session, arrival, error)

    async def publish_together(self, session: str, taken: Sequence[Arrival]) -> None:
        """Publish in one operation; raises what Producer.publish raises."""
        drafts = [arrival.draft for arrival in taken]
        published = await self.producer.publish(session, drafts, PRODUCER, keep_seconds=KEY_SECONDS)
        for arrival, message in zip(taken, published.messages, strict=True):
            self.end(session, arrival, message)

    def end(self, session: str, arrival: Arrival, result: Message | LockstepError) -> None:
        """Give an arrival its result, unless its call was cancelled."""
        self.withdraw(session, arrival)
        if arrival.result.done():
            return
        if isinstance(result, LockstepError):
            arrival.result.set_exception(result)
        else:
            arrival.result.set_result(result)


def choose_together(waiting: Sequence[Arrival]) -> list[Arrival]:
    """The first ones that fit into one operation; always at least one."""
    taken: list[Arrival] = []
    size = 0
    for arrival in waiting[:TOGETHER_MAX]:
        size += len(arrival.draft.body)
        if taken and size > TOGETHER_BYTES_MAX:
            break
        taken.append(arrival)
    return taken
