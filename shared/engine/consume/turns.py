"""Give turns to the calls of a session that one worker has in hand at once, as a log commits.

The host hands over several messages of a session at once, in no certain order. One of these calls
leads: it takes one turn after the other, and each turn has everything that one entry can hold. A
message that comes alone has its turn at once; what arrives while its entry is written becomes the
next entry. Where calls of the session have just returned, or a number in hand lies behind one that
is missing, others are probably being handed over, and a turn lingers for them, as long as that
usually takes. Order comes from the journal: numbered messages are taken by number, others by the
broker's sequence.

Correctness does not rest on this file. Several processes may take messages of one session at once,
and a call that dies is a delivery that comes again: the journal alone decides (consume.py).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shared.domain.decision import Busy, Gap, Proceed, cursor_of, decide
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.journal import Entry
from shared.domain.message import Message, Number
from shared.engine.consume.fold import lacks_cursor
from shared.engine.consume.outcomes import NotYet, Outcome, Processed
from shared.engine.worker import NO_HEAD, Recent, Worker
from shared.ports import DeadLetter

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
    than `look_at`. `waits_until` is later than now where the store said that it has to wait. A dead
    letter shares no entry, and waits for nobody. `as_try` is explained in `Consumer.consume`.
    """

    message: Message
    arrival: int
    letter: DeadLetter | None
    gathering: "Gathering"
    give_up_at: float
    look_at: float
    waits_until: float
    woken: asyncio.Future[None]
    as_try: int = 0
    result: Outcome | Exception | None = None

    @property
    def group(self) -> str | None:
        """The producer group of the message, None for one without a number."""
        return self.message.number.group if self.message.number else None


@dataclass(eq=False, slots=True)
class ReturnedCalls:
    """The calls of one session that returned and were not replaced yet.

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
        """The time for which a turn lingers when nothing comes."""
        seconds = LINGER_FACTOR * self.longest_pause
        return min(max(seconds, LINGER_SECONDS_MIN), LINGER_SECONDS_MAX)

    def add(self, session: str, calls: int, now: float) -> None:
        """Note that so many calls of a session return now."""
        returned = self.by_session.setdefault(session, ReturnedCalls())
        returned.missing += calls
        returned.at = returned.newest = now
        returned.was_in_vain = False

    def replace_one(self, returned: ReturnedCalls, now: float) -> None:
        if not returned.missing:
            return
        pause = now - returned.newest
        if pause <= LINGER_SECONDS_MAX:
            self.longest_pause = max(pause, PAUSE_KEPT * self.longest_pause)
        returned.missing -= 1
        returned.newest = now

    def wait_for(self, session: str, now: float) -> tuple[int, float]:
        """Return how many calls are worth waiting for, and until when, unless others come."""
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


class Turns:
    """The turns of one worker's calls, by session. `leads` is Consumer.leads."""

    def __init__(self, worker: Worker, leads: Callable[[str], bool]) -> None:
        self.worker = worker
        self.clock = worker.clock
        self.waits = worker.policy.waits
        self.leads = leads
        self.gatherings: defaultdict[str, Gathering] = defaultdict(Gathering)
        self.returns = Returns()

    def join(
        self, message: Message, arrival: int, letter: DeadLetter | None = None, as_try: int = 0
    ) -> Call:
        """A new call beside those of its session; it has to leave at its end."""
        session, now = message.session, self.clock.now()
        # What is remembered may outlive its session, in whose place another one has begun. The
        # newest entry of an ended one is read each time.
        if now > self.worker.forget_at:
            self.worker.forget()
        known = self.worker.heads.get(session, NO_HEAD).entry
        if known is not None and known.is_ended:
            self.worker.remember_head(session, None)
        if session in self.returns.by_session:
            self.returns.replace_one(self.returns.by_session[session], now)
        gathering = self.gatherings[session]
        woken = asyncio.get_running_loop().create_future()
        give_up_at = now if letter else now + self.waits.gap_seconds
        call = Call(message, arrival, letter, gathering, give_up_at, now, now, woken, as_try)
        if gathering.calls:
            if self.worker.heads.get(session, NO_HEAD).is_ours:
                # This worker wrote the newest entry, so it probably gets what is missing soon.
                call.look_at = now + self.waits.poll_seconds
            else:
                # The other region may have written what is missing: the store says, unless it has
                # just been asked for the group.
                asked = (one.look_at for one in gathering.calls if one.group == call.group)
                call.look_at = max(asked, default=now)
        gathering.calls.append(call)
        if len(gathering.calls) >= gathering.awaited:
            gathering.arrived.set()
        gathering.leader = gathering.leader or call
        return call

    def leave(self, call: Call) -> None:
        """Take out a call that has its result, or was cancelled; another one leads in its place."""
        # A cancelled leader may have an entry under way. The next one meets it like a dead one's.
        session, gathering = call.message.session, call.gathering
        if call in gathering.calls:
            gathering.calls.remove(call)
        if not gathering.calls:
            if self.gatherings.get(session) is gathering:
                del self.gatherings[session]
        elif gathering.leader is call:
            gathering.leader = gathering.calls[0]
            if not gathering.leader.woken.done():
                gathering.leader.woken.set_result(None)

    async def wait_for_turn(self, call: Call) -> Sequence[Call]:
        """The calls whose turn has come, if this one leads; none when it has its result.

        Several are to be folded, as far as they can be; one may be anything.
        """
        session, gathering = call.message.session, call.gathering
        while call.result is None:
            if gathering.leader is not call:
                await call.woken
                continue
            # Others that the host has handed over by now come along.
            await asyncio.sleep(0)
            calls = sorted(gathering.calls, key=lambda one: one.arrival)
            gathering.arrived.clear()
            now, head = self.clock.now(), self.worker.heads.get(session, NO_HEAD).entry
            if head is not None and len(calls) == 1 and now >= call.look_at:
                returned = self.returns.by_session.get(session)
                may_come = returned and (
                    returned.missing or isinstance(decide(head, call.message), Gap)
                )
                if not may_come:
                    # It comes alone, so there is nothing to choose or to wait for.
                    return calls
            run, alone = find_ready(head, calls, now)
            ready = [*alone, *run]
            held = [one for one in calls if one not in ready]
            chosen = min(ready, key=lambda one: one.arrival, default=None) or next(
                (one for one in held if now >= min(one.look_at, one.give_up_at)), None
            )
            if chosen is None:
                until = min(min(one.look_at, one.give_up_at) for one in calls)
                await self.wait_for_calls(gathering, max(until - now, WAIT_SECONDS_MIN))
            elif not await self.linger(session, gathering, run, held):
                return run if chosen in run else [chosen]
        return ()

    async def linger(
        self, session: str, gathering: Gathering, run: Sequence[Call], held: Sequence[Call]
    ) -> bool:
        """Wait where other calls are probably being handed over; returns whether it has waited."""
        now = self.clock.now()
        missing, until = self.returns.wait_for(session, now)
        awaited = len(gathering.calls) + missing
        if not (run and missing):
            has_gap = any(call.message.number is not None for call in held)
            if not (has_gap and self.is_here(session)):
                return False
            # The host begins calls in no certain order: what is missing is probably on its way.
            # Without this the store would be asked for the head.
            gathering.linger_until = gathering.linger_until or now + LINGER_SECONDS_MIN
            until, awaited = gathering.linger_until, len(gathering.calls) + 1
        if now >= until:
            return False
        await self.wait_for_calls(gathering, max(until - now, WAIT_SECONDS_MIN), awaited)
        return True

    def is_here(self, session: str) -> bool:
        """Return whether a number that is missing is probably on its way to this worker.

        So it is in a session that this worker leads and has not met, and in one whose newest entry
        it wrote while several of its calls were in hand.
        """
        known = self.worker.heads.get(session)
        if known is None:
            return self.leads(session)
        return known.is_ours and session in self.returns.by_session

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

    def conclude(self, calls: Sequence[Call], result: Outcome | NotYet | Exception) -> None:
        """Let calls return with their result, or wait where it is NotYet."""
        first, now = calls[0], self.clock.now()
        gathering = first.gathering
        gathering.linger_until = None
        if isinstance(result, NotYet):
            # What stops one call of a producer group stops all.
            for call in gathering.calls:
                if call.group == first.group:
                    call.look_at = call.waits_until = now + self.waits.poll_seconds
            return
        if isinstance(result, LockstepError) and not isinstance(result, InvalidMessage):
            # What the store refuses to one it would refuse to the others, one slow try each.
            calls = [*gathering.calls]
        elif isinstance(result, Exception):
            calls = calls[:1]
        if isinstance(result, Processed) and len(gathering.calls) > 1:
            # Where there are several at once, others will replace those that return.
            self.returns.add(first.message.session, len(calls), now)
        # Those that were cancelled are not there any more.
        for call in (one for one in calls if one in gathering.calls):
            call.result = result
            gathering.calls.remove(call)
            if not call.woken.done():
                call.woken.set_result(None)


def find_ready(
    head: Entry | None, calls: Sequence[Call], now: float
) -> tuple[list[Call], list[Call]]:
    """Return the calls whose turn has come, as far as this head says: to fold, and to take alone.

    Those to fold are in order: of each group the numbers without a gap from the next one on, and
    messages without numbers, which nothing has to come before. Alone go dead letters and what the
    head decides: copies, conflicts, what is fenced, and what a fault stops. A second copy of a
    number, and everything behind a gap or a claim, waits.
    """
    groups: defaultdict[str, list[tuple[Number, Call]]] = defaultdict(list)
    alone: list[Call] = []
    run: list[tuple[int, Call]] = []
    for call in calls:
        number = call.message.number
        match decide(head, call.message):
            case Busy():
                pass
            case Gap() | Proceed() if number is not None and call.letter is None:
                groups[number.group].append((number, call))
            case Proceed() if call.letter is None:
                run += [(call.arrival, call)] if now >= call.waits_until else []
            case Gap() | Proceed():
                alone += [call] if now >= call.waits_until else []
            case _:
                alone.append(call)
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
        # Among groups the order is that of arrival.
        run += zip(sorted(call.arrival for call in in_turn), in_turn, strict=True)
    return [call for _, call in sorted(run, key=lambda placed: placed[0])], alone
