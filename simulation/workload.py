"""What is sent: a few sessions, numbered and un-numbered messages, of every kind of handler."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from shared.adapters.memory_store import EPOCH_SECONDS
from shared.domain.message import Message, derived_id
from shared.domain.producer import Draft
from simulation.chance import Chance

KINDS = ("account.add", "account.add", "account.bill", "account.state", "account.wire")
RARE_KINDS = ("account.hint",)
GROUPS = ("bank", "till")


@dataclass(frozen=True, slots=True)
class Publication:
    """Drafts that one producer publishes to a session in one operation."""

    session: str
    group: str
    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Publications in the order of sending, and messages of senders that number nothing."""

    publications: tuple[Publication, ...]
    plain: tuple[Message, ...]

    @property
    def sessions(self) -> tuple[str, ...]:
        """Every session that is sent anything."""
        names = [p.session for p in self.publications] + [m.session for m in self.plain]
        return tuple(sorted(set(names)))


def workload(chance: Chance, *, sessions: int, messages: int) -> Workload:
    """A workload of about so many messages a session."""
    publications, plain = [], []
    for index in range(sessions):
        session = f"acc-{index}"
        amount = 1
        for group in GROUPS[: chance.random.randint(1, len(GROUPS))]:
            sent = 0
            while sent < messages:
                size = chance.random.randint(1, 3)
                drafts = tuple(draft(chance, session, group, amount + n) for n in range(size))
                publications.append(Publication(session, group, drafts))
                amount, sent = amount + size, sent + size
        for _ in range(chance.random.randint(0, 2)):
            plain.append(plain_message(chance, session, amount))
            amount += 1
    return Workload(tuple(publications), tuple(plain))


def draft(chance: Chance, session: str, group: str, amount: int) -> Draft:
    """A message that a producer will number; its amount is like no other in its session."""
    kind = chance.pick(RARE_KINDS if chance.random.random() < 0.05 else KINDS)
    body = json.dumps({"amount": amount}).encode()
    return Draft(derived_id(session, group, str(amount)), kind, body, "2026-06-01T00:00:00+00:00")


def plain_message(chance: Chance, session: str, amount: int) -> Message:
    """A message without a number."""
    return Message(
        id=derived_id(session, "plain", str(amount)),
        session=session,
        type=chance.pick(KINDS),
        body=json.dumps({"amount": amount}).encode(),
        time=moment(chance.delay(60.0)),
    )


def moment(seconds: float) -> str:
    """A virtual second as the time on a message."""
    return datetime.fromtimestamp(EPOCH_SECONDS + seconds, UTC).isoformat()
