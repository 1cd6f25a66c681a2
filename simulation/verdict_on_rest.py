"""What is left when all is at rest: little; and in fair weather nothing was done in vain."""

from collections import Counter
from collections.abc import Iterator

from shared.domain.next_entry import state_position
from shared.domain.reports import TOMBSTONE_TYPE
from shared.storage import documents
from shared.storage.documents import decode_entry
from simulation.broker import Namespace
from simulation.variant import LONG_DELAY_SECONDS
from simulation.witness import Violation
from simulation.world import World

# What a session at rest is made of.
KINDS_AT_REST = frozenset({"genesis", "entry", "ledger", "marker"})


def rest_violations(world: World) -> Iterator[Violation]:
    """Nothing is left over, and compaction has removed what is old."""
    store = world.journal.store
    for session, partition in store.partitions.items():
        for document in partition.values():
            if document["kind"] not in KINDS_AT_REST and document.get("ttl", -1) < 0:
                yield Violation("P8", f"{session}: {document['id']} is left over")
        if world.variant.small_limits:
            yield from long_journals(world, session)


def long_journals(world: World, session: str) -> Iterator[Violation]:
    """Everything below the newest milestone went, but what the milestone's state needs."""
    entries = world.journal.store.entries[session]
    kept = [
        int(d["id"]) for d in world.journal.partitions[session].values() if d["kind"] == "entry"
    ]
    milestone = max(entries, default=0) // documents.MILESTONE_EVERY * documents.MILESTONE_EVERY
    if not milestone:
        return
    state_at = state_position(decode_entry(entries[milestone]))
    floor = milestone if state_at is None else min(milestone, state_at)
    if min(kept) < floor:
        yield Violation("P8", f"{session}: entries from {min(kept)} on are kept, not {floor}")


def quiet_violations(world: World) -> Iterator[Violation]:
    """In fair weather nothing is abandoned, delivered again, taken over or sent twice."""
    for abandoned in world.tally.abandoned:
        yield Violation("P7", f"a delivery was abandoned: {abandoned}")
    for namespace in world.namespaces.values():
        if namespace.redeliveries:
            yield Violation("P7", f"{namespace.region}: {namespace.redeliveries} redeliveries")
        if world.variant.delay_seconds == LONG_DELAY_SECONDS:
            yield from sent_twice(world, namespace)
    # A step's own time may be too short for its handler; then its claim is left behind.
    is_hasty = any("took over" in failure for failure in world.tally.failures)
    for where in () if is_hasty else world.journal.store.taken_over:
        yield Violation("P7", f"{where} was taken over")


def sent_twice(world: World, namespace: Namespace) -> Iterator[Violation]:
    """Messages of which a region took more than one copy.

    Not those of sessions that a person helped, nor of producers that others took over from, nor
    what is sent without a journal, nor what stood beside an output that its queue refused.
    """
    restless = {f"session:{session}" for session, _ in world.operator.looks} | world.contested
    for queue, accepted in namespace.accepted.items():
        beside = {q.message.correlation for q in accepted if q.message.type == TOMBSTONE_TYPE} - {
            None
        }
        copies = Counter(
            (message.id, message.number)
            for message in (queued.message for queued in accepted)
            if message.number is not None
            and message.number.group not in restless
            and message.correlation not in beside
        )
        twice = [key for key, count in copies.items() if count > 1]
        if twice:
            yield Violation("P7", f"{namespace.region} {queue}: {twice} sent twice")
