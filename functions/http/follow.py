"""Follow a message over sessions, from an entry in both directions, for a price that is allowed.

Everything is read; nothing is decided by it. Where the price does not suffice, or a read fails, the
way says so and keeps what was found.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from shared.domain.decision import cursor_of
from shared.domain.errors import LockstepError, UnknownSession
from shared.domain.following import (
    MESSAGES_MAX,
    OUTPUTS_MAX,
    FollowedOutput,
    Hop,
    KeptOutput,
    Place,
    Sender,
    SentBy,
    choose_entry,
    derive_output_ids,
    has_sent,
    kept_outputs,
    order_hops,
    queues_to,
    sender_of,
    sessions_sent_to,
)
from shared.domain.journal import Entry, MessageIdentity
from shared.domain.message import Message
from shared.domain.outbox import AppQueues
from shared.domain.spending import limit_spending
from shared.engine.operate.standstills import READ_AT_ONCE
from shared.engine.worker import Worker

# A message is followed over so many hops in each direction, and so many entries in all.
HOPS_MAX, ENTRIES_MAX = 10, 50


class Follower:
    """One look at the way of a message, for at most so many request units.

    `entries` are in the order of the way, `causes` says of a place what sent its message, `outputs`
    what became of each output, and `left` in sentences what is not told.
    """

    def __init__(self, worker: Worker, queues: AppQueues, units: int) -> None:
        self.worker, self.journal, self.queues, self.units = worker, worker.journal, queues, units
        self.spending = limit_spending(units)
        self.slots = asyncio.Semaphore(READ_AT_ONCE)
        self.entries: dict[Place, Entry] = {}
        self.causes: dict[Place, SentBy] = {}
        self.outputs: dict[Place, list[FollowedOutput]] = {}
        self.left: list[str] = []

    async def follow(self, session: str, position: int) -> list[Hop]:
        """Return the way of an entry's message; raises UnknownSession and Unavailable."""
        start = await self.journal.entry(session, position)
        if start is None:
            raise UnknownSession(
                f"session {session!r} has no entry at position {position}, or no longer"
            )
        self.entries[session, position] = start
        await asyncio.gather(self.find_causes(start), self.find_effects(start))
        return order_hops(self.entries, self.causes, self.outputs)

    def may_go_on(self) -> bool:
        """Say whether what may be spent is not yet, and note it where it is."""
        if self.spending.is_spent:
            self.left.append(f"what follows would cost more than {self.units} request units")
        return not self.spending.is_spent

    def may_add(self) -> bool:
        if len(self.entries) >= ENTRIES_MAX:
            self.left.append(f"no more than {ENTRIES_MAX} entries are told")
        return len(self.entries) < ENTRIES_MAX

    async def find_causes(self, entry: Entry) -> None:
        """Find the entry that sent this one's message, and so on, one after another."""
        for hop in range(HOPS_MAX + 1):
            named = next(((i, s) for i in entry.identities if (s := sender_of(i.number))), None)
            if named is None or not self.may_go_on() or not self.may_add():
                return
            if hop == HOPS_MAX:
                self.left.append(f"what came before {HOPS_MAX} hops is not told")
                return
            identity, sender = named
            try:
                cause = await self.find_cause(entry.session, identity, sender)
            except LockstepError as error:
                self.left.append(f"who sent {identity.id} could not be asked: {error}")
                return
            # A search that was cut has not found that something is gone.
            if cause is None and not self.may_go_on():
                return
            known = SentBy(identity.id, sender.session, cause.position if cause else None)
            self.causes[entry.session, entry.position] = known
            if cause is None:
                return
            if (place := (cause.session, cause.position)) in self.entries:
                return
            self.entries = {place: cause, **self.entries}
            outputs = [one for one in kept_outputs(cause) or () if one.message.id == identity.id]
            kept = ((one.message.type, one.queue) for one in outputs)
            type_, queue = next(kept, (None, None))
            here = entry.position
            self.outputs[place] = [FollowedOutput(identity.id, entry.session, type_, queue, here)]
            entry = cause

    async def find_cause(
        self, session: str, identity: MessageIdentity, sender: Sender
    ) -> Entry | None:
        """Return the entry that sent an output to a session, or None where it is gone.

        By halves, because the numbers of a session's outputs only grow.
        """
        head = await self.journal.head(sender.session, newest=False)
        queues = queues_to(head, session, is_here=sender.is_here) if head else []
        for queue in queues:
            found, below = head, -1
            while found and found.position - below > 1 and not self.spending.is_spent:
                middle = (below + found.position) // 2
                entry = await self.journal.entry(sender.session, middle)
                if entry and has_sent(entry, queue, session, identity.number.sequence):
                    found = entry
                else:
                    below = middle
            kept = (kept_outputs(found) if found else None) or ()
            # Where the entry before it is gone, it may be only the oldest that is left.
            if found and (
                any(one.message.id == identity.id for one in kept)
                or (not kept and identity.id in derive_output_ids(found))
            ):
                return found
        return None

    async def find_effects(self, start: Entry) -> None:
        """Find the entries of this one's outputs, then those of theirs, a hop at a time."""
        hop = [start]
        for _ in range(HOPS_MAX):
            if not hop or not self.may_go_on() or not self.may_add():
                return
            found = await asyncio.gather(*map(self.find_next, hop))
            hop = []
            for entry in (one for several in found for one in several):
                place = entry.session, entry.position
                # A message may come round to a session: an entry is looked at once.
                if place not in self.entries and self.may_add():
                    self.entries[place] = entry
                    hop += [] if entry.outbox.is_empty else [entry]
        if hop:
            self.left.append(f"what came after {HOPS_MAX} hops is not told")

    async def find_next(self, entry: Entry) -> Sequence[Entry]:
        """Return the entries of an entry's outputs, and note what became of each output."""
        place, outputs = (entry.session, entry.position), kept_outputs(entry)
        if outputs is None:
            return await self.find_unkept(entry)
        if len(outputs) > OUTPUTS_MAX:
            many = len(outputs) - OUTPUTS_MAX
            self.left.append(
                f"{many} more outputs of position {place[1]} of {place[0]} are not told"
            )
        by_session: dict[str, list[KeptOutput]] = {}
        for one in outputs[:OUTPUTS_MAX]:
            by_session.setdefault(one.message.session, []).append(one)
        several = await asyncio.gather(
            *(self.find_outputs(entry, session, sent) for session, sent in by_session.items())
        )
        self.outputs[place] = [output for outputs, _ in several for output in outputs]
        return [one for _, entries in several for one in entries]

    async def find_outputs(
        self, entry: Entry, session: str, sent: Sequence[KeptOutput]
    ) -> tuple[list[FollowedOutput], list[Entry]]:
        """Return what became of an entry's outputs for a session, and the entries that say so."""
        outputs, entries = list[FollowedOutput](), list[Entry]()
        try:
            async with self.slots:
                ids = [one.message.id for one in sent]
                found = await self.journal.entries_naming(ids, session, limit=4 * len(ids))
                head: Entry | None = None
                for one in sent:
                    queue = self.queues.resolve(one.queue)
                    output = FollowedOutput(one.message.id, session, one.message.type, queue)
                    outputs.append(output)
                    if (reached := choose_entry(found, one.message.id)) is not None:
                        outputs[-1] = replace(output, position=reached.position)
                        entries.append(reached)
                        continue
                    head = head or await self.journal.head(session, newest=False)
                    said = await self.explain_absence(entry, one, head)
                    # A search that was cut has not found that there is no entry.
                    if self.may_go_on():
                        outputs[-1] = replace(output, said=said)
        except LockstepError as error:
            self.left.append(f"session {session} could not be asked: {error}")
        return outputs, entries

    async def find_unkept(self, entry: Entry) -> Sequence[Entry]:
        """Return the entries of outputs that an entry does not keep in itself, by their ids.

        No handler is run for it.
        """
        place, before = f"position {entry.position} of {entry.session}", None
        try:
            if entry.position:
                before = await self.journal.entry(entry.session, entry.position - 1)
            if before is None and entry.position:
                self.left.append(f"where {place} sent its outputs is not known any more")
                return []
            sessions = sessions_sent_to(before.produced if before else {}, entry)
            ids = derive_output_ids(entry)
            searches = (
                self.journal.entries_naming(ids, one, limit=len(ids))
                for one in sessions[:OUTPUTS_MAX]
            )
            several = await asyncio.gather(*searches)
        except LockstepError as error:
            self.left.append(f"the outputs of {place} could not be asked for: {error}")
            return []
        found = [one for entries in several for one in entries]
        self.outputs[entry.session, entry.position] = [
            FollowedOutput(identity.id, one.session, identity.type, position=one.position)
            for one in found
            for identity in one.identities
            if identity.id in ids
        ]
        reached = {one.session for one in found}
        self.left += [
            f"{place} sent outputs to {one}, of which no entry is found"
            for one in sessions[:OUTPUTS_MAX]
            if one not in reached and not self.spending.is_spent
        ]
        if len(sessions) > OUTPUTS_MAX or len(entry.identities) > MESSAGES_MAX:
            self.left.append(f"not all outputs of {place} are told")
        return found

    async def explain_absence(self, entry: Entry, sent: KeptOutput, head: Entry | None) -> str:
        """Return why no entry names an output, as far as it can be known."""
        message = sent.message
        if message.id in entry.outbox.refused:
            return f"refused: {entry.outbox.refused[message.id]}"
        queue = self.queues.resolve(sent.queue)
        if queue != self.queues.here:
            return f"sent to {queue}, and this app has no entry of it"
        if await self.was_processed(message, head):
            return "processed, and its entry was removed since"
        if entry.outbox.regions:
            return f"pending for {', '.join(entry.outbox.regions)}"
        return "not processed yet" + (
            f", due at {message.time}" if message.reminder is not None else ""
        )

    async def was_processed(self, message: Message, head: Entry | None) -> bool:
        if message.number is None:
            return await self.journal.marker(message.session, message.id) is not None
        if head is None:
            return False
        group = message.number.group
        known = await self.worker.with_cursors(head, [group])
        return cursor_of(known, group).next > message.number.sequence
