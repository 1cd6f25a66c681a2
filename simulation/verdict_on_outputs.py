"""Both regions have every output: the same bytes, in order, none missing, none that is a ghost."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shared.domain.message import Message
from shared.domain.reports import make_tombstone
from simulation.broker import BODY_BYTES_MAX, Namespace
from simulation.host import QUEUE
from simulation.lineage import Lineage
from simulation.witness import Violation
from simulation.world import World

REJECTED_TYPE = "lockstep.rejected"

# A queue, the session that sends, and the session that is sent to.
type Way = tuple[str, str, str]


@dataclass
class Expected:
    """Outputs by their way, in order, and by queue and id."""

    ways: dict[Way, list[Message]] = field(default_factory=lambda: defaultdict(list))
    known: dict[tuple[str, str], tuple[Way, Message]] = field(default_factory=dict)

    def add(self, source: str, queue: str, output: Message) -> None:
        """Expect an output, once: a fault that is met again is reported again."""
        message = output if len(output.body) <= BODY_BYTES_MAX else make_tombstone(output)
        way = (queue, source, message.session)
        if (queue, message.id) not in self.known:
            self.ways[way].append(message)
            self.known[queue, message.id] = (way, message)


def output_violations(world: World, lineages: Iterable[Lineage]) -> Iterator[Violation]:
    """Compare what both regions took with what the journals say."""
    expected = Expected()
    for lineage in lineages:
        for queue, output in lineage.outputs:
            expected.add(lineage.session, queue, output)
    excused = excused_ids(world)
    for namespace in world.namespaces.values():
        yield from compare(namespace, expected, excused)
    for report in world.tally.rejected.values():
        if not any(
            queued.message.id == report
            for namespace in world.namespaces.values()
            for queued in namespace.accepted[world.policy.error_queue]
        ):
            yield Violation("P9", f"the rejected {report} is in no error queue")


def excused_ids(world: World) -> set[str]:
    """Ids of messages that no entry sent: those of senders, reports, and what was passed on."""
    ids = set(world.tally.rejected.values())
    for namespace in world.namespaces.values():
        for queued in namespace.accepted[QUEUE]:
            ids.add(queued.message.id)
    return ids


def compare(namespace: Namespace, expected: Expected, excused: set[str]) -> Iterator[Violation]:
    """What a region took against what it should have."""
    seen: dict[Way, dict[str, None]] = defaultdict(dict)
    for queue, arrivals in namespace.accepted.items():
        for queued in sorted(arrivals, key=lambda queued: queued.visible_at):
            message = queued.message
            known = expected.known.get((queue, message.id))
            if known is None:
                # Who rejects may die before it can tell.
                is_excused = message.id in excused or message.correlation in excused
                if not is_excused and message.type != REJECTED_TYPE:
                    yield Violation("P5", f"{namespace.region} {queue}: {message} is a ghost")
            elif message != known[1]:
                yield Violation("P4", f"{namespace.region} {queue}: {message}, not {known[1]}")
            else:
                seen[known[0]][message.id] = None
    for way, messages in expected.ways.items():
        ids = [message.id for message in messages]
        if list(seen[way]) != ids:
            yield Violation("P5", f"{namespace.region} {way}: {list(seen[way])}, not {ids}")
