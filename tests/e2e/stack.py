"""The whole product on one machine: both regions' hosts, a sender, and a look at the journal."""

import json
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from cli.cloud import app_settings
from local.testing.answers import KEY, request
from local.testing.cloud import CloudProcess
from local.testing.control import count_operations
from proof.testbed.cloud import running_cloud
from proof.testbed.faults import components_down, hosts_killed
from shared.domain.journal import Status
from shared.domain.message import Message, Number, derive_id, digest_content
from shared.settings import Settings
from shared.wiring import Adapters, open_producer

GROUP = "e2e"
REGIONS = ("east", "west")

type StoredDocument = dict[str, Any]


@dataclass
class Stack:
    """A running cloud with hosts. A region can be killed, and started with what its hub holds."""

    cloud: CloudProcess
    down: dict[str, ExitStack] = field(default_factory=dict)

    async def send(self, messages: Mapping[str, list[Message]], **settings: str) -> None:
        """Send every session's messages, one session after another."""
        reached = Settings.read(app_settings(self.cloud) | settings)
        async with open_producer(reached) as producer:
            for own in messages.values():
                await producer.send(own)

    async def put(self, region: str, message: Message) -> None:
        """Put a message into one region's queue, as a sender without a producer does."""
        adapters = Adapters.of(Settings.read(app_settings(self.cloud)))
        async with AsyncExitStack() as opened:
            opened.push_async_callback(adapters.close)
            await adapters.bus.send(region, "lockstep", [message])

    def left_in_queues(self) -> int:
        """Messages of the inbound queues that are not settled, dead letters among them."""
        depths = self.cloud.control.read_depths()
        return sum(sum(queues["lockstep"].values()) for queues in depths.values())

    def ended(self, component: str, operation: str) -> dict[str, int]:
        """How often an operation of a component ended in each status."""
        rows = self.cloud.control.read_counters().get(component, {}).get(operation, {})
        return {status: int(row["count"]) for status, row in rows.items()}

    def completed(self, region: str) -> int:
        counters = self.cloud.control.read_counters()
        return count_operations(counters, f"servicebus.{region}", "complete")

    def has_pending(self) -> bool:
        """Whether an output is to be sent yet, or to be acknowledged."""
        return any(entry.get("pending") for own in self.entries().values() for entry in own)

    def entries(self) -> dict[str, list[StoredDocument]]:
        found = self.search("SELECT * FROM c WHERE c.kind = 'entry'")
        by_session: dict[str, list[StoredDocument]] = {}
        for document in sorted(found, key=lambda d: (d["session"], d["id"])):
            by_session.setdefault(document["session"], []).append(document)
        return by_session

    def search(self, query: str) -> list[StoredDocument]:
        """What the journal holds, read with plain azure-cosmos."""
        with self.cloud.open_container() as container:
            return list(container.query_items(query, enable_cross_partition_query=True))

    def kill(self, region: str) -> None:
        """Kill a region's host; its task hub is out of reach from then on."""
        self.down[region] = ExitStack()
        self.down[region].enter_context(hosts_killed(self.cloud.control, region))
        self.down[region].enter_context(components_down(self.cloud.control, f"durable.{region}"))

    def start(self, region: str) -> None:
        self.down.pop(region).close()

    def ask(self, region: str, path: str, method: str = "GET", document: Any = None) -> Any:
        """Status and document of an HTTP response."""
        body = json.dumps(document).encode() if document is not None else None
        key = KEY | {"Idempotency-Key": derive_id(path, repr(body))}
        url = f"{self.cloud.contract['hosts'][region]}/api/{path}"
        response = request(url, method, key, body)
        return response.status, json.loads(response.body) if response.body else None

    def start_saga(self, region: str, key: str, **order: Any) -> Any:
        placed = {"customer": "ada", "amount": 10, **order}
        return self.ask(region, f"sagas/{key}?type=order.place", "POST", placed)

    def saga(self, region: str, key: str) -> dict[str, Any]:
        status, document = self.ask(region, f"sagas/{key}")
        assert status == 200, document
        return dict(document)

    def state(self, region: str, session: str) -> dict[str, Any] | None:
        """The state of a session, None while it has none."""
        status, document = self.ask(region, f"sessions/{session.replace(':', '%3A')}")
        return document["head"]["state"] if status == 200 else None


@contextmanager
def running_stack(logs: Path, **settings: str) -> Iterator[Stack]:
    """Namespaces, account and a host in each region; settings override those of the config."""
    with running_cloud(logs=logs, settings=settings) as cloud:
        yield Stack(cloud)


def flights(sessions: int, each: int) -> dict[str, list[Message]]:
    return {
        session: [status(session, n) for n in range(each)]
        for session in (f"N{number:03d}" for number in range(sessions))
    }


def status(session: str, n: int) -> Message:
    """The n-th status of an aircraft: it departs and arrives in turn."""
    what = ("departed", "arrived")[n % 2]
    body = (
        f'{{"at":"2013-01-01T05:17:{n % 60:02d}","delay_minutes":{n},"destination":"IAH",'
        f'"flight":"UA{n // 2}","origin":"EWR","status":"{what}"}}'
    )
    number = Number(GROUP, 0, n)
    return Message(derive_id(session, str(n)), session, "flight.status", body.encode(), number)


def broken(session: str) -> Message:
    """The first status of an aircraft as no aircraft has it."""
    number = Number(GROUP, 0, 0)
    return Message(derive_id(session, "bad"), session, "flight.status", b'{"at":1}', number)


def shot(game: str, n: int, position: int) -> Message:
    """The n-th shot in a game, which its scoreboard is told of."""
    body = b'{"position":%d}' % position
    return Message(derive_id(game, str(n)), game, "range.fire", body, Number(GROUP, 0, n))


def assert_every_shot_is_told(
    entries: Mapping[str, list[StoredDocument]], shots: Mapping[str, list[Message]]
) -> None:
    """The scoreboard of each game was told of every shot, once and in order."""
    for game, own in shots.items():
        scores = select_completed(entries[f"{game}/score"])
        assert [one["sequence"] for e in scores for one in e["identities"]] == [*range(len(own))]
        assert sum(scores[-1]["state"].values()) == len(own)


def assert_once_and_in_order(
    entries: Mapping[str, list[StoredDocument]], sent: Mapping[str, list[Message]]
) -> None:
    """Each journal's effects are exactly what was sent; every entry builds on the one before."""
    assert {s: effects(found) for s, found in entries.items()} == expect_effects(sent)
    for found in entries.values():
        assert [e["id"] for e in found] == [f"{n:012d}" for n in range(len(found))]
        done = select_completed(found)
        applied = accumulate(len(entry["identities"]) for entry in done)
        assert [entry["state"]["events"] for entry in done] == list(applied)


def expect_effects(sent: Mapping[str, list[Message]]) -> dict[str, list[tuple[Any, Any]]]:
    return {s: [(m.id, digest_content(m.type, m.body)) for m in own] for s, own in sent.items()}


def effects(entries: list[StoredDocument]) -> list[tuple[Any, Any]]:
    """Ids and digests of the messages that took effect in a session, in order."""
    return [(c["id"], c["digest"]) for one in select_completed(entries) for c in one["identities"]]


def select_completed(entries: list[StoredDocument]) -> list[StoredDocument]:
    """Those of a session's entries whose messages took effect.

    A message that is delivered again, because its host was killed or waited for a claim, may come
    after the next ones of its session. They are parked until then and take effect behind it.
    """
    return [entry for entry in entries if entry["status"] == Status.COMPLETED.value]
