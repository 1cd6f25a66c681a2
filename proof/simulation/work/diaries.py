"""A small business to simulate: diaries, which answer every request with all that is in them.

So an answer tells what came before it, and a history of answers can be checked: see
`proof.linearizability`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pydantic import BaseModel

from proof.linearizability import UNKNOWN, TimedCall, find_fault
from proof.simulation.world.askers import AskTry
from proof.simulation.world.clients import RETRIES
from proof.simulation.world.recorder import Violation, state_of
from proof.simulation.world.workload import StateRead, Workload
from proof.simulation.world.world import World
from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault, Output
from shared.domain.message import Message
from shared.engine.consume.outcomes import Answered, Conflicting, Failed

WRITE, TELL, CALL = "diary.write", "diary.tell", "diary.call"
READ, FAIL = "diary.read", "diary.fail"
# Longer than a lease now and then, so that a claim is renewed, or is taken over.
CALL_SECONDS = 7.0
# What a history breaks which no order explains.
PROMISE = "linearizable"


class DiaryLine(BaseModel):
    """A line to write; no other line of its session is the same."""

    line: str = ""


class Diary(BaseModel):
    lines: list[str] = []


def business() -> Handlers:
    handlers = Handlers()

    @handlers.register(WRITE, state=Diary, body=DiaryLine)
    def write(diary: Diary, body: DiaryLine, _: Context) -> Handled[Diary]:
        return written(diary, body)

    @handlers.register(TELL, state=Diary, body=DiaryLine, kind=Kind.DETERMINISTIC)
    def tell(diary: Diary, body: DiaryLine, _: Context) -> Handled[Diary]:
        return written(diary, body, Output("diary.told", body))

    @handlers.register(CALL, state=Diary, body=DiaryLine, kind=Kind.EFFECTFUL)
    async def call(diary: Diary, body: DiaryLine, context: Context) -> Handled[Diary]:
        await asyncio.sleep(context.random.random() ** 2 * CALL_SECONDS)
        return written(diary, body)

    @handlers.register(READ, state=Diary, body=DiaryLine)
    def read(diary: Diary, _: DiaryLine, __: Context) -> Handled[Diary]:
        return Handled(diary, answer=diary)

    @handlers.register(FAIL, state=Diary, body=DiaryLine, on_fault=OnFault.SKIP)
    def fail(_: Diary, body: DiaryLine, __: Context) -> Handled[Diary]:
        raise ArithmeticError(f"{body.line} cannot be written")

    return handlers


def written(diary: Diary, body: DiaryLine, *outputs: Output) -> Handled[Diary]:
    after = Diary(lines=[*diary.lines, body.line])
    return Handled(after, outputs, answer=after)


@dataclass(frozen=True, slots=True)
class Write:
    line: str


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for all lines."""


type Lines = tuple[str, ...]


class DiaryModel:
    """See proof.linearizability.Model: every answer is all lines so far, in their order."""

    initial: Lines = ()

    def apply(self, state: Lines, request: Write | Read) -> tuple[Lines, Lines]:
        after = (*state, request.line) if isinstance(request, Write) else state
        return after, after

    def may_lead_to(self, state: Lines, answer: Lines) -> bool:
        """Say whether an answer begins with the lines so far: none is ever taken away."""
        return answer[: len(state)] == state


def diary_violations(world: World, load: Workload) -> Iterator[Violation]:
    """Check each session's history: all that was asked, and sent, and what is there in the end."""
    histories = Histories(world)
    for heard in world.askers.heard:
        histories.add_heard(heard)
    end = next(world.askers.moments)
    for session, line in lines_sent(load):
        histories.add(session, TimedCall(line, Write(line), 0))
    for message in [*world.senders.safe, *histories.posted]:
        # The operator skips what fails for good, and of two contents of an id one is refused.
        is_skipped = world.operator.decisions[message.session, message.id] > RETRIES
        is_rejected = (message.session, message.id, message.digest) in world.observed.rejected
        if message.type != FAIL and not (is_skipped or is_rejected):
            line = line_in(message.body)
            histories.add(message.session, TimedCall(line, Write(line), 0, end))
    yield from histories.violations(end)


def lines_sent(load: Workload) -> Iterator[tuple[str, str]]:
    """Yield the lines of all messages to queues, safe or not, but for those that always fail."""
    for plan in load.publish_plans:
        drafts = (draft for operation in plan.operations for draft in operation)
        yield from ((plan.session, line_in(one.body)) for one in drafts if one.type != FAIL)
    yield from ((one.session, line_in(one.body)) for one in load.plain if one.type != FAIL)


def line_in(body: bytes) -> str:
    return DiaryLine.model_validate_json(body).line


@dataclass
class Histories:
    """The history of each session, as its clients saw it."""

    world: World
    calls: dict[str, list[TimedCall[Write | Read, Lines]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    answered: dict[str, list[tuple[Answered, Lines]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    # What was published by HTTP, and is safe.
    posted: list[Message] = field(default_factory=list)

    def add(self, session: str, call: TimedCall[Write | Read, Lines]) -> None:
        self.calls[session].append(call)

    def add_heard(self, heard: AskTry) -> None:
        """Add a try. What failed takes no effect, so it is left out of the history."""
        request, began, ended = heard.request, heard.began, heard.ended
        if isinstance(request, StateRead):
            if isinstance(heard.reply, Mapping):
                lines = tuple(heard.reply.get("lines", ()))
                self.add(request.session, TimedCall(f"look {began}", Read(), began, ended, lines))
            return
        message = request.message
        line = line_in(message.body)
        key = line if message.type != READ else message.id
        call: TimedCall[Write | Read, Lines] = TimedCall(
            key, Read() if message.type == READ else Write(line), began
        )
        match heard.reply:
            case Answered(answer=answer):
                lines = tuple((answer or {}).get("lines", ()))
                self.add(message.session, replace(call, ended=ended, answer=lines))
                self.answered[message.session].append((heard.reply, lines))
            case Failed(reason, halts=False) | Conflicting(reason):
                self.failed[message.session, key] = reason
            case Message():
                self.posted.append(message)
                self.add(message.session, call)
            case _ if message.type != FAIL:
                self.add(message.session, call)

    def violations(self, end: int) -> Iterator[Violation]:
        for session, calls in self.calls.items():
            answered = {one.key for one in calls if one.answer is not UNKNOWN}
            for key in answered & {key for where, key in self.failed if where == session}:
                reason = self.failed[session, key]
                yield Violation(PROMISE, f"{session}: {key} was answered, and failed: {reason}")
            lines = tuple(state_of(self.world.journal, session).get("lines", ()))
            last = TimedCall("the end", Read(), end + 1, end + 2, lines)
            took_effect = (one for one in calls if (session, one.key) not in self.failed)
            if fault := find_fault(DiaryModel(), [*took_effect, last]):
                yield Violation(PROMISE, f"{session}: {fault}")
            yield from self.places(session)

    def places(self, session: str) -> Iterator[Violation]:
        """Check that what was answered at a later position, or of a later version, has no less.

        Answers that share an entry are of one position, and each has what those before it have.
        """
        for name in ("position", "version"):
            placed = sorted(
                (getattr(reply, name), lines) for reply, lines in self.answered[session]
            )
            for (before, fewer), (after, more) in pairwise(placed):
                if more[: len(fewer)] != fewer:
                    what = f"{session}: {name} {before} was {fewer}, and {after} was {more}"
                    yield Violation(PROMISE, what)
