"""The messages of a run: the longest histories of aircraft, with poison among them, in operations.

Everything follows from the seed and the source. An operation is what the sender publishes at once:
consecutive messages of one session.
"""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from proof.chaos.messages import EFFECTFUL, FAILING, PURE, UNKNOWN
from proof.chaos.records import Record
from proof.testbed import flights

TAIL_NUMBER = flights.COLUMNS.index("tailnum")
# Of so many messages one calls the outside, one fails for ever, and one is of an unknown type.
EFFECTFUL_EVERY, FAILING_EVERY, UNKNOWN_EVERY = 25, 150, 600
MESSAGES_PER_SESSION = 500
SESSIONS_MIN, SESSIONS_MAX = 24, 400


@dataclass(frozen=True, slots=True)
class WorkloadMessage:
    id: str
    type: str
    body: str


@dataclass(frozen=True, slots=True)
class PublishOperation:
    """Consecutive messages of a session; `first` is the number of the first."""

    session: str
    first: int
    messages: tuple[WorkloadMessage, ...]

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> "PublishOperation":
        messages = tuple(WorkloadMessage(*message) for message in line["messages"])
        return cls(line["session"], line["first"], messages)

    def line(self) -> dict[str, Any]:
        messages = [[message.id, message.type, message.body] for message in self.messages]
        return {"session": self.session, "first": self.first, "messages": messages}


def write_workload(path: Path, messages: int, operation_max: int, seed: int) -> int:
    """Write the operations of about so many messages; return how many messages there are."""
    chance = random.Random(f"load {seed}")  # noqa: S311 - a replayable choice, not a secret
    sessions = min(SESSIONS_MAX, max(SESSIONS_MIN, messages // MESSAGES_PER_SESSION))
    histories = read_longest_histories(sessions)
    to_send = {session: list(add_poison(session, own, chance)) for session, own in histories}
    written = 0
    with Record(path) as record:
        for operation in make_operations(to_send, operation_max, chance):
            record.append(operation.line())
            written += len(operation.messages)
            if written >= messages:
                break
    return written


def read_longest_histories(sessions: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the statuses of the aircraft that fly most, as bodies in their order."""
    rows = [row for row in flights.read_rows(flights.default_source()) if row is not None]
    flown = Counter(row[TAIL_NUMBER] for row in rows if row[TAIL_NUMBER])
    busiest = sorted(flown.items(), key=lambda one: (-one[1], one[0] or ""))[:sessions]
    wanted = {name for name, _ in busiest}
    taken: list[flights.Flight] = []
    seen: set[flights.FlightRow] = set()
    for row in rows:
        if row[TAIL_NUMBER] in wanted:
            with suppress(flights.FlightRejected):
                taken.append(flights.read_flight(row, flights.parse_day(row[:3]), seen))
    bodies: defaultdict[str, list[str]] = defaultdict(list)
    for session, _, body in flights.number_statuses(taken):
        bodies[session].append(body)
    yield from bodies.items()


def add_poison(
    session: str, bodies: Sequence[str], chance: random.Random
) -> Iterator[WorkloadMessage]:
    """Yield a session's messages: its statuses, and here and there one that is sent to fail."""
    for place, body in enumerate(bodies):
        if not chance.randrange(FAILING_EVERY):
            yield WorkloadMessage(make_id(session, place, FAILING), FAILING, body)
        kind = PURE if chance.randrange(EFFECTFUL_EVERY) else EFFECTFUL
        yield WorkloadMessage(make_id(session, place, kind), kind, body)


def make_id(session: str, place: int, kind: str) -> str:
    return sha256(f"{session}\n{place}\n{kind}".encode()).hexdigest()[:32]


def make_operations(
    sessions: Mapping[str, list[WorkloadMessage]], operation_max: int, chance: random.Random
) -> Iterator[PublishOperation]:
    """Make operations of all sessions, mixed.

    Messages of unknown types come in sessions of their own: such a message halts its session until
    a person resolves it, so nothing may follow it there.
    """
    left = {session: deque(messages) for session, messages in sessions.items()}
    sent: Counter[str] = Counter()
    while left:
        session = chance.choice(list(left))
        size = chance.randint(1, operation_max)
        taken = [left[session].popleft() for _ in range(min(size, len(left[session])))]
        if not left[session]:
            del left[session]
        if not chance.randrange(max(1, UNKNOWN_EVERY // operation_max)):
            alone = f"unknown-{sent.total()}"
            message = WorkloadMessage(make_id(alone, 0, UNKNOWN), UNKNOWN, taken[0].body)
            yield PublishOperation(alone, 0, (message,))
        if taken:
            yield PublishOperation(session, sent[session], tuple(taken))
            sent[session] += len(taken)
