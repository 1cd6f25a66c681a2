"""The SDK adapters keep the contract, over the wire against Azure on one machine."""

from contextlib import suppress
from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.adapters.cosmos import CosmosContainer
from shared.adapters.cosmos_leases import CosmosLeases
from shared.adapters.service_bus import ServiceBus
from shared.domain import wire
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.message import Message
from shared.domain.spending import count_spending, limit_spending
from shared.engine.operate.heartbeats import COMPACT, SWEEP, Heartbeats
from shared.ports import Container, SessionNeed, WriteResult
from shared.settings import Settings
from shared.storage import queries
from shared.storage.documents import version_of
from shared.storage.entries import position_id
from shared.storage.journal import REGIONS_SESSION, Journal
from shared.wiring import Adapters
from tests.cloud import opened_adapters, settings_of
from tests.contract.bus import BusContract
from tests.contract.container import ContainerContract
from tests.entries import arrival, pending_in, step, unnumbered
from tests.world import message

pytestmark = pytest.mark.wire

PARTITIONS = 3  # physical ones, whose results a client must merge
JOURNAL = "cosmos.journal"
# For a fault that stays: a call tries until its time is up.
IMPATIENT = {"LOCKSTEP_JOURNAL_CALL_SECONDS": "2"}


class TestCosmosContainer(ContainerContract):
    @pytest.fixture
    def container(self, adapters: Adapters) -> Container:
        return adapters.journal.container

    @pytest.fixture
    def journal(self, adapters: Adapters) -> Journal:
        return adapters.journal

    async def test_sessions_of_all_physical_partitions_are_merged_by_the_client(
        self, cloud: Cloud, journal: Journal, session: str
    ) -> None:
        for number in range(9):
            await journal.add_pending(
                f"{session}-{number}", pending_in(f"{session}-{number}", "east")
            )
        before = cloud.counters.snapshot()[JOURNAL]

        found = await journal.sessions(
            SessionNeed.DELIVERY, region="east", older_than_seconds=-5, limit=1_000
        )

        assert {one for one in found if session in one} == {f"{session}-{n}" for n in range(9)}
        asked = cloud.counters.snapshot()[JOURNAL]
        assert "query-plan" in asked
        queries = (
            asked["query"]["200"]["count"]
            - before.get("query", {}).get("200", {"count": 0})["count"]
        )
        assert queries >= PARTITIONS

    async def test_what_may_be_old_costs_half(self, journal: Journal, session: str) -> None:
        await journal.append(step(None, session))
        container, head = journal.container, queries.head_query(session)
        costs = []
        for may_be_old in (False, True):
            with count_spending() as read:
                await container.read(session, position_id(0), may_be_old=may_be_old)
            with count_spending() as found:
                await container.find(replace(head, may_be_old=may_be_old))
            costs.append((read.request_units, found.request_units))

        assert costs[1] == tuple(one / 2 for one in costs[0])

    async def test_a_search_that_has_cost_what_it_may_asks_no_further_partition(
        self, journal: Journal, session: str
    ) -> None:
        for number in range(6 * PARTITIONS):
            await journal.append(arrival(None, unnumbered(f"{session}-{number}", session), "a"))
        with count_spending() as whole:
            everything = await journal.entries_naming([session], limit=100)
        with count_spending() as cut:
            limit_spending(1)
            some = await journal.entries_naming([session], limit=100)

        assert len(everything) == 6 * PARTITIONS
        assert (whole.is_spent, cut.is_spent) == (False, True)
        # One answer came: that of the first partition. Each of the others costs as much again.
        assert {one.session for one in some} < {one.session for one in everything}
        assert cut.request_units < whole.request_units / 2 < 2 * PARTITIONS
        one = await journal.entries_naming([session], f"{session}-1", limit=100)
        assert [found.position for found in one] == [0]

    @pytest.mark.parametrize("status", [429, 449])
    async def test_a_refused_append_changed_nothing(
        self, cloud: Cloud, journal: Journal, session: str, status: int
    ) -> None:
        cloud.faults.arm(Fault("cosmos", Action.STATUS, "batch", status=status, seconds=0.01))
        with pytest.raises(Unavailable):
            await journal.append(step(None, session))

        cloud.faults.disarm()
        assert await journal.head(session) is None

    @pytest.mark.parametrize("status", [408, 500])
    async def test_an_append_that_failed_in_the_store_is_unknown(
        self, cloud: Cloud, session: str, status: int
    ) -> None:
        async with opened_adapters(cloud, **IMPATIENT) as adapters:
            cloud.faults.arm(Fault("cosmos", Action.STATUS, "batch", status=status))

            with pytest.raises(OutcomeUnknown):
                await adapters.journal.append(step(None, session))

    async def test_an_append_whose_answer_is_dropped_is_unknown_and_was_applied(
        self, cloud: Cloud, journal: Journal, session: str
    ) -> None:
        entry = step(None, session)
        async with opened_adapters(cloud, **IMPATIENT) as adapters:
            cloud.faults.arm(Fault("cosmos", Action.DROP_ANSWER, "batch"))
            with pytest.raises(OutcomeUnknown):
                await adapters.journal.append(entry)

        assert await journal.entry(session, 0) == entry

    async def test_an_append_repeated_by_the_sdk_is_told_by_its_attempt(
        self, cloud: Cloud, journal: Journal, session: str
    ) -> None:
        entry = step(None, session, attempt="mine")
        await journal.append(entry)

        assert await journal.append(entry) is WriteResult.TAKEN

        stored = await journal.entry(session, 0)
        assert stored is not None
        assert stored.attempt.id == "mine"

    async def test_a_store_that_is_down_is_unavailable_for_reading(
        self, cloud: Cloud, journal: Journal, session: str
    ) -> None:
        await journal.head(session)
        cloud.faults.arm(Fault("cosmos", Action.DOWN))

        with pytest.raises(Unavailable):
            await journal.head(session)


class TestServiceBus(BusContract[ServiceBus]):
    @pytest.fixture
    def bus(self, adapters: Adapters) -> ServiceBus:
        return adapters.bus

    @pytest.fixture(autouse=True)
    def remember(self, cloud: Cloud) -> None:
        self.connection_string = cloud.namespaces["east"].connection_string

    async def received(self, bus: ServiceBus, queue: str, session: str) -> list[Message]:
        async with ServiceBusClient.from_connection_string(self.connection_string) as client:
            return await receive_all(client, queue, session)

    async def test_a_batch_over_the_size_limit_goes_out_in_parts(
        self, bus: ServiceBus, session: str
    ) -> None:
        padding = "x" * 300_000
        sent = [
            Message(f"m-{n}", session, "t", f'{{"n":{n},"p":"{padding}"}}'.encode(), None)
            for n in range(8)
        ]

        await bus.send("east", "lockstep", sent)

        assert await self.received(bus, "lockstep", session) == sent

    async def test_a_region_that_is_down_is_unknown_soon_and_usable_again_later(
        self, cloud: Cloud, bus: ServiceBus, session: str
    ) -> None:
        await bus.send("west", "lockstep", [message(0, session=session)])
        fault = cloud.faults.arm(Fault("servicebus.west", Action.DOWN))
        with pytest.raises(OutcomeUnknown):
            await bus.send("west", "lockstep", [message(1, session=session)])

        cloud.faults.disarm(fault)
        for _ in range(50):
            try:
                await bus.send("west", "lockstep", [message(1, session=session)])
            except OutcomeUnknown:
                continue
            break
        else:
            pytest.fail("the region never came back")


def heartbeats_over(adapters: Adapters, settings: Settings, region: str = "east") -> Heartbeats:
    container = CosmosContainer(adapters.account, settings.database, settings.leases)
    leases = CosmosLeases(container)
    return Heartbeats(leases, region, ["east", "west"], journal=adapters.journal, has_sagas=True)


async def test_a_timer_that_ran_is_heard_by_every_instance(
    cloud: Cloud, adapters: Adapters
) -> None:
    settings = settings_of(cloud)
    heartbeats = heartbeats_over(adapters, settings)
    never = {name: age.seconds for name, age in (await heartbeats.ages()).here.items()}
    # Nothing is in hand, so nothing is overdue.
    assert never.pop("receive") == 0.0
    assert set(never.values()) == {None}

    await heartbeats.note(SWEEP)
    await heartbeats.note(SWEEP)

    async with opened_adapters(cloud) as other:
        ages = (await heartbeats_over(other, settings).ages()).here
        peer = (await heartbeats_over(other, settings, "west").ages()).regions["east"]
    seconds = ages[SWEEP].seconds
    assert seconds is not None
    assert 0 <= seconds < 60
    assert ages[COMPACT].is_silent
    assert not peer.is_silent


async def test_a_beacon_that_is_lit_again_is_a_change_and_the_feeds_are_awaited(
    cloud: Cloud, adapters: Adapters
) -> None:
    settings = settings_of(cloud)
    heartbeats = heartbeats_over(adapters, settings)
    container = adapters.journal.container

    await heartbeats.light_beacons()
    first = await container.read(REGIONS_SESSION, "beacon-east")
    await heartbeats.light_beacons()
    second = await container.read(REGIONS_SESSION, "beacon-east")

    assert first is not None
    assert second is not None
    assert version_of(first) != version_of(second)
    ages = (await heartbeats.ages()).here
    assert [name for name, age in ages.items() if age.is_awaited] == [
        *("recover", "begin_sagas", "sagas")
    ]


async def receive_all(client: ServiceBusClient, queue: str, session: str) -> list[Message]:
    """What a session holds until nothing comes for a second, completed."""
    found: list[Message] = []
    with suppress(OperationTimeoutError):
        async with client.get_queue_receiver(
            queue, session_id=session, max_wait_time=1
        ) as receiver:
            async for delivery in receiver:
                found.append(parse(delivery))
                await receiver.complete_message(delivery)
    return found


def parse(delivery: ServiceBusReceivedMessage) -> Message:
    """A received message; the SDK gives property names as bytes."""
    raw = delivery.application_properties or {}
    properties = {str(text(name)): text(value) for name, value in raw.items()}
    return wire.from_properties(properties, b"".join(delivery.body))


def text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
