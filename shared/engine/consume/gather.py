"""Commit like a database's log: what arrives while a session's entry is written becomes the next.

The host hands over several messages of a session at once, in no certain order. One of these calls
leads: it takes one turn after the other, and each turn folds everything whose turn has come into
one entry. A message that comes alone is committed at once; the more wait, the larger the fold.
Where calls of the session have just returned, or a number in hand lies behind one that is missing,
others are probably being handed over, and a turn lingers for them, as long as that usually takes.
Order comes from the journal: numbered messages are taken by number, others by the broker's
sequence. What cannot be folded is taken alone.

Correctness does not rest on this file. Several processes may take messages of one session at once,
and a call that dies is a delivery that comes again: Consumer.consume decides by the journal alone.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from shared.domain.decision import cursor_of
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.handler import Kind
from shared.domain.journal import Entry, Status
from shared.domain.message import Message, Number
from shared.engine.consume.consume import Consumer
from shared.engine.consume.fold import lacks_cursor
from shared.engine.consume.outcomes import NotYet, Outcome, Processed
from shared.engine.worker import Recent

# Evicted cursors that are read for a fold, side by side.
CURSORS_READ_MAX = 40
# Times are rounded, so a shorter wait might end before its time.
WAIT_SECONDS_MIN = 0.001
# A turn lingers until nothing has come for somewhat longer than the longest of the last pauses
# between calls of a session that came together, within these bounds. With each call the longest
# pause counts a little less, so that a single one is forgotten.
LINGER_FACTOR = 1.5
LINGER_SECONDS_MIN = 0.005
LINGER_SECONDS_MAX = 0.1
PAUSE_KEPT = 0.98
# What counts as the longest pause before there was any: a settlement in the same region.
FIRST_PAUSE_SECONDS = 0.01
# What returned earlier says nothing any more. A host that has more to do than it can goes from
# session to session, and takes seconds to come round.
RETURN_SECONDS_MAX = 5.0
# Of so many sessions it is remembered how many calls returned.
RETURNS_MAX = 1_000


@dataclass(eq=False, slots=True)
class Call:
    """One invocation with its message. `arrival` is the broker's sequence number.

    It is parked where its turn has not come at `give_up_at`, and looked at in the store no earlier
    than `look_at`. `waits_until` is later than now where the store said that it has to wait.
    """

    message: Message
    arrival: int
    give_up_at: float
    look_at: float
    waits_until: float
    woken: asyncio.Future[None]
    result: Outcome | Exception | None = None


@dataclass(eq=False, slots=True)
class ReturnedCalls:
    """How many calls of one session returned and were not replaced yet.

    `at` is when the last one returned, `newest` when the last one returned or came. Waiting for
    them `was_in_vain` until others return.
    """

    missing: int = 0
    at: float = 0.0
    newest: float = 0.0
    was_in_vain: bool = False


class Returns:
    """The calls that returned together, by session, and how long the host takes to replace them.

    That is some milliseconds, and much longer where the process has more to do than it can.
    """

    def __init__(self) -> None:
        self.longest_pause = FIRST_PAUSE_SECONDS
        self.by_session: Recent[str, ReturnedCalls] = Recent(RETURNS_MAX)

    @property
    def linger_seconds(self) -> float:
        """How long a turn lingers when nothing comes."""
        seconds = LINGER_FACTOR * self.longest_pause
        return min(max(seconds, LINGER_SECONDS_MIN), LINGER_SECONDS_MAX)

    def add(self, session: str, calls: int, now: float) -> None:
        """Note that so many calls of a session return now."""
        returned = self.by_session.setdefault(session, ReturnedCalls())
        returned.missing += calls
        returned.at = returned.newest = now
        returned.was_in_vain = False

    def replace_one(self, session: str, now: float) -> None:
        """Note that a call arrives."""
        returned = self.by_session.get(session)
        if returned is None or not returned.missing:
            return
        pause = now - returned.newest
        if pause <= LINGER_SECONDS_MAX:
            self.longest_pause = max(pause, PAUSE_KEPT * self.longest_pause)
        returned.missing -= 1
        returned.newest = now

    def wait_for(self, session: str, now: float) -> tuple[int, float]:
        """How many calls are worth waiting for, and until when, unless others come meanwhile."""
        returned = self.by_session.get(session)
        if returned is None or returned.was_in_vain or now > returned.at + RETURN_SECONDS_MAX:
            return 0, now
        until = returned.newest + self.linger_seconds
        returned.was_in_vain = now >= until
        return returned.missing, until


@dataclass(eq=False, slots=True)
class Gathering:
    """The calls of one session that have no result yet, and which of them takes the turns.

    `arrived` is set when there are `awaited` calls. The turn that comes next lingers until
    `linger_until`, which is None as long as it has found no reason to.
    """

    calls: list[Call] = field(default_factory=list)
    leader: Call | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    awaited: int = 0
    linger_until: float | None = None

    def conclude(self, calls: Iterable[Call], result: Outcome | Exception) -> None:
        """Give calls their result and let them return, as far as they were not cancelled."""
        self.linger_until = None
        for call in calls:
            if call in self.calls:
                call.result = result
                self.calls.remove(call)
                wake(call)

    def put_off(self, group: str | None, until: float) -> None:
        """Let the calls of a producer group wait: what stops one of them stops all."""
        self.linger_until = None
        for call in self.calls:
            if group_of(call) == group:
                call.look_at = call.waits_until = until

    def leave(self, call: Call) -> None:
        """Take out a call that returns or is cancelled; another one leads in its place."""
        if call in self.calls:
            self.calls.remove(call)
        if self.leader is call:
            self.leader = self.calls[0] if self.calls else None
            if self.leader is not None:
                wake(self.leader)


class Gatherer:
    """Gives one worker's calls their outcomes: one entry for as many of a session as possible."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.worker = consumer.worker
        self.handlers = consumer.worker.handlers
        self.clock = consumer.worker.clock
        self.waits = consumer.worker.policy.waits
        self.gatherings: defaultdict[str, Gathering] = defaultdict(Gathering)
        self.returns = Returns()

    async def consume(self, message: Message, arrival: int = 0) -> Outcome:
        """The outcome of one delivery; see Consumer.consume for what is promised and raised.

        What the store refuses to one message of a session is raised for all that were waiting with
        it. Some of them may have their entries nevertheless; their copies will find them.
        """
        kind = self.handlers.kind_of(message.type)
        if message.number is None and kind is Kind.IDEMPOTENT and not message.reminder:
            # It goes past the journal, so there is nothing to write together.
            return await self.consumer.consume(message)
        session, now = message.session, self.clock.now()
        self.returns.replace_one(session, now)
        gathering = self.gatherings[session]
        woken = asyncio.get_running_loop().create_future()
        call = Call(message, arrival, now + self.waits.gap_seconds, now, now, woken)
        if self.worker.own_head(session) is not None:
            # This worker wrote the newest entry, so what is missing is probably in its hands, or
            # soon will be.
            call.look_at = now + self.waits.poll_seconds
        elif gathering.calls:
            # The other region may have written what is missing: the store says, unless it has just
            # been asked for the group.
            group = group_of(call)
            asked = (other.look_at for other in gathering.calls if group_of(other) == group)
            call.look_at = max(asked, default=now)
        gathering.calls.append(call)
        if len(gathering.calls) >= gathering.awaited:
            gathering.arrived.set()
        try:
            gathering.leader = gathering.leader or call
            while call.result is None:
                if gathering.leader is call:
                    await self.take_turn(session, gathering)
                else:
                    await call.woken
        finally:
            # A leader that is cancelled may have an entry under way. The next one meets it as it
            # would that of a dead process.
            gathering.leave(call)
            if not gathering.calls and self.gatherings.get(session) is gathering:
                del self.gatherings[session]
        if isinstance(call.result, Exception):
            raise call.result
        return call.result

    async def take_turn(self, session: str, gathering: Gathering) -> None:
        """Give results to one fold, or to one message; or wait until there may be one to give."""
        # Others that the host has handed over by now come along.
        await asyncio.sleep(0)
        calls = sorted(gathering.calls, key=lambda call: call.arrival)
        gathering.arrived.clear()
        now = self.clock.now()
        run, copies = find_ready(self.worker.remembered_head(session), calls, now)
        ready = [*copies, *run]
        held = (call for call in calls if call not in ready)
        chosen = min(ready, key=lambda call: call.arrival, default=None) or next(
            (call for call in held if now >= min(call.look_at, call.give_up_at)), None
        )
        if chosen is None:
            until = min(min(call.look_at, call.give_up_at) for call in calls)
            await self.wait_for_calls(gathering, max(until - now, WAIT_SECONDS_MIN))
            return
        if await self.linger(session, gathering, calls, run):
            return
        taken = run if chosen in run else [chosen]
        try:
            entry = None
            if len(taken) > 1:
                entry = await self.fold([call.message for call in taken])
            if entry is not None:
                taken = taken[: len(entry.identities)]
                self.conclude(session, gathering, taken, Processed(entry))
                return
            # The first of its group, because the others' turn is not before it has its entry.
            taken = taken[:1]
            outcome = await self.consumer.try_to_consume(
                taken[0].message, may_wait=now < taken[0].give_up_at
            )
        except InvalidMessage as error:
            gathering.conclude(taken, error)
        except LockstepError as error:
            # What the store refuses to one it would refuse to the others, one slow try each.
            gathering.conclude(calls, error)
        except Exception as error:
            gathering.conclude(taken, error)
        else:
            if isinstance(outcome, NotYet):
                gathering.put_off(group_of(taken[0]), self.clock.now() + self.waits.poll_seconds)
            else:
                self.conclude(session, gathering, taken, outcome)

    def conclude(
        self, session: str, gathering: Gathering, calls: Sequence[Call], outcome: Outcome
    ) -> None:
        """Let calls return, and expect that others replace them where there are several at once."""
        if isinstance(outcome, Processed) and len(gathering.calls) > 1:
            self.returns.add(session, len(calls), self.clock.now())
        gathering.conclude(calls, outcome)

    async def linger(
        self, session: str, gathering: Gathering, calls: Sequence[Call], run: Sequence[Call]
    ) -> bool:
        """Wait where other calls are probably being handed over; whether there was such a wait."""
        now = self.clock.now()
        missing, until = self.returns.wait_for(session, now)
        awaited = len(calls) + missing
        has_gap = any(call.message.number is not None and call not in run for call in calls)
        if has_gap and self.is_new(session) and not (run and missing):
            # The host begins calls in no certain order: the first number is probably on its way.
            # Without this the store would be asked for the head.
            gathering.linger_until = gathering.linger_until or now + LINGER_SECONDS_MIN
            until, awaited = gathering.linger_until, len(calls) + 1
        elif not (run and missing):
            return False
        if now >= until:
            return False
        await self.wait_for_calls(gathering, max(until - now, WAIT_SECONDS_MIN), awaited)
        return True

    def is_new(self, session: str) -> bool:
        """Whether this worker leads the session and knows no entry of it."""
        return self.worker.remembered_head(session) is None and self.consumer.leads(session)

    async def wait_for_calls(self, gathering: Gathering, seconds: float, awaited: int = 0) -> None:
        """Wait until another call makes them `awaited`, but no longer than so many seconds."""
        gathering.awaited = awaited
        arriving = asyncio.ensure_future(gathering.arrived.wait())
        sleeping = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            await asyncio.wait((arriving, sleeping), return_when=asyncio.FIRST_COMPLETED)
            if sleeping.done():
                sleeping.result()
        finally:
            arriving.cancel()
            sleeping.cancel()

    async def fold(self, messages: Sequence[Message]) -> Entry | None:
        """One entry for the first of these messages; None where that is no use.

        Raises Unavailable or OutcomeUnknown.
        """
        # A region that does not lead mostly gets copies: there is nothing to commit for them.
        if not self.consumer.leads(messages[0].session):
            return None
        head = await self.consumer.first_head(messages[0])
        # Where messages are parked, each new one has to be compared with them and may let some go
        # on, which Consumer.consume does.
        if head is not None and head.parked:
            return None
        fresh = list(takewhile(self.is_fresh, messages))
        if not fresh:
            return None
        if head is not None and head.has_evicted:
            groups = [m.number.group for m in fresh[:CURSORS_READ_MAX] if m.number is not None]
            head = await self.worker.with_cursors(head, groups)
        made_from = await self.consumer.parking.prepare(head, fresh[0])
        # A crash before the commit leaves nothing, and one after it leaves an entry that names
        # every message of the fold: all of them are redelivered and found processed.
        return await self.consumer.commit_fold(made_from, fresh)

    def is_fresh(self, message: Message) -> bool:
        """Whether a message is no copy, as far as this worker remembers."""
        return self.consumer.duplicates.recall(message) is None


def find_ready(
    head: Entry | None, calls: Sequence[Call], now: float
) -> tuple[list[Call], list[Call]]:
    """Of the calls of a session those whose turn has come, as far as this head says.

    First the calls to fold, in order: of each group the numbers without a gap from the next one
    on. Then those to take alone: messages without numbers, and numbers below the next one. A second
    copy of a number, and everything behind a gap, a halt or a claim, has to wait.
    """
    if head is not None and (head.halt is not None or head.status is Status.WORKING):
        return [], []
    groups: defaultdict[str, list[tuple[Number, Call]]] = defaultdict(list)
    alone: list[Call] = []
    for call in calls:
        number = call.message.number
        if number is None:
            alone += [call] if now >= call.waits_until else []
        else:
            groups[number.group].append((number, call))
    run: list[tuple[int, Call]] = []
    for group, members in groups.items():
        members.sort(key=lambda member: (member[0].sequence, -member[0].level))
        first, first_call = members[0]
        # Where the cursor lies beside the journal, whoever folds reads it.
        is_unknown = lacks_cursor(head, first_call.message)
        if is_unknown and now < first_call.waits_until:
            continue
        begin = first.sequence if is_unknown else cursor_of(head, group).next
        in_turn: list[Call] = []
        for number, call in members:
            if number.sequence == begin + len(in_turn):
                in_turn.append(call)
            elif number.sequence < begin:
                alone.append(call)
        # Among groups the order is that of arrival.
        run += zip(sorted(call.arrival for call in in_turn), in_turn, strict=True)
    return [call for _, call in sorted(run, key=lambda placed: placed[0])], alone


def group_of(call: Call) -> str | None:
    """The producer group of a call's message, None for one without a number."""
    return call.message.number.group if call.message.number else None


def wake(call: Call) -> None:
    """Let a call go on that waits for its result, or for its turn to lead."""
    if not call.woken.done():
        call.woken.set_result(None)
