"""What a run must have led to, whatever the handlers: judged by what was written and queued."""

from collections import Counter
from collections.abc import Iterable, Iterator

from shared.domain.handler import Kind
from shared.domain.journal import ARRIVALS, Entry, MessageIdentity, Status
from shared.domain.message import Message
from simulation.host import QUEUE
from simulation.lineage import Lineage
from simulation.tally import Identity
from simulation.verdict_on_outputs import output_violations
from simulation.verdict_on_rest import quiet_violations, rest_violations
from simulation.verdict_on_sagas import saga_violations
from simulation.witness import Violation
from simulation.world import World

type Ends = dict[Identity, list[Entry]]
type Contents = dict[Identity, list[Message]]


def violations(world: World) -> Iterator[Violation]:
    """Every broken promise of a run that came to rest."""
    yield from world.journal.store.violations
    for surprise in world.tally.surprises:
        yield Violation("P9", f"nobody expected {surprise}")
    contents = everything_that_came(world)
    lineages = [lineage_of(world, session, contents) for session in world.journal.store.entries]
    for lineage in lineages:
        yield from lineage.tell()
        yield from once_and_in_order(lineage)
    yield from ends_violations(world, lineages)
    yield from output_violations(world, lineages)
    yield from rest_violations(world)
    yield from saga_violations(world)
    if world.weather.climate.is_fair:
        yield from quiet_violations(world)


def everything_that_came(world: World) -> Contents:
    """Every message that any region's queue ever took in, and every command, with its copies."""
    contents: Contents = {name: list(copies) for name, copies in world.commands.items()}
    for namespace in world.namespaces.values():
        for queued in namespace.accepted[QUEUE]:
            contents.setdefault(identity(queued.message), []).append(queued.message)
    return contents


def identity(message: Message) -> Identity:
    """What tells a message from every other, copies apart."""
    return (message.session, message.id, message.digest)


def lineage_of(world: World, session: str, contents: Contents) -> Lineage:
    """A session's life, to be told."""
    return Lineage(
        world.journal.store,
        session,
        world.handlers,
        world.policy.output_queue,
        contents,
        world.operator.corrections,
    )


def once_and_in_order(lineage: Lineage) -> Iterator[Violation]:
    """At most one effect per message and per number; each group's in order, levels growing."""
    completed = [c for c, entry in lineage.ends if entry.status is Status.COMPLETED]
    for what, count in Counter((c.id, c.digest) for c in completed).items():
        if count > 1:
            yield Violation("P2", f"{lineage.session}: {what} had {count} effects")
    newest: dict[str, MessageIdentity] = {}
    for covered in completed:
        number = covered.number
        before = newest.get(number.group)
        if before is not None and number.group != ARRIVALS:
            if (before.number.sequence, before.number.level) >= (number.sequence, number.level):
                yield Violation("P3", f"{lineage.session}: {number} after {before.number}")
            if before.number.level > number.level:
                yield Violation("P2", f"{lineage.session}: {number} is fenced by {before.number}")
        newest[number.group] = covered


def ends_violations(world: World, lineages: Iterable[Lineage]) -> Iterator[Violation]:
    """Every message that was accepted has an end with a name."""
    ends: Ends = {}
    forwarded: list[Message] = []
    reasons: list[str] = []
    for lineage in lineages:
        for covered, entry in lineage.ends:
            if entry.status is not Status.PARKED:
                key = (lineage.session, covered.id, covered.digest)
                ends.setdefault(key, []).append(entry)
            if entry.from_parked and entry.reason:
                reasons.append(entry.reason)
        forwarded += [message for queue, message in lineage.outputs if queue == QUEUE]
    for message in [*world.senders.mailed.safe, *forwarded]:
        # A fenced producer's message that gave way is named by the entry that took its place.
        is_named = identity(message) in ends or any(message.id in reason for reason in reasons)
        if not is_named and not is_excused(world, message):
            yield Violation("P1", f"{message.session}: {message} has no end")
    for session, group, drafts in world.senders.mailed.doubtful:
        found = [identity(draft.in_session(session)) in ends for draft in drafts]
        if any(found) != all(found):
            yield Violation("P1", f"{session}: {group} published only part of {drafts}")


def is_excused(world: World, message: Message) -> bool:
    """Whether a message ended outside the journal: rejected by name, or passed through it."""
    kind = world.handlers.kind_of(message.type)
    passes = message.number is None and kind is Kind.IDEMPOTENT
    return passes or identity(message) in world.tally.rejected
