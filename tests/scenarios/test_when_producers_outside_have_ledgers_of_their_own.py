"""Producers outside write to a container of their own, and their messages are as safe."""

from dataclasses import replace

import pytest

from functions.triggers.recover import sweep_ledgers
from shared.adapters.cosmos import CosmosContainer
from shared.domain.errors import Misconfigured
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.build import Services, build
from shared.engine.dispatch.deliver import Delivery
from shared.engine.publish.publish import Producer
from shared.settings import InvalidSettings, Settings
from shared.storage.journal import Journal
from shared.testkit.memory import MemoryJournal
from shared.wiring import Adapters, connect
from tests.unit.shared.test_settings import ENVIRONMENT
from tests.world import DELAY_SECONDS, LAG_SECONDS, QUEUES, World, handlers

OPTIONS = ProducerOptions("bank")
DRAFTS = [Draft(f"m-{n}", "account.add", b'{"amount":1}') for n in range(2)]


def outsiders_of(world: World, ledgers: MemoryJournal, region: str) -> Services:
    """An app's services over the container of the ledgers."""
    delivery = world.delivery()
    owner = replace(world.east.worker.owner, region=region)
    producer = Producer(ledgers, delivery)
    return build(ledgers, delivery, world.clock, owner, handlers, producer, world.policy)


async def test_when_a_region_is_dark_its_own_sweep_delivers_what_the_producer_could_not() -> None:
    world = World()
    ledgers = MemoryJournal(world.clock)
    producer = Producer(ledgers, world.delivery())
    world.bus.unavailable.add("west")

    published = await producer.publish("acc-7", DRAFTS, OPTIONS)
    world.bus.unavailable.clear()
    # Nothing of it is in the journal, which the producer has no right to.
    assert "acc-7" not in world.journal.partitions
    await world.clock.sleep(LAG_SECONDS + 60)
    await sweep_ledgers(outsiders_of(world, ledgers, "west"))

    sent = world.bus.messages("west", "in")
    assert sent == world.bus.messages("east", "in") == list(published.messages)
    assert [d for d in ledgers.partitions["acc-7"].values() if d.get("pending")] == []
    for one in (*sent, *sent):
        await world.west.consumer.consume(one)
    assert world.amounts() == [1, 1]
    # A producer that starts anew goes on where the ledger ends.
    again = Producer(ledgers, world.delivery())
    later = await again.publish("acc-7", [replace(DRAFTS[0], id="m-9")], OPTIONS)
    assert [one.number.sequence for one in later.messages if one.number] == [2]


async def test_a_producer_that_knows_other_regions_than_the_apps_is_refused() -> None:
    world = World()
    ledgers = MemoryJournal(world.clock)
    await sweep_ledgers(outsiders_of(world, ledgers, "east"))

    alone = Delivery(world.bus, world.clock, ("east",), DELAY_SECONDS, QUEUES)
    with pytest.raises(Misconfigured, match="regions"):
        await Producer(ledgers, alone).publish("acc-7", DRAFTS, OPTIONS)


def name_of(journal: Journal) -> str:
    """The container that a journal is kept in."""
    assert isinstance(journal.container, CosmosContainer)
    return journal.container.name


def test_producers_use_the_container_of_the_ledgers_and_the_app_its_journal() -> None:
    settings = Settings.read(ENVIRONMENT | {"LOCKSTEP_LEDGERS": "ledgers"})
    adapters = Adapters.of(settings)

    services = connect(settings, handlers, adapters)

    assert name_of(adapters.keep_ledgers(settings).journal) == "ledgers"
    assert name_of(adapters.journal) == "journal"
    assert services.outsiders is not None
    assert name_of(services.outsiders.journal) == "ledgers"
    assert services.journal is services.producer.journal is adapters.journal
    assert connect(Settings.read(ENVIRONMENT), handlers).outsiders is None


def test_ledgers_that_are_the_journal_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="LOCKSTEP_LEDGERS and LOCKSTEP_JOURNAL"):
        Settings.read(ENVIRONMENT | {"LOCKSTEP_LEDGERS": "journal"})
