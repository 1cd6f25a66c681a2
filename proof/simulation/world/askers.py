"""Clients that ask sessions in both regions, through a host, and note what they heard and when."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle, islice

from proof.simulation.world.faults import SeededRandom
from proof.simulation.world.host import Host
from proof.simulation.world.workload import Ask, HttpRequest, KeyedPost, StateRead
from shared.domain.errors import ContentConflict
from shared.domain.journal import Json
from shared.domain.message import Message
from shared.domain.producer import Draft
from shared.engine.consume.outcomes import Conflicting, Failed, Reply, Waiting

ASK_PAUSE_SECONDS_MAX = 3.0
RETRY_PAUSE_SECONDS_MAX = 2.0

type HttpReply = Reply | Message | Json


@dataclass(frozen=True, slots=True)
class AskTry:
    """One try, between two moments. Without a reply nobody knows what became of it.

    The reply to a StateRead is the state, and the message that is safe that to a KeyedPost.
    """

    request: HttpRequest
    began: int
    ended: int
    reply: HttpReply | None = None

    @property
    def outcome(self) -> str:
        if isinstance(self.request, StateRead):
            return "state read" if self.reply is not None else "state not read"
        what = "ask" if isinstance(self.request, Ask) else "post"
        return f"{what} {'without a reply' if self.reply is None else type(self.reply).__name__}"

    @property
    def is_over(self) -> bool:
        """Return whether another try is of no use."""
        match self.reply:
            case None | Waiting() | Failed(halts=True):
                return False
            case _:
                return True


@dataclass
class Askers:
    """Everybody who asks. `moments` grow in the order in which things happen."""

    rng: SeededRandom
    hosts: dict[str, Host]
    heard: list[AskTry] = field(default_factory=list)
    moments: Iterator[int] = field(default_factory=partial(count, 1))
    # Calls whose clients have given up go on in their hosts.
    left: set[asyncio.Future[HttpReply | None]] = field(default_factory=set)

    async def run(self, clients: Sequence[Sequence[HttpRequest]]) -> None:
        """Ask everything; ends when each client has its answers, or gave up."""
        await asyncio.gather(*map(self.ask_in_turn, clients))

    async def ask_in_turn(self, requests: Sequence[HttpRequest]) -> None:
        for request in requests:
            await asyncio.sleep(self.rng.delay(ASK_PAUSE_SECONDS_MAX))
            for region in islice(cycle(request.regions), request.tries):
                if await self.is_over(request, region):
                    break
                await asyncio.sleep(self.rng.delay(RETRY_PAUSE_SECONDS_MAX))

    async def is_over(self, request: HttpRequest, region: str) -> bool:
        """Try once, through a host of the region; nothing happens where none runs."""
        hosts = [one for one in self.hosts.values() if one.process.region == region]
        hosts = [one for one in hosts if not one.process.is_killed]
        if not hosts:
            return False
        host, began = self.rng.pick(hosts), next(self.moments)
        trying = asyncio.ensure_future(host.process.attempt(answer(host, request)))
        self.left.add(trying)
        trying.add_done_callback(self.left.discard)
        await asyncio.wait({trying}, timeout=request.seconds)
        reply = trying.result() if trying.done() else None
        self.heard.append(AskTry(request, began, next(self.moments), reply))
        return self.heard[-1].is_over


async def answer(host: Host, request: HttpRequest) -> HttpReply:
    """Answer as the HTTP functions do."""
    match request:
        case Ask(message):
            return await host.services.consumer.ask(message, request.wait_seconds)
        case KeyedPost(message):
            draft = Draft(message.id, message.type, message.body, message.time)
            try:
                return await host.services.ingest.take(message.session, draft)
            except ContentConflict as error:
                return Conflicting(str(error))
        case StateRead(session):
            head = await host.services.journal.head(session)
            return (await host.services.worker.input_after(head)).state
