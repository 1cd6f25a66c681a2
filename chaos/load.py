"""The messages of a run: the longest histories of aircraft, with poison among them, in operations.

Everything follows from the seed and the source. An operation is what the sender publishes at once:
consecutive messages of one session.
"""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from chaos.names import CURSED, EFFECTFUL, PURE, UNKNOWN
from chaos.records import Record
from demo.flights import Flight, FlightRejected, read_flight, scheduled_day, statuses
from demo.source import COLUMNS, Row, default_source, read_rows

TAIL_NUMBER = COLUMNS.index("tailnum")
# Of so many messages one calls the outside, one fails for ever, and one is of an unknown type.
EFFECTFUL_EVERY, CURSED_EVERY, UNKNOWN_EVERY = 25, 150, 600
MESSAGES_PER_SESSION = 500
SESSIONS_MIN, SESSIONS_MAX = 24, 400


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as it is handed to the sender."""

    id: str
    type: str
    body: str


@dataclass(frozen=True, slots=True)
class Operation:
    """Consecutive messages of a session; `first` is the number of the first."""

    session: str
    first: int
    letters: tuple[Letter, ...]

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> "Operation":
        """Read an operation back."""
        letters = tuple(Letter(*letter) for letter in line["letters"])
        return cls(line["session"], line["first"], letters)

    def line(self) -> dict[str, Any]:
        """The operation as JSON."""
        letters = [[letter.id, letter.type, letter.body] for letter in self.letters]
        return {"session": self.session, "first": self.first, "letters": letters}


def write_load(path: Path, messages: int, operation_max: int, seed: int) -> int:
    """Write the operations of about so many messages; return how many messages there are."""
    chance = random.Random(f"load {seed}")  # noqa: S311 - a replayable choice, not a secret
    sessions = min(SESSIONS_MAX, max(SESSIONS_MIN, messages // MESSAGES_PER_SESSION))
    histories = longest_histories(sessions)
    poisoned = {session: list(letters(session, told, chance)) for session, told in histories}
    written = 0
    with Record(path) as record:
        for operation in operations(poisoned, operation_max, chance):
            record.append(operation.line())
            written += len(operation.letters)
            if written >= messages:
                break
    return written


def longest_histories(sessions: int) -> Iterator[tuple[str, list[str]]]:
    """The statuses of the aircraft that fly most, as bodies in their order."""
    rows = [row for row in read_rows(default_source()) if row is not None]
    flown = Counter(row[TAIL_NUMBER] for row in rows if row[TAIL_NUMBER])
    wanted = {name for name, _ in sorted(flown.items(), key=busiest)[:sessions]}
    told: defaultdict[str, list[str]] = defaultdict(list)
    for session, _, body in statuses(flights(row for row in rows if row[TAIL_NUMBER] in wanted)):
        told[session].append(body)
    yield from told.items()


def busiest(flown: tuple[str | None, int]) -> tuple[int, str]:
    """What sorts the busiest aircraft first."""
    return -flown[1], flown[0] or ""


def flights(rows: Iterable[Row]) -> Iterator[Flight]:
    """The rows that can be told as flights."""
    seen: set[Row] = set()
    for row in rows:
        try:
            yield read_flight(row, scheduled_day(row[:3]), seen)
        except FlightRejected:
            continue


def letters(session: str, bodies: Sequence[str], chance: random.Random) -> Iterator[Letter]:
    """A session's messages: its statuses, and here and there one that is sent to fail."""
    for place, body in enumerate(bodies):
        if not chance.randrange(CURSED_EVERY):
            yield Letter(identity(session, place, CURSED), CURSED, body)
        kind = PURE if chance.randrange(EFFECTFUL_EVERY) else EFFECTFUL
        yield Letter(identity(session, place, kind), kind, body)


def identity(session: str, place: int, kind: str) -> str:
    """A message's id."""
    return sha256(f"{session}\n{place}\n{kind}".encode()).hexdigest()[:32]


def operations(
    sessions: Mapping[str, list[Letter]], operation_max: int, chance: random.Random
) -> Iterator[Operation]:
    """Operations of all sessions, mixed; messages of unknown types come in sessions of their own.

    Such a message halts its session until a person resolves it, so nothing may follow it there.
    """
    left = {session: deque(letters) for session, letters in sessions.items()}
    sent: Counter[str] = Counter()
    while left:
        session = chance.choice(list(left))
        size = chance.randint(1, operation_max)
        taken = [left[session].popleft() for _ in range(min(size, len(left[session])))]
        if not left[session]:
            del left[session]
        if not chance.randrange(max(1, UNKNOWN_EVERY // operation_max)):
            yield unheard_of(f"unheard-of-{sent.total()}", taken[0].body)
        if taken:
            yield Operation(session, sent[session], tuple(taken))
            sent[session] += len(taken)


def unheard_of(session: str, body: str) -> Operation:
    """A message of a type that no handler knows."""
    return Operation(session, 0, (Letter(identity(session, 0, UNKNOWN), UNKNOWN, body),))
