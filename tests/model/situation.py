"""What the model is made of: a journal, two brokers, two workers, what was sent, what may fail.

Entries are the engine's own. A situation holds what tells them apart, so that it can be compared;
`Entries` gives the real ones back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.domain.journal import Attempt, Entry, Owner, Status
from shared.domain.message import Message, Number

REGIONS = ("east", "west")
SESSION = "acc-7"
GROUP = "bank"
MESSAGES = tuple(
    Message(f"m{n}", SESSION, "effectful" if n == 1 else "pure", b"{}", Number(GROUP, 0, n))
    for n in range(3)
)

# Which of the entries seen so far it is.
type Key = int


@dataclass
class Entries:
    """The real entries that were seen, each once."""

    real: list[Entry] = field(default_factory=list)
    keys: dict[tuple[object, ...], Key] = field(default_factory=dict)

    def key(self, entry: Entry) -> Key:
        """Which one it is; of entries that nothing tells apart the first is kept."""
        key = self.keys.setdefault(identity(entry), len(self.real))
        if key == len(self.real):
            self.real.append(entry)
        return key


def identity(entry: Entry) -> tuple[object, ...]:
    """What tells an entry from every other."""
    return (
        entry.position,
        entry.status,
        tuple(one.number.sequence for one in entry.identities),
        tuple(sorted((group, cursor.next) for group, cursor in entry.cursors.items())),
        tuple(sorted(entry.parked.items())),
        entry.outbox.regions,
        entry.lagging if entry.outbox.regions else (),
        entry.attempt.id if entry.status is Status.WORKING else "",
    )


class Doing(NamedTuple):
    """What a worker is about to do: a step's name, its message, and what it knows.

    `view` is the head it has read, `at` the position of its own entry.
    """

    step: str = "idle"
    message: int | None = None
    view: Key | None = None
    at: int = -1
    attempt: str = ""


class Situation(NamedTuple):
    """Everything there is at a moment. `sent` are the outputs in order of arrival.

    `crashes` and `slow` are how many workers may still die, or be taken for dead.
    """

    queues: tuple[tuple[int, ...], tuple[int, ...]]
    crashes: int
    slow: int
    journal: tuple[Key, ...] = ()
    parked: frozenset[int] = frozenset()
    workers: tuple[Doing, Doing] = (Doing(), Doing())
    sent: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nobody has anything left to do."""
        return not any(self.queues) and all(worker.step == "idle" for worker in self.workers)


def attempt_of(worker: int, taken_over: int) -> Attempt:
    """An attempt that no other at its position has: whoever takes over has one more try."""
    return Attempt(f"{REGIONS[worker]}.{taken_over}", Owner(REGIONS[worker], REGIONS[worker]))


def sent(now: Situation, position: int) -> Situation:
    """The destination with an output; a copy of what it has changes nothing."""
    return now if position in now.sent else now._replace(sent=(*now.sent, position))


def put[T](pair: tuple[T, T], index: int, value: T) -> tuple[T, T]:
    """A pair with one of the two in place of another."""
    return (value, pair[1]) if index == 0 else (pair[0], value)


class Summary(NamedTuple):
    """What a journal says: effects and claims by message, and the positions that have outputs."""

    done: tuple[int, ...]
    claimed: tuple[int, ...]
    outputs: tuple[int, ...]


def summarise(journal: Sequence[Entry]) -> Summary:
    """What entries say, in their order."""
    done = [entry for entry in journal if entry.status is Status.COMPLETED]
    return Summary(
        done=tuple(entry.identities[0].number.sequence for entry in done),
        claimed=tuple(
            entry.identities[0].number.sequence
            for entry in journal
            if entry.status is Status.WORKING
        ),
        outputs=tuple(entry.position for entry in done),
    )
