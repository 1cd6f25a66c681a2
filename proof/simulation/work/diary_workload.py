"""The requests to diaries: asks in both regions, also under the same key, beside messages."""

import json
import random
from dataclasses import replace

from proof.simulation.work.diaries import CALL, FAIL, READ, TELL, WRITE
from proof.simulation.world.cloud import REGIONS
from proof.simulation.world.variant import Variant
from proof.simulation.world.workload import (
    Ask,
    HttpRequest,
    KeyedPost,
    Operation,
    PublishPlan,
    StateRead,
    Workload,
    moment,
)
from shared.domain.message import Message, derive_id
from shared.domain.producer import HTTP_SOURCE, Draft

ASKED = (WRITE, WRITE, WRITE, TELL, CALL, READ, READ, FAIL)
SENT = (WRITE, WRITE, WRITE, TELL, TELL, CALL)
# How long clients wait for an answer: shorter than a lease, longer, and longer than a pause.
PATIENCE_SECONDS = (3.0, 10.0, 40.0)
# Until the faults end it may be that no try is answered.
TRIES_MAX = 400
# Where journals are compacted soon, so is what was answered.
TRIES_OF_COMPACTED = 8


class DiaryRequests:
    """Draws requests; no two lines of a session are the same."""

    def __init__(self, draw: random.Random, variant: Variant) -> None:
        self.draw = draw
        self.variant = variant
        self.lines = 0

    def workload(self) -> Workload:
        publish_plans: list[PublishPlan] = []
        plain: list[Message] = []
        asks: list[tuple[HttpRequest, ...]] = []
        for session in (f"diary-{index}" for index in range(self.variant.sessions)):
            clients = [self.client(session) for _ in range(self.draw.randint(2, 4))]
            asked = [one for own in clients for one in own if isinstance(one, Ask)]
            # The same key elsewhere: from another client, in a queue, with other content.
            for one in asked:
                if self.draw.random() < 0.2:
                    clients.append((self.as_other_client(one),))
                if self.draw.random() < 0.2 and one.message.type in SENT:
                    if one.message.source == HTTP_SOURCE:
                        clients.append((self.as_post(one),))
                    else:
                        plain.append(one.message)
                if self.draw.random() < 0.05:
                    clients.append((self.with_other_content(one),))
            asks += clients
            publish_plans.append(PublishPlan(session, "diarist", self.operations(session)))
            plain += [self.message(session, SENT) for _ in range(self.draw.randint(0, 2))]
        return Workload(tuple(publish_plans), plain=tuple(plain), asks=tuple(asks))

    def client(self, session: str) -> tuple[HttpRequest, ...]:
        return tuple(self.request(session) for _ in range(self.draw.randint(1, 4)))

    def request(self, session: str) -> HttpRequest:
        regions = self.draw.choice((REGIONS, REGIONS[::-1], REGIONS[:1], REGIONS[1:]))
        seconds = self.draw.choice(PATIENCE_SECONDS)
        most = TRIES_OF_COMPACTED if self.variant.small_limits else TRIES_MAX
        tries = 1 if self.draw.random() < 0.15 else most
        if self.draw.random() < 0.25:
            return StateRead(session, regions, seconds, tries)
        wait_seconds = self.draw.choice((0.0, seconds / 2))
        message = self.message(session, ASKED)
        if self.draw.random() < 0.5:
            message = replace(message, source=HTTP_SOURCE)
        ask = Ask(message, regions, seconds, tries, wait_seconds)
        return self.as_post(ask) if message.type in SENT and self.draw.random() < 0.1 else ask

    def as_post(self, ask: Ask) -> KeyedPost:
        message = replace(ask.message, source=HTTP_SOURCE)
        return KeyedPost(message, ask.regions[::-1], self.draw.choice(PATIENCE_SECONDS), ask.tries)

    def as_other_client(self, ask: Ask) -> Ask:
        return replace(ask, regions=ask.regions[::-1], seconds=self.draw.choice(PATIENCE_SECONDS))

    def with_other_content(self, ask: Ask) -> Ask:
        message = replace(ask.message, type=WRITE, body=self.body())
        return self.as_other_client(replace(ask, message=message))

    def operations(self, session: str) -> tuple[Operation, ...]:
        return tuple(
            tuple(self.draft(session) for _ in range(self.draw.randint(1, 3)))
            for _ in range(self.draw.randint(1, self.variant.messages))
        )

    def draft(self, session: str) -> Draft:
        message = self.message(session, SENT)
        return Draft(message.id, message.type, message.body, message.time)

    def message(self, session: str, kinds: tuple[str, ...]) -> Message:
        body = self.body()
        name = derive_id(session, str(self.lines))
        return Message(name, session, self.draw.choice(kinds), body, time=moment(0.0))

    def body(self) -> bytes:
        self.lines += 1
        return json.dumps({"line": f"line {self.lines}"}).encode()
