"""A journal lies in another store as well: SQLite keeps the contract, and two workers share it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.domain.journal import Owner
from shared.engine.build import Services, build
from shared.engine.publish.publish import Producer
from shared.ports import Container
from shared.storage.journal import Journal
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_store import VirtualClock
from tests.contract.container import ContainerContract
from tests.contract.sqlite_container import SqliteContainer
from tests.contract.test_queries_over_the_wire import FOUND, fill, said
from tests.world import IMPATIENT, REGIONS, World, handlers, message


class TestSqliteContainer(ContainerContract):
    @pytest.fixture
    def container(self, tmp_path: Path) -> Iterator[Container]:
        container = SqliteContainer(tmp_path / "journal.sqlite")
        yield container
        container.close()


async def test_every_query_finds_there_what_it_finds_in_memory(tmp_path: Path) -> None:
    twin, stored = MemoryJournal(VirtualClock()), SqliteContainer(tmp_path / "journal.sqlite")
    await fill(twin)
    await fill(Journal(stored))

    found = {name: await said(stored, query) for name, query in FOUND.items()}
    expected = {name: await said(twin.container, query) for name, query in FOUND.items()}
    stored.close()

    assert {n: (found[n], expected[n]) for n in FOUND if found[n] != expected[n]} == {}


async def test_two_regions_that_share_it_do_everything_once_and_in_order(tmp_path: Path) -> None:
    world, opened = World(), [SqliteContainer(tmp_path / "journal.sqlite") for _ in REGIONS]

    def worker(region: str, container: SqliteContainer) -> Services:
        journal, delivery = Journal(container), world.delivery()
        owner, producer = Owner(region, f"{region}-1"), Producer(journal, world.delivery())
        return build(journal, delivery, world.clock, owner, handlers, producer, IMPATIENT)

    workers = [worker(*pair) for pair in zip(REGIONS, opened, strict=True)]
    sent = [message(n, kind="account.bill") for n in range(10)]
    # Each region gets a copy of everything, one of them backwards.
    await asyncio.gather(
        *(workers[0].consumer.consume(one) for one in sent),
        *(workers[1].consumer.consume(replace(one)) for one in reversed(sent)),
    )
    for one in workers:
        await one.recovery.sweep()

    head = await workers[0].journal.head("acc-7")
    assert head is not None
    assert (await workers[1].worker.input_after(head)).state["amounts"] == list(range(1, 11))
    for region in REGIONS:
        arrived = dict(world.outputs(region))
        totals = [body.split(b'"total":')[1].split(b",")[0] for body in arrived.values()]
        assert [int(total.rstrip(b"}")) for total in totals] == [
            n * (n + 1) // 2 for n in range(1, 11)
        ]
    for container in opened:
        container.close()
