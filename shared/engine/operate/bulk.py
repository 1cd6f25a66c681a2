"""Carry out a person's decision about thousands of standstills: in pieces, and each of them once.

A piece takes the bulk decision for a short time, carries out so many members side by side, and
writes down what came of them together with those that come next. Whoever comes after a death makes
those again, and each by itself is made once: it is about an entry by its position. Every request
and every sweep carries out a piece, so no decision depends on the life of an instance.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from shared.domain.bulk import (
    TRIES_MAX,
    BulkDecision,
    BulkMember,
    BulkOutcome,
    BulkState,
    MemberOutcome,
    add_outcomes,
)
from shared.domain.errors import (
    CallerError,
    InvalidMessage,
    LockstepError,
    NewerState,
    NotBlocked,
    NotHalted,
    NotMissing,
    NotOpen,
    UnknownDecision,
    UnknownSession,
)
from shared.domain.journal import WHO_CHARACTERS_MAX, WHY_CHARACTERS_MAX, Entry, Status
from shared.domain.message import require_line
from shared.domain.outbox import OutputsLeft, PendingOutbox
from shared.domain.reports import shorten
from shared.domain.resolution import VERBS, ResolutionAction, ResolutionRequest, verbs_of
from shared.domain.standstill import ListPlace
from shared.engine.operate.standstills import Standstills
from shared.engine.worker import Worker
from shared.storage.bulk import BulkStore

type Result = Entry | OutputsLeft | Sequence[PendingOutbox]
type DecideOne = Callable[[str, ResolutionRequest], Awaitable[Result]]

log = logging.getLogger("lockstep.bulk")

# So many side by side, and each takes so long at least: 16 of a second. With what was parked, each
# takes 90 to 150 request units of the 4,000 a second that a journal has by default.
AT_ONCE, PACE_SECONDS = 16, 1.0
# Members that are found and written down at once.
MEMBERS_MAX = 100
# After so long without a word of who carries it out, somebody else may. A piece writes down what
# it has done more often, unless handlers take very long; then both make the same once.
LEASE_SECONDS = 60.0
# Those that cannot be carried out for the moment wait so long, and so many of them stop the search.
LATER_SECONDS, LATER_MAX = 30.0, 100
# No member is begun after so long, in a request or in a sweep: a person waits for the one, and what
# a sweep does besides for the other.
PIECE_SECONDS = 10.0
# The store tells times in whole seconds: what fails again must be newer than the decision.
TICK_SECONDS = 1.0

# By then nothing was left to decide.
OVER = (NotHalted, NotOpen, NotMissing, NotBlocked, UnknownSession)


class BulkDecisions:
    """The bulk decisions of all regions; `decide_one` is how a single decision is carried out."""

    def __init__(self, worker: Worker, standstills: Standstills, decide_one: DecideOne) -> None:
        self.decide_one = decide_one
        self.standstills = standstills
        self.worker = worker
        self.store = BulkStore(self.worker.journal.container)

    async def begin(self, wanted: BulkDecision) -> BulkDecision:
        """Begin a decision, and carry out a piece; one of this id that is there goes on instead.

        Raises InvalidMessage for what no such decision could be; Unavailable or OutcomeUnknown,
        after which the same again goes on, and so does a sweep where it has begun.
        """
        require_bulk(wanted)
        until = self.worker.clock.now() + PIECE_SECONDS
        if await self.store.read(wanted.id) is None:
            now = await self.worker.journal.time()
            about = len(wanted.members)
            after = None
            if wanted.kind is not None:
                counted = await self.standstills.causes({wanted.kind})
                about = sum(
                    one.count
                    for one in counted.causes
                    if wanted.causes is None or one.cause in wanted.causes
                )
                after = ListPlace(now, "")
                await self.worker.clock.sleep(TICK_SECONDS)
            begun = replace(wanted, about=about, begun_at=now, after=after)
            await self.store.create(begun)
        return await self.go_on(wanted.id, until - self.worker.clock.now())

    async def read(self, decision_id: str) -> BulkDecision:
        """Return a decision as it stands; raises UnknownDecision."""
        return (await self.read_stored(decision_id))[0]

    async def read_stored(self, decision_id: str) -> tuple[BulkDecision, str, float]:
        stored = await self.store.read(decision_id)
        if stored is None:
            raise UnknownDecision(f"there is no decision {decision_id!r}")
        return stored

    async def cancel(self, decision_id: str, who: str, why: str) -> BulkDecision:
        """Begin no further members; those that are under way end, and what is done stays done.

        One that has ended is left as it is. Raises UnknownDecision, InvalidMessage.
        """
        require_line("name of who decides", who, WHO_CHARACTERS_MAX)
        require_line("reason", why, WHY_CHARACTERS_MAX)
        while True:
            decision, version, _ = await self.read_stored(decision_id)
            if decision.state is not BulkState.RUNNING:
                return decision
            ended = replace(decision, state=BulkState.CANCELLED, cancelled=f"{who}: {why}")
            if await self.store.save(ended, version, ends=True) is not None:
                return ended

    async def sweep(self) -> None:
        """Go on with every decision that nobody carries out at the moment, for a bounded time."""
        until = self.worker.clock.now() + PIECE_SECONDS
        for decision_id in await self.store.running():
            left = until - self.worker.clock.now()
            if left > 0:
                await self.go_on(decision_id, left)

    async def go_on(self, decision_id: str, seconds: float) -> BulkDecision:
        """Carry out a piece, unless somebody else does: the decision as it stands then.

        No member is begun after so many seconds. Raises UnknownDecision, Unavailable and
        OutcomeUnknown.
        """
        clock = self.worker.clock
        decision, version, now = await self.read_stored(decision_id)
        if decision.state is not BulkState.RUNNING or now < decision.until:
            return decision
        began = clock.now()
        until, mine = began + seconds, self.worker.new_attempt().id
        decision = replace(decision, members=(*decision.later, *decision.members), later=())
        while True:
            is_stuck = len(decision.later) >= LATER_MAX
            if not is_stuck:
                decision = await self.search(decision, until)
            is_searched = not decision.members and decision.after is None
            ends = is_searched and not decision.later
            is_stuck |= is_searched and not ends
            pauses = ends or is_stuck or clock.now() >= until
            held = LATER_SECONDS if is_stuck else LEASE_SECONDS
            is_free = pauses and not is_stuck
            decision = replace(
                decision,
                state=BulkState.DONE if ends else BulkState.RUNNING,
                worker=mine,
                until=0.0 if is_free else now + clock.now() - began + held,
            )
            saved = await self.store.save(decision, version, ends=ends)
            if saved is None:
                return await self.yield_to_others(decision, mine)
            if pauses:
                return decision
            version = saved
            decision = await self.carry_out(decision, until)

    async def yield_to_others(self, decision: BulkDecision, mine: str) -> BulkDecision:
        """Return what somebody else has written; what this piece did is told where it was ended."""
        stored, version, _ = await self.read_stored(decision.id)
        if stored.worker != mine or stored.state is not BulkState.CANCELLED:
            return stored
        kept = replace(stored, counts=decision.counts, shown=decision.shown)
        await self.store.save(kept, version)
        return kept

    async def search(self, decision: BulkDecision, until: float) -> BulkDecision:
        """Find the next members, where none are left."""
        while not decision.members and decision.after and self.worker.clock.now() < until:
            page = await self.standstills.find(
                {decision.kind} if decision.kind else (),
                causes=decision.causes,
                after=decision.after,
                limit=MEMBERS_MAX,
            )
            members = [
                BulkMember(one.session, verb)
                for one in page.standstills
                for verb in verbs_of(one)
                if verb["action"] == decision.action and decision.queue in (None, verb.get("queue"))
            ]
            decision = replace(decision, members=tuple(members), after=page.after)
        return decision

    async def carry_out(self, decision: BulkDecision, until: float) -> BulkDecision:
        """Carry out the members, as many as are begun by a time."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def carry_out_one(member: BulkMember) -> MemberOutcome | BulkMember:
            async with slots:
                if self.worker.clock.now() >= until:
                    return member
                pace = self.worker.clock.sleep(PACE_SECONDS)
                result, _ = await asyncio.gather(self.decide(decision, member), pace)
                return result

        results = await asyncio.gather(*map(carry_out_one, decision.members))
        return add_outcomes(decision, results)

    async def decide(
        self, decision: BulkDecision, member: BulkMember
    ) -> MemberOutcome | BulkMember:
        """Carry out one: what came of it, or the member again where that is not known yet."""
        session = member.session
        try:
            request = make_request(decision, member)
            result = await self.decide_one(session, request)
        except LockstepError as error:
            text = f"{type(error).__name__}: {shorten(str(error))}"
            if isinstance(error, OVER):
                return MemberOutcome(session, BulkOutcome.OVER, text)
            if isinstance(error, CallerError | NewerState) or member.tries + 1 >= TRIES_MAX:
                return MemberOutcome(session, BulkOutcome.REFUSED, text)
            log.info("a decision about session %r is tried again: %s", session, error)
            return replace(member, tries=member.tries + 1)
        return MemberOutcome(session, *describe_result(result))


def make_request(decision: BulkDecision, member: BulkMember) -> ResolutionRequest:
    said: dict[str, Any] = {**member.verb, "who": decision.who, "why": decision.why}
    if decision.to is not None:
        said["to"] = decision.to
    return ResolutionRequest(**said | {"action": ResolutionAction(said["action"])})


def describe_result(result: Result) -> tuple[BulkOutcome, str]:
    """Return what came of a decision, and that in a sentence."""
    if isinstance(result, Entry):
        reason = f": {result.reason}" if result.reason else ""
        text = f"recorded at position {result.position}, which is {result.status}{reason}"
        is_faulted = result.status is Status.FAULTED
        return (BulkOutcome.FAILED if is_faulted else BulkOutcome.DONE), text
    if not isinstance(result, OutputsLeft):
        result = OutputsLeft(tuple(sorted({r for one in result for r in one.outbox.regions})), ())
    if result.blocked:
        return BulkOutcome.FAILED, f"still missing in {' and '.join(result.blocked)}"
    if result.recorded:
        where = " and ".join(result.recorded)
        return BulkOutcome.RECORDED, f"a sweep carries it out in {where} once that is possible"
    return BulkOutcome.DONE, "nothing is left"


def require_bulk(wanted: BulkDecision) -> None:
    """Raise InvalidMessage for what cannot be decided about many, or lacks what it needs."""
    require_line("name of who decides", wanted.who, WHO_CHARACTERS_MAX)
    require_line("reason", wanted.why, WHY_CHARACTERS_MAX)
    for member in wanted.members:
        make_request(wanted, member)
    if wanted.kind is None:
        return
    actions = [one for one in VERBS[wanted.kind] if one is not ResolutionAction.EDIT]
    if wanted.action not in actions:
        raise InvalidMessage(f"{wanted.action!r} does not end what is of kind {wanted.kind}")
    if (wanted.action == ResolutionAction.REDIRECT) != (wanted.to is not None):
        raise InvalidMessage("redirect needs to, and no other action takes it")
