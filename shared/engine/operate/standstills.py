"""Find what needs attention, in all sessions or in one.

What the store shows is a sign; whether it is a standstill now may depend on the session's head. A
page costs one search, one read of the head for each session with a fault or parked messages, and
one more for each producer group that has parked messages, and for a state that is not in the head.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from shared.domain.errors import LockstepError, NewerState
from shared.domain.journal import Entry
from shared.domain.standstill import (
    NOTHING_COUNTED,
    CountedCauses,
    ListPlace,
    Sign,
    Standstill,
    StandstillKind,
    count_causes,
    explain,
    explain_record,
    is_over,
)
from shared.engine.handle.handle import require_known
from shared.engine.worker import Worker
from shared.ports import SessionNeed

log = logging.getLogger("lockstep.standstills")

# Signs that one answer looks at: what is over, or waits behind the same gap, is no standstill.
SIGNS_MAX = 1_000
# Signs that are counted at most by their causes, and sessions in which a number is looked for.
COUNTED_MAX, GAPS_MAX = 10_000, 100
READ_AT_ONCE, FEWEST = 16, 4

NEEDS = {
    StandstillKind.HALT: SessionNeed.RESOLUTION,
    StandstillKind.UNKNOWN: SessionNeed.RESOLUTION,
    StandstillKind.ALERT: SessionNeed.RESOLUTION,
    StandstillKind.REFUSED: SessionNeed.RESOLUTION,
    StandstillKind.BLOCKED: SessionNeed.UNBLOCKING,
    StandstillKind.GAP: SessionNeed.DRAINING,
    StandstillKind.PENDING: SessionNeed.DELIVERY,
}


@dataclass(frozen=True, slots=True)
class StandstillPage:
    """A part of the list, and the place to go on from; None at the end.

    A page may have few standstills, or none, and yet not be the last.
    """

    standstills: tuple[Standstill, ...]
    after: ListPlace | None


class Standstills:
    def __init__(self, worker: Worker, regions: tuple[str, ...]) -> None:
        self.worker = worker
        self.regions = regions

    async def find(
        self,
        kinds: Collection[StandstillKind] = frozenset(StandstillKind),
        *,
        session: str | None = None,
        causes: Collection[str] | None = None,
        after: ListPlace | None = None,
        limit: int,
    ) -> StandstillPage:
        """Return the standstills after a place, the newest first. Raises Unavailable.

        With `causes` those alone whose general cause is among them.

        A page is longer than `limit` where its last record shows several standstills. What is
        written again while somebody pages moves to the first page.
        """
        found: list[Standstill] = []
        sessions, looked_at, fewest = SessionReader(self.worker), 0, FEWEST
        while looked_at < SIGNS_MAX:
            # Each has its session read: for the last of a page few are read first, then twice as
            # many each time.
            wanted = limit if causes else min(limit, max(limit - len(found), fewest))
            fewest = 2 * fewest if looked_at else fewest
            signs = await self.worker.journal.signs(
                {NEEDS[kind] for kind in kinds},
                self.regions,
                session=session,
                older_than_seconds=self.worker.policy.standstill_seconds,
                after=after,
                limit=wanted,
            )
            await sessions.read(signs)
            for sign in signs:
                found += (
                    one
                    for one in sessions.explain(sign)
                    if one.kind in kinds and (causes is None or one.general_cause in causes)
                )
                after = sign.place
                if len(found) >= limit:
                    return StandstillPage(tuple(found), after)
            if len(signs) < wanted:
                return StandstillPage(tuple(found), None)
            looked_at += len(signs)
        return StandstillPage(tuple(found), after)

    async def causes(
        self,
        kinds: Collection[StandstillKind] = frozenset(StandstillKind),
        counted: CountedCauses = NOTHING_COUNTED,
        *,
        now: float | None = None,
    ) -> CountedCauses:
        """Count standstills by cause, or add those that are newer than a count. Raises Unavailable.

        A fault counts as its record shows it: no session is read for it. What is parked in a halted
        session counts for the halt alone. What was counted and is over by now is not taken off.
        """
        journal = self.worker.journal
        now = await journal.time() if now is None else now
        signs: list[Sign] = []
        while len(signs) < COUNTED_MAX:
            page = await journal.signs(
                {NEEDS[kind] for kind in kinds},
                self.regions,
                older_than_seconds=self.worker.policy.standstill_seconds,
                after=signs[-1].place if signs else None,
                limit=SIGNS_MAX,
                now=now,
                counted=counted,
            )
            signs += page
            if len(page) < SIGNS_MAX:
                break
        # Of what was counted for its fault, and is late only now, that alone is new.
        signs = [
            one if one.since > counted.newest else replace(one, asks=False, halts=False, blocked={})
            for one in signs
        ]
        halted = {sign.session for sign in signs if sign.halts}
        waiting = {
            sign.session: sign for sign in signs if sign.waits and sign.session not in halted
        }
        looked_at = [*waiting.values()][:GAPS_MAX]
        sessions = SessionReader(self.worker)
        await sessions.read(looked_at)
        found = [one for sign in looked_at for one in sessions.explain(sign)]
        for sign in signs:
            if not sign.waits:
                found += explain_record(sign, is_halted=True)
        causes = count_causes(
            (one for one in found if one.kind in kinds),
            (one for one in counted.causes if one.kind in kinds),
        )
        is_more = len(signs) >= COUNTED_MAX or len(waiting) > GAPS_MAX
        newest = max((sign.since for sign in signs), default=counted.newest)
        return CountedCauses(tuple(causes), is_more or counted.is_more, now, newest)


class SessionReader:
    """The reader of one answer: what signs depend on is read once for each session."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.journal = worker.journal
        self.slots = asyncio.Semaphore(READ_AT_ONCE)
        self.heads: dict[str, Entry | None] = {}
        self.waiting: set[str] = set()
        # By session and group, the lowest sequence that is parked.
        self.first_parked: dict[str, dict[str, int | None]] = {}
        # By session, why it waits for newer code, where it does.
        self.newer: dict[str, str] = {}

    async def read(self, signs: Sequence[Sign]) -> None:
        """Read what these signs depend on, and see to it that what is over is not found again."""
        # Only the session's head says whether a fault or a parked message is a standstill.
        needed = {sign.session: sign.waits for sign in signs if sign.halts or sign.waits}
        needed |= {sign.session: True for sign in signs if sign.waits}
        await asyncio.gather(*(self.read_session(name, waits) for name, waits in needed.items()))
        await asyncio.gather(
            *(
                self.forget(sign, sign.position)
                for sign in signs
                if sign.position is not None and is_over(sign, self.heads.get(sign.session))
            )
        )

    async def read_session(self, session: str, waits: bool) -> None:
        """Read a session's head, and where messages wait, which is the first of each group."""
        async with self.slots:
            if session not in self.heads:
                self.heads[session] = await self.journal.head(session)
            head = self.heads[session]
            if waits and head is not None and session not in self.waiting:
                self.waiting.add(session)
                self.heads[session] = await self.worker.with_cursors(head, head.parked)
                self.first_parked[session] = {
                    group: await self.journal.first_parked(session, group) for group in head.parked
                }
                if head.halt is None:
                    stored = (await self.worker.input_after(head)).model
                    try:
                        for handler in self.worker.handlers.by_type.values():
                            require_known(handler.state, stored)
                    except NewerState as error:
                        self.newer[session] = str(error)

    async def forget(self, sign: Sign, position: int) -> None:
        """Close a sign that is over. If the store does not help, it is found once more."""
        async with self.slots:
            try:
                await self.journal.close(sign.session, position, sign.version, None)
            except LockstepError as error:
                log.info("session %r is looked at again: %s", sign.session, error)

    def explain(self, sign: Sign) -> Sequence[Standstill]:
        """Return the standstill that a sign shows, now that its session was read."""
        # Workers of an earlier version left a sign for each parked message: one is enough.
        if sign.waits:
            parked = self.first_parked.pop(sign.session, {})
            newer = self.newer.get(sign.session) if parked else None
            return explain(sign, self.heads.get(sign.session), parked, newer)
        return explain(sign, self.heads.get(sign.session), {})
