"""The promises after a run, whatever the handlers: checked by what was written and queued."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from proof.simulation.checks.sagas import saga_violations
from proof.simulation.checks.session_history import SessionHistory
from proof.simulation.world.broker import BODY_BYTES_MAX, Namespace
from proof.simulation.world.host import QUEUE, QUEUES
from proof.simulation.world.recorder import AbandonedDelivery, Identity, Violation
from proof.simulation.world.variant import LONG_DELAY_SECONDS
from proof.simulation.world.world import World
from shared.domain.handler import Kind
from shared.domain.journal import ARRIVALS, Entry, MessageIdentity, Status
from shared.domain.message import HERE_PREFIX, OUTPUTS_PREFIX, Message
from shared.domain.next_entry import state_position
from shared.domain.reports import make_tombstone
from shared.storage.entries import decode_entry

REJECTED_TYPE = "lockstep.rejected"

# A queue, the session that sends, and the session that is sent to.
type Route = tuple[str, str, str]


@dataclass
class ExpectedOutputs:
    routes: dict[Route, list[Message]] = field(default_factory=lambda: defaultdict(list))
    known: dict[tuple[str, str], tuple[Route, Message]] = field(default_factory=dict)

    def add(self, source: str, queue: str, output: Message) -> None:
        """Expect an output once: a fault may be reported again."""
        message = output if len(output.body) <= BODY_BYTES_MAX else make_tombstone(output)
        route = (queue, source, message.session)
        if (queue, message.id) not in self.known:
            self.routes[route].append(message)
            self.known[queue, message.id] = (route, message)


def output_violations(world: World, histories: Iterable[SessionHistory]) -> Iterator[Violation]:
    expected = ExpectedOutputs()
    for history in histories:
        for queue, output in history.outputs:
            expected.add(history.session, queue, output)
    # No entry sends what senders send or forward, nor reports of rejections.
    excused = set(world.observed.rejected.values())
    for namespace in world.namespaces.values():
        excused |= {queued.message.id for queued in namespace.accepted[QUEUE]}
    for namespace in world.namespaces.values():
        yield from compare(namespace, expected, excused)
    queues = [n.accepted[QUEUES.errors] for n in world.namespaces.values()]
    reported = {queued.message.id for queue in queues for queued in queue}
    for report in world.observed.rejected.values():
        if report not in reported:
            yield Violation("P9", f"the rejected {report} is in no error queue")


def compare(
    namespace: Namespace, expected: ExpectedOutputs, excused: set[str]
) -> Iterator[Violation]:
    seen: dict[Route, dict[str, None]] = defaultdict(dict)
    for queue, arrivals in namespace.accepted.items():
        for queued in sorted(arrivals, key=lambda queued: queued.visible_at):
            message = queued.message
            known = expected.known.get((queue, message.id))
            if known is None:
                # A host that rejects a message may die before that is recorded.
                is_excused = message.id in excused or message.correlation in excused
                if not is_excused and message.type != REJECTED_TYPE:
                    what = f"{namespace.region} {queue}: {message} was sent by nobody"
                    yield Violation("P5", what)
            elif message != known[1]:
                yield Violation("P4", f"{namespace.region} {queue}: {message}, not {known[1]}")
            else:
                seen[known[0]][message.id] = None
    for route, messages in expected.routes.items():
        ids = [message.id for message in messages]
        arrived = list(seen[route])
        # What a queue refused comes after later outputs; its receivers know that by its number.
        if route[0] in namespace.refusing:
            ids, arrived = sorted(ids), sorted(arrived)
        if arrived != ids:
            yield Violation("P5", f"{namespace.region} {route}: {list(seen[route])}, not {ids}")


# What a session consists of when nothing is left to do. A report is listed until a person ends it,
# also that of a host which died before it had rejected the delivery.
FINAL_KINDS = frozenset(
    {"genesis", "entry", "state", "ledger", "marker", "cursor", "regions", "saga", "report"}
)


def leftover_violations(world: World) -> Iterator[Violation]:
    """Check that nothing is left that should be removed, and that what is old is compacted."""
    store = world.journal.store
    for session, partition in store.partitions.items():
        for document in partition.values():
            if document["kind"] not in FINAL_KINDS and document.get("ttl", -1) < 0:
                yield Violation("P8", f"{session}: {document['id']} is left over")
        # Nothing is removed that no archive has, where there has to be one.
        if world.variant.small_limits and not world.variant.policy.keeps_inputs:
            yield from long_journals(world, session)


def long_journals(world: World, session: str) -> Iterator[Violation]:
    """Find entries below the newest milestone, but for what the milestone's state needs."""
    entries = world.journal.store.entries[session]
    stored = world.journal.partitions[session].values()
    kept = {int(d["id"]): decode_entry(d) for d in stored if d["kind"] == "entry"}
    marked = (position for position, entry in entries.items() if entry.get("milestone"))
    milestone = max(marked, default=0)
    if not milestone or not kept:
        return
    state_at = state_position(decode_entry(entries[milestone]))
    floor = milestone if state_at is None else min(milestone, state_at)
    # What a person has to look at stays, too.
    floor = min([floor, *(position for position, entry in kept.items() if entry.is_open)])
    if min(kept) < floor:
        yield Violation("P8", f"{session}: entries from {min(kept)} on are kept, not {floor}")


def fault_free_violations(world: World) -> Iterator[Violation]:
    """Check that without faults nothing is abandoned, delivered again, taken over or sent twice."""
    excused = Counter(a.region for a in world.observed.abandoned if is_kept_out(world, a))
    for abandoned in world.observed.abandoned:
        if not is_kept_out(world, abandoned):
            yield Violation("P7", f"a delivery was abandoned: {abandoned}")
    for namespace in world.namespaces.values():
        redeliveries = namespace.redeliveries - excused[namespace.region]
        if redeliveries > 0:
            yield Violation("P7", f"{namespace.region}: {redeliveries} redeliveries")
        # Where both regions are asked, each one first sends what the other may be about to send.
        if world.variant.delay_seconds == LONG_DELAY_SECONDS and not world.askers.heard:
            yield from sent_twice(world, namespace)
    # A step's own time may be too short for its handler; then its claim is left behind.
    is_hasty = any("took over" in failure for failure in world.observed.failures)
    for where in () if is_hasty else world.journal.store.taken_over:
        yield Violation("P7", f"{where} was taken over")


def is_kept_out(world: World, abandoned: AbandonedDelivery) -> bool:
    """Return whether a delivery was given back as its place beside a claim was another producer's.

    Only one message of a number can be parked beside a claim. The other one waits in its host, with
    what that host holds of the session, and the wait ends before a long claim does.
    """
    has_two = abandoned.message.session in world.taken_over
    return has_two and "other workers keep being first" in str(abandoned.why)


def sent_twice(world: World, namespace: Namespace) -> Iterator[Violation]:
    """Yield the messages of which a region took more than one copy.

    Not those of sessions that a person helped, nor of producers that others took over from, nor
    what is sent without a journal.
    """
    prefixes = (OUTPUTS_PREFIX, HERE_PREFIX)
    helped = {session for session, _ in world.operator.decisions}
    restless = {prefix + session for session in helped for prefix in prefixes} | world.contested
    for queue, accepted in namespace.accepted.items():
        copies = Counter(
            (message.id, message.number)
            for message in (queued.message for queued in accepted)
            if message.number is not None and message.number.group not in restless
        )
        twice = [key for key, count in copies.items() if count > 1]
        if twice:
            yield Violation("P7", f"{namespace.region} {queue}: {twice} sent twice")


def violations(world: World) -> Iterator[Violation]:
    yield from world.journal.store.violations
    for surprise in world.observed.surprises:
        yield Violation("P9", f"an unexpected error: {surprise}")
    copies_by_identity = everything_that_came(world)
    store, corrections = world.journal.store, world.operator.corrections
    histories = [
        SessionHistory(store, session, world.handlers, copies_by_identity, corrections)
        for session in store.entries
    ]
    for history in histories:
        yield from history.check()
        yield from once_and_in_order(history)
    yield from ends_violations(world, histories)
    yield from output_violations(world, histories)
    yield from leftover_violations(world)
    yield from saga_violations(world)
    if world.injector.profile.is_fault_free:
        yield from fault_free_violations(world)


def everything_that_came(world: World) -> dict[Identity, list[Message]]:
    """Yield all that any region's queue took in, and all that was asked, with its copies."""
    copies_by_identity = {name: list(copies) for name, copies in world.asked.items()}
    for namespace in world.namespaces.values():
        for queued in namespace.accepted[QUEUE]:
            copies_by_identity.setdefault(identity(queued.message), []).append(queued.message)
    return copies_by_identity


def identity(message: Message) -> Identity:
    return (message.session, message.id, message.digest)


def once_and_in_order(history: SessionHistory) -> Iterator[Violation]:
    """Check for one effect per message and number, each group's in order, levels growing."""
    completed = [c for c, entry in history.ends if entry.status is Status.COMPLETED]
    for what, count in Counter((c.id, c.digest) for c in completed).items():
        if count > 1:
            yield Violation("P2", f"{history.session}: {what} had {count} effects")
    newest: dict[str, MessageIdentity] = {}
    for identity in completed:
        number = identity.number
        before = newest.get(number.group)
        if before is not None and number.group != ARRIVALS:
            if (before.number.sequence, before.number.level) >= (number.sequence, number.level):
                yield Violation("P3", f"{history.session}: {number} after {before.number}")
            if before.number.level > number.level:
                yield Violation("P2", f"{history.session}: {number} is fenced by {before.number}")
        newest[number.group] = identity


def ends_violations(world: World, histories: Iterable[SessionHistory]) -> Iterator[Violation]:
    """Check that every message that was accepted has an end with a name."""
    ends: dict[Identity, list[Entry]] = {}
    forwarded: list[Message] = []
    reasons: list[str] = []
    for history in histories:
        for ended, entry in history.ends:
            if entry.status is not Status.PARKED:
                key = (history.session, ended.id, ended.digest)
                ends.setdefault(key, []).append(entry)
            if entry.from_parked and entry.reason:
                reasons.append(entry.reason)
        forwarded += [message for queue, message in history.outputs if queue == QUEUE]
    for message in [*world.senders.safe, *forwarded]:
        # A fenced producer's message that gave route is named by the entry that took its place.
        is_named = identity(message) in ends or any(message.id in reason for reason in reasons)
        if not is_named and not is_excused(world, message):
            yield Violation("P1", f"{message.session}: {message} has no end")
    for session, group, drafts in world.senders.uncertain:
        found = [identity(draft.in_session(session)) in ends for draft in drafts]
        if any(found) != all(found):
            yield Violation("P1", f"{session}: {group} published only part of {drafts}")


def is_excused(world: World, message: Message) -> bool:
    """Return whether a message ended outside the journal: rejected, or where none has entries."""
    kind = world.handlers.kind_of(message.type)
    passes = message.number is None and kind is Kind.IDEMPOTENT
    return passes or identity(message) in world.observed.rejected
