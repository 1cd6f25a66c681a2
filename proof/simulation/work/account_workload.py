"""The messages to accounts: a few sessions; numbered and un-numbered messages of every kind."""

import json
import random
from datetime import datetime

from proof.simulation.world.variant import Variant
from proof.simulation.world.workload import (
    NumberedSeries,
    Operation,
    PublishPlan,
    Workload,
    moment,
)
from shared.domain.message import Message, Number, derive_id
from shared.domain.producer import Draft
from shared.testkit.memory_store import EPOCH_SECONDS

KINDS = (
    *("account.add", "account.bill", "account.state", "account.wire") * 3,
    *("account.forward", "account.letter", "account.boast"),
)
# What fails, and a type that nobody handles.
BAD_KINDS = ("account.hint", "account.burn", "account.unknown")
PLAIN_KINDS = ("account.add", "account.bill", "account.wire", "account.notify")
GROUPS = ("bank", "till")
# How often a sender that numbers for itself has competition, or a producer is taken over from.
COMPETING_SENDERS = 0.25
TAKEN_OVER = 0.2
# How often a message ends its session, where some do.
ENDINGS = 0.15
LATER_SECONDS = 8.0
LONG_AGO_SECONDS = 30 * 24 * 3600.0


class AccountMessages:
    """Draws messages; no two of a session have the same amount."""

    def __init__(self, draw: random.Random, variant: Variant) -> None:
        self.draw = draw
        self.variant = variant
        self.sessions = [f"acc-{index}" for index in range(variant.sessions)]
        self.amount = 0

    def workload(self) -> Workload:
        publish_plans: list[PublishPlan] = []
        plain: list[Message] = []
        series: list[NumberedSeries] = []
        for session in self.sessions:
            for group in GROUPS[: self.draw.randint(1, len(GROUPS))]:
                publish_plans += self.publish_plans(session, group)
            plain += [self.plain(session) for _ in range(self.draw.randint(0, 2))]
            if self.draw.random() < COMPETING_SENDERS and not self.variant.small_limits:
                series += self.competing_series(session)
        conflicting = [self.conflicting(message) for message in plain if self.draw.random() < 0.15]
        if self.variant.small_limits:
            conflicting = []
        return Workload(tuple(publish_plans), tuple(series), tuple(plain), tuple(conflicting))

    def publish_plans(self, session: str, group: str) -> list[PublishPlan]:
        publish_plans = [PublishPlan(session, group, self.operations(session, group))]
        if self.draw.random() < TAKEN_OVER:
            begin = self.draw.random() * LATER_SECONDS
            operations = self.operations(session, group)[:2]
            publish_plans.append(PublishPlan(session, group, operations, 1, begin))
        return publish_plans

    def operations(self, session: str, group: str) -> tuple[Operation, ...]:
        operations: list[Operation] = []
        sent = 0
        while sent < self.variant.messages:
            size = self.draw.randint(1, 3)
            operations.append(tuple(self.draft(session, group) for _ in range(size)))
            sent += size
        return tuple(operations)

    def draft(self, session: str, group: str) -> Draft:
        kind = self.draw.choice(BAD_KINDS if self.draw.random() < 0.04 else KINDS)
        body = self.body(kind)
        return Draft(derive_id(session, group, str(self.amount)), kind, body, moment(0.0))

    def competing_series(self, session: str) -> list[NumberedSeries]:
        """Make a sender that numbers for itself, and one of a higher owner level in its place."""
        count = self.draw.randint(3, 5)
        from_number = self.draw.randint(1, count - 1)
        begin = self.draw.random() * LATER_SECONDS
        old = tuple(self.numbered(session, 0, n) for n in range(count))
        new = tuple(self.numbered(session, 1, n) for n in range(from_number, count))
        return [NumberedSeries(old), NumberedSeries(new, begin)]

    def numbered(self, session: str, level: int, sequence: int) -> Message:
        identity = derive_id(session, "mainframe", str(level), str(sequence))
        number = Number("mainframe", level, sequence)
        body = self.body("account.bill")
        return Message(identity, session, "account.bill", body, number, moment(0.0))

    def plain(self, session: str) -> Message:
        kind = self.draw.choice(PLAIN_KINDS)
        sent_at = self.draw.random() * LATER_SECONDS
        if self.draw.random() < 0.05:
            sent_at -= LONG_AGO_SECONDS
        body = self.body(kind)
        identity = derive_id(session, "plain", str(self.amount))
        return Message(identity, session, kind, body, time=moment(sent_at))

    def conflicting(self, message: Message) -> Message:
        kind = "account.add"
        body = self.body(kind)
        return Message(message.id, message.session, kind, body, time=message.time)

    def body(self, kind: str) -> bytes:
        self.amount += 1
        body: dict[str, object] = {"amount": self.amount}
        if kind == "account.forward":
            body["to"] = self.draw.choice(self.sessions)
        if kind == "account.burn":
            body["is_wrong"] = True
        return json.dumps(body).encode()


class EndingMessages(AccountMessages):
    """Draws messages of which some end their session, while others are still under way."""

    def draft(self, session: str, group: str) -> Draft:
        if self.draw.random() >= ENDINGS:
            return super().draft(session, group)
        body = self.body("account.close")
        return Draft(
            derive_id(session, group, str(self.amount)), "account.close", body, moment(0.0)
        )


def is_from_long_ago(message: Message) -> bool:
    """Return whether a message without a number is older than anything that is remembered."""
    sent_at = datetime.fromisoformat(message.time or moment(0.0)).timestamp()
    return message.number is None and sent_at < EPOCH_SECONDS - LONG_AGO_SECONDS / 2
