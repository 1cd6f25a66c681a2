"""The whole product on one machine: both regions' hosts, a sender, and a look at the journal."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from azure.cosmos import CosmosClient

from local.cloud import Cloud, CloudOptions
from local.config import load_config
from shared.domain.message import Message, Number, derive_id, digest_content
from shared.storage.documents import Document
from shared.wiring import open_producer
from tests.cloud import CONFIG, settings_of

GROUP = "e2e"


@dataclass(frozen=True)
class Stack:
    """A running cloud with hosts."""

    cloud: Cloud

    async def send(self, messages: Mapping[str, list[Message]], **settings: str) -> None:
        """Send every session's messages, one session after another."""
        async with open_producer(settings_of(self.cloud, **settings)) as producer:
            for own in messages.values():
                await producer.send(own)

    def left_in_queues(self) -> int:
        """Messages of the inbound queues that are not settled, dead letters among them."""
        depths = self.cloud.depths()
        return sum(sum(queues["lockstep"].values()) for queues in depths.values())

    def counted(self) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """What `GET /counters` says was done since the start."""
        control = self.cloud.control
        assert control is not None
        with urlopen(f"{control.url}/counters") as answer:
            counters: dict[str, dict[str, dict[str, dict[str, float]]]] = json.load(answer)
        return counters

    def ended(self, component: str, operation: str) -> dict[str, int]:
        """How often an operation of a component ended in each status."""
        rows = self.counted().get(component, {}).get(operation, {})
        return {status: int(row["count"]) for status, row in rows.items()}

    def completed(self, region: str) -> int:
        """How many messages a region has settled."""
        return sum(self.ended(f"servicebus.{region}", "complete").values())

    def entries(self) -> dict[str, list[Document]]:
        """Every session's entries, in order, read with plain azure-cosmos."""
        cosmos = self.cloud.cosmos
        with CosmosClient(cosmos.endpoint, cosmos.key) as client:
            container = client.get_database_client("lockstep").get_container_client("journal")
            found = container.query_items(
                "SELECT * FROM c WHERE c.kind = 'entry'", enable_cross_partition_query=True
            )
            by_session: dict[str, list[Document]] = {}
            for document in sorted(found, key=lambda d: (d["session"], d["id"])):
                by_session.setdefault(document["session"], []).append(document)
        return by_session


@contextmanager
def running_stack(logs: Path, **settings: str) -> Iterator[Stack]:
    """Namespaces, account and a host in each region; settings override those of the config."""
    options = CloudOptions(logs=logs, app=CONFIG.parent, settings=settings)
    with Cloud(load_config(CONFIG), options) as cloud:
        yield Stack(cloud)


def flights(sessions: int, each: int) -> dict[str, list[Message]]:
    """Serial statuses of made-up aircraft."""
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


def until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for a condition, checking often; fails by name when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.01)


def assert_once_and_in_order(
    entries: Mapping[str, list[Document]], sent: Mapping[str, list[Message]]
) -> None:
    """Every journal is exactly what was sent to it, and each entry builds on the one before."""
    assert {s: effects(found) for s, found in entries.items()} == {
        s: [(m.id, digest_content(m.type, m.body)) for m in messages]
        for s, messages in sent.items()
    }
    for found in entries.values():
        assert [e["id"] for e in found] == [f"{n:012d}" for n in range(len(found))]
        assert [e["state"]["events"] for e in found] == list(range(1, len(found) + 1))


def effects(entries: list[Document]) -> list[tuple[Any, Any]]:
    """Ids and digests of what a session's entries cover."""
    return [(c["id"], c["digest"]) for entry in entries for c in entry["covers"]]
