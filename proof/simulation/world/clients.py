"""Everybody who uses the engine: senders of messages, clients of sagas, and an operator.

Each works in a process of its own, which is started again when it dies.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from functions.triggers.saga_instances import ensure_instance, notify_instance, try_now
from proof.simulation.world.cloud import Cloud
from proof.simulation.world.host import QUEUE, HubClient
from proof.simulation.world.process import Process
from proof.simulation.world.recorder import RecordingJournal
from proof.simulation.world.virtual_time import now
from proof.simulation.world.workload import NumberedSeries, PublishPlan, Workload
from shared.domain.errors import CallerError, ProducerDisconnected, SessionEnded
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.saga.walk import StartedSaga
from shared.domain.steps import unknown_steps
from shared.engine.build import Services
from shared.engine.consume.park import ENDED
from shared.engine.publish.publish import Producer
from shared.engine.sagas.sagas import SagaResponse, Sagas

CLIENT_REGION = "east"
SEND_PAUSE_SECONDS_MAX = 3.0
RETRY_PAUSE_SECONDS_MAX = 2.0
OPERATOR_PAUSE_SECONDS = 10.0
# An outage is no reason to skip a message, so every fault is run again this often.
RETRIES = 2

type Correct = Callable[[Message], bytes | None]


@dataclass
class Senders:
    """Producers that die and start again, senders that number for themselves, and others.

    `safe` are the messages that surely arrive. Of an `uncertain` operation, by session and producer
    group, all was published or nothing.
    """

    cloud: Cloud
    safe: list[Message] = field(default_factory=list)
    uncertain: list[tuple[str, str, Sequence[Draft]]] = field(default_factory=list)

    async def send(self, load: Workload) -> None:
        """Send everything; ends when everything is safe, or its sender was refused."""
        await asyncio.gather(
            self.send_plain(load.plain),
            self.send_plain(load.conflicting),
            *(self.run_publish_plan(plan) for plan in load.publish_plans),
            *(self.send_series(series) for series in load.series),
        )

    async def pause(self, longest: float) -> None:
        await asyncio.sleep(self.cloud.rng.delay(longest))

    async def run_publish_plan(self, plan: PublishPlan) -> None:
        await asyncio.sleep(plan.begin_seconds)
        name = f"producer {plan.group}/{plan.level} of {plan.session}"
        process = SenderProcess(self.cloud, name)
        options = ProducerOptions(plan.group, plan.level)
        for operation in plan.operations:
            await self.pause(SEND_PAUSE_SECONDS_MAX)
            try:
                while (sent := await process.publish(plan.session, operation, options)) is None:
                    await self.pause(RETRY_PAUSE_SECONDS_MAX)
            except (ProducerDisconnected, SessionEnded):
                self.uncertain.append((plan.session, plan.group, operation))
                return
            self.safe += sent

    async def send_series(self, series: NumberedSeries) -> None:
        await asyncio.sleep(series.begin_seconds)
        process = SenderProcess(self.cloud, f"sender of {series.messages[0].session}")
        for message in series.messages:
            await self.pause(SEND_PAUSE_SECONDS_MAX)
            while not await process.send(message):
                await self.pause(RETRY_PAUSE_SECONDS_MAX)
            self.safe.append(message)

    async def send_plain(self, messages: Sequence[Message]) -> None:
        delivery = self.cloud.delivery(self.cloud.new_process("sender", CLIENT_REGION))
        for message in messages:
            await self.pause(SEND_PAUSE_SECONDS_MAX)
            for region, namespace in self.cloud.namespaces.items():
                if namespace.down is not None and namespace.signal.is_down(now()):
                    await asyncio.sleep(namespace.down[1] - now())
                delay = delivery.delay_in(region, message, delivery.clock.today())
                namespace.accept(QUEUE, [message], now() + delay)
            self.safe.append(message)


@dataclass
class SenderProcess:
    cloud: Cloud
    name: str
    process: Process | None = None
    producer: Producer | None = None

    async def publish(
        self, session: str, drafts: Sequence[Draft], options: ProducerOptions
    ) -> Sequence[Message] | None:
        """Return the messages, if they are known to be safe.

        Raises ProducerDisconnected or SessionEnded.
        """

        async def attempt(producer: Producer) -> Sequence[Message] | CallerError:
            try:
                return (await producer.publish(session, drafts, options)).messages
            except (ProducerDisconnected, SessionEnded) as refusal:
                return refusal

        answer = await self.attempt(attempt)
        if isinstance(answer, CallerError):
            raise answer
        return answer

    async def send(self, message: Message) -> bool:
        return await self.attempt(lambda producer: producer.send([message])) is not None

    async def attempt[T](self, work: Callable[[Producer], Awaitable[T]]) -> T | None:
        """Return what the work gives; None where it failed, or the process died."""
        if self.process is None or self.producer is None or self.process.is_killed:
            self.process = self.cloud.new_process(self.name, CLIENT_REGION)
            self.producer = self.cloud.producer(self.process)
        return await self.process.attempt(work(self.producer))


@dataclass(frozen=True, slots=True)
class StartSaga:
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class SendEvent:
    event: str


@dataclass(frozen=True, slots=True)
class CancelSaga:
    """Ask the saga to compensate what it has done."""


@dataclass(frozen=True, slots=True)
class SagaRequest:
    """A request for the saga with a key, over HTTP in a region, from a virtual second on."""

    at: float
    region: str
    key: str
    action: StartSaga | SendEvent | CancelSaga


@dataclass
class SagaClients:
    """Everybody with a request for a saga. `answers` are the final ones."""

    cloud: Cloud
    answers: list[tuple[SagaRequest, SagaResponse]] = field(default_factory=list)

    async def run(self, requests: Sequence[SagaRequest]) -> None:
        await asyncio.gather(*map(self.send_until_answered, requests))

    async def send_until_answered(self, request: SagaRequest) -> None:
        await asyncio.sleep(request.at)
        process: Process | None = None
        answer = None
        while answer is None:
            if process is None or process.is_killed:
                process = self.cloud.new_process(f"HTTP {request.region}", request.region)
            services = self.cloud.services(process)
            client = HubClient(process, self.cloud.hubs[request.region])
            answer = await process.attempt(answer_request(services, client, request))
            if answer is None:
                await asyncio.sleep(self.cloud.rng.delay(RETRY_PAUSE_SECONDS_MAX))
        self.answers.append((request, answer))


async def answer_request(
    services: Services, client: HubClient, request: SagaRequest
) -> SagaResponse:
    """Answer as the HTTP functions do; a request that is wrong is refused for good."""
    try:
        return await handle_request(services, client, request)
    except CallerError as error:
        return SagaResponse(is_accepted=False, reason=str(error))


async def handle_request(
    services: Services, client: HubClient, request: SagaRequest
) -> SagaResponse:
    """Do what the HTTP functions do: write to the journal, then notify the task hub if it can."""
    book, key = Sagas(services.consumer), request.key
    match request.action:
        case StartSaga(kind, body):
            answer = await book.start(key, kind, body)
            found = await book.load(key) if answer.is_accepted else None
            if isinstance(found, StartedSaga):
                await try_now(key, ensure_instance(services, client, found, 0.0))
            return answer
        case SendEvent(event):
            answer = await book.add_event(key, event)
        case CancelSaga():
            answer = await book.cancel(key)
    await try_now(key, notify_instance(client, key))
    return answer


class Counterpart(Protocol):
    """Whom the operator asks what became of a step."""

    def is_settled(self, key: str) -> bool:
        """Say whether nothing of a key is on its way, so that a person can tell."""

    def look(self, key: str) -> str | None:
        """Return the result of a step that happened, None where it did not."""


class NoCounterpart:
    """The counterpart of a business without steps."""

    def is_settled(self, key: str) -> bool:
        raise LookupError(f"nobody knows of {key}")

    def look(self, key: str) -> str | None:
        raise LookupError(f"nobody knows of {key}")


NO_COUNTERPART = NoCounterpart()


def uncorrected(_: Message) -> bytes | None:
    return None


@dataclass
class Operator:
    """A person who retries, corrects or skips faults; both mappings are by session and id."""

    cloud: Cloud
    correct: Correct
    counterpart: Counterpart = NO_COUNTERPART
    corrections: dict[tuple[str, str], bytes] = field(default_factory=dict)
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def work(self) -> None:
        while True:
            await asyncio.sleep(OPERATOR_PAUSE_SECONDS)
            process = self.cloud.new_process("operator", CLIENT_REGION)
            for session, fault, message in halted_sessions(self.cloud.journal):
                unknown = unknown_steps(fault.steps)
                if unknown and not self.counterpart.is_settled(fault.steps[unknown[0]].key):
                    continue
                decision = (
                    self.decide_step(fault, unknown[0])
                    if unknown
                    else self.decide(message, fault.position)
                )
                resolver = self.cloud.services(process).resolver
                await process.attempt(resolver.resolve(session, decision))
            for session, at in refused_entries(self.cloud.journal):
                noted = ResolutionRequest(ResolutionAction.CLOSE, "operator", "it is known", at=at)
                process = self.cloud.new_process("operator", CLIENT_REGION)
                resolver = self.cloud.services(process).resolver
                await process.attempt(resolver.resolve(session, noted))

    def decide(self, message: Message, at: int) -> ResolutionRequest:
        key = (message.session, message.id)
        self.decisions[key] += 1
        body = None
        if self.decisions[key] <= RETRIES:
            action, reason = ResolutionAction.RETRY, "perhaps an outage caused it"
        elif (body := self.correct(message)) is not None:
            action, reason = ResolutionAction.EDIT, "it was wrong"
            self.corrections[key] = body
        else:
            action, reason = ResolutionAction.SKIP, "it cannot be corrected"
        return ResolutionRequest(action, "operator", reason, body, at)

    def decide_step(self, fault: Entry, name: str) -> ResolutionRequest:
        """Say of a step what the counterpart says."""
        found, at = self.counterpart.look(fault.steps[name].key), fault.position
        if found is None:
            action = ResolutionAction.NOT_HAPPENED
            return ResolutionRequest(action, "operator", "no trace of it", at=at, step=name)
        body, action = json.dumps(found).encode(), ResolutionAction.HAPPENED
        return ResolutionRequest(action, "operator", "it is there", body, at=at, step=name)


def refused_entries(journal: RecordingJournal) -> list[tuple[str, int]]:
    """Return the entries, by session, of what came after its end and asks for the operator."""
    return [
        (session, int(document["id"]))
        for session in list(journal.partitions)
        for document in journal.store.flagged(session)
        if document.get("faulted") and document.get("reason") == ENDED
    ]


def halted_sessions(journal: RecordingJournal) -> list[tuple[str, Entry, Message]]:
    """Return the sessions that wait for the operator, the faults that stop them, and of what."""
    found: list[tuple[str, Entry, Message]] = []
    for head in [journal.newest(session) for session in list(journal.partitions)]:
        if head is not None and head.halt is not None:
            fault = journal.entry_at(head.session, head.halt.at)
            if fault is not None and fault.message is not None:
                found.append((head.session, fault, fault.message))
    return found
