"""Settings name what is not there: it is refused or told by name, and nothing is numbered."""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from functions.http.operate import show_status
from functions.triggers.receive import receive_message
from proof.simulation.world import virtual_time
from shared.domain.errors import Misconfigured, OutcomeUnknown
from shared.domain.message import derive_id
from shared.domain.outbox import AppQueues
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.build import Services
from shared.engine.operate.missing_places import LOOK_AGAIN_SECONDS, LOOK_SECONDS_MAX, MissingPlaces
from shared.engine.publish.publish import Producer
from shared.engine.publish.readiness import LOOK_AGAIN_SECONDS as ASK_AGAIN_SECONDS
from shared.engine.publish.readiness import LOOK_SECONDS_MAX as ASK_SECONDS_MAX
from shared.engine.publish.readiness import Readiness
from shared.settings import Connection
from shared.storage.kept_queue import KeptQueue
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from shared.testkit.memory import MemoryContainer
from shared.testkit.memory_store import MemoryStore
from tests.asking import ask
from tests.business import failing
from tests.crashes import rest
from tests.deliveries import delivery_of
from tests.loop_clock import in_virtual_time
from tests.world import POLICY, REGIONS, World, message, require

# When a producer is misconfigured, it is told by name, and nothing is numbered.

OPTIONS = ProducerOptions("bank")
DRAFTS = [Draft(f"m-{n}", "account.add", b'{"amount":1}') for n in range(3)]
MISSPELT = "inn"


def misspelt(world: World) -> Producer:
    """A producer whose queue is nowhere."""
    world.bus.missing = {(region, MISSPELT) for region in REGIONS}
    delivery = replace(world.delivery(), queues=AppQueues(MISSPELT, "out", "errors"))
    return Producer(world.journal, delivery)


async def test_a_misspelt_queue_is_refused_before_anything_is_numbered(world: World) -> None:
    producer = misspelt(world)
    both = r"nothing was numbered: 'inn' .* region east; 'inn' .* region west"

    for _ in range(2):
        with pytest.raises(Misconfigured, match=both):
            await producer.publish("acc-7", DRAFTS, OPTIONS)
        with pytest.raises(Misconfigured, match="'inn' does not exist"):
            await producer.send([message(0)])
        with pytest.raises(Misconfigured, match="'inn' does not exist"):
            await producer.agree("acc-7", replace(OPTIONS, starting_sequence_number=0))

    assert await world.journal.ledger("acc-7", "bank") is None
    assert await world.pending() == []

    # The corrected producer works at once.
    published = await world.producer().publish("acc-7", DRAFTS, OPTIONS)
    assert [m.number.sequence for m in published.messages if m.number] == [0, 1, 2]


async def test_a_queue_that_is_made_meanwhile_is_found_by_the_same_producer(world: World) -> None:
    producer = misspelt(world)
    with pytest.raises(Misconfigured):
        await producer.publish("acc-7", DRAFTS, OPTIONS)

    world.bus.missing = set()
    await producer.publish("acc-7", DRAFTS, OPTIONS)

    assert [m.id for m in world.bus.messages("west", MISSPELT)] == ["m-0", "m-1", "m-2"]


async def test_one_region_that_takes_nothing_is_no_reason_to_refuse(world: World) -> None:
    world.bus.missing = {"west"}

    published = await world.producer().publish("acc-7", DRAFTS, OPTIONS)

    assert (published.sent, published.pending, published.regions) == (3, 3, ("east",))
    assert published.missing == {"west": "'in' does not exist in region west"}
    assert [m.id for m in world.bus.messages("east", "in")] == ["m-0", "m-1", "m-2"]


async def test_it_is_said_which_regions_have_a_message_and_why_others_do_not(world: World) -> None:
    producer = world.producer()
    both = await producer.publish("acc-7", DRAFTS[:1], OPTIONS)
    again = await producer.publish("acc-7", DRAFTS[:1], OPTIONS)
    world.bus.unavailable = {"east"}
    one = await producer.publish("acc-7", DRAFTS[1:], OPTIONS)
    sent = await producer.send([message(0)])

    assert (both.regions, both.missing, both.pending) == (REGIONS, {}, 0)
    assert (again.sent, again.regions, again.missing) == (1, (), {})
    for published, count in ((one, 2), (sent, 1)):
        assert (published.sent, published.pending) == (count, count)
        assert published.regions == ("west",)
        assert published.missing == {"east": "region east is unavailable"}


@pytest.mark.parametrize("silent", [{"west"}, {"east", "west"}])
async def test_only_regions_that_answer_are_asked(world: World, silent: set[str]) -> None:
    world.bus.unavailable = set(silent)
    producer = misspelt(world)

    with pytest.raises(OutcomeUnknown if len(silent) == 2 else Misconfigured):
        await producer.publish("acc-7", DRAFTS, OPTIONS)

    is_numbered = await world.journal.ledger("acc-7", "bank") is not None
    assert is_numbered is (len(silent) == 2)


async def test_a_queue_that_goes_away_later_is_named_and_its_messages_follow(world: World) -> None:
    producer = world.producer()
    await producer.publish("acc-7", DRAFTS[:1], OPTIONS)
    world.bus.missing = set(REGIONS)

    with pytest.raises(OutcomeUnknown, match=r"\(east: .*'in' does not exist.*; west: .*exist"):
        await producer.publish("acc-7", DRAFTS[1:2], OPTIONS)
    with pytest.raises(Misconfigured, match="nothing was numbered"):
        await producer.publish("acc-7", DRAFTS[2:], OPTIONS)

    world.bus.missing = set()
    await producer.publish("acc-7", DRAFTS[2:], OPTIONS)
    await rest(world)
    for region in REGIONS:
        assert [m.id for m in world.bus.messages(region, "in")] == ["m-0", "m-1", "m-2"]


async def test_a_wrong_store_is_named_before_anything_is_sent(world: World) -> None:
    world.journal.regions = failing(Misconfigured("Cosmos DB: the key is wrong"))  # type: ignore[assignment, method-assign]

    with pytest.raises(Misconfigured, match="the key is wrong"):
        await world.producer().send([message(0)])
    assert world.bus.messages("east", "in") == []


# When a second list of regions appears, whoever names it is refused, or agrees with the others.

DRAFT = Draft("m-0", "account.add", b'{"amount":1}')
THREE = (*REGIONS, "north")
BOTH_NAMED = "LOCKSTEP_REGIONS names east, but the journal is kept for east, west"


def producer_of(world: World, regions: Sequence[str], replaced: Sequence[str] = ()) -> Producer:
    """A process that is configured with these regions."""
    delivery = replace(world.delivery(), regions=tuple(regions))
    return Producer(world.journal, delivery, replaced)


async def kept_for_two() -> World:
    """A journal that is kept for two regions."""
    made = World()
    await made.producer().publish("acc-1", [DRAFT], OPTIONS)
    return made


async def test_a_producer_that_names_one_region_is_refused_with_both_lists() -> None:
    world = await kept_for_two()
    producer = producer_of(world, ["east"])

    for _ in range(2):
        with pytest.raises(Misconfigured, match=BOTH_NAMED):
            await producer.publish("acc-7", [DRAFT], OPTIONS)
        with pytest.raises(Misconfigured, match=BOTH_NAMED):
            await producer.send([message(0)])

    assert await world.journal.ledger("acc-7", "bank") is None
    assert [m.session for m in world.bus.messages("east", "in")] == ["acc-1"]


async def test_an_app_that_names_one_region_leaves_its_messages_in_the_queue() -> None:
    world = await kept_for_two()
    both = world.delivery()
    world.delivery = lambda: replace(both, regions=("east",))  # type: ignore[method-assign]
    narrow = world.worker("east")

    with pytest.raises(Misconfigured, match=BOTH_NAMED):
        await receive_message(narrow, delivery_of(message(0)))
    await receive_message(world.east, delivery_of(message(0)))

    assert world.amounts() == [1]


async def test_the_order_of_the_regions_may_differ() -> None:
    world = await kept_for_two()
    await producer_of(world, REGIONS[::-1]).publish("acc-7", [DRAFT], OPTIONS)

    assert [m.session for m in world.bus.messages("west", "in")] == ["acc-1", "acc-7"]


async def test_a_list_is_changed_by_naming_the_one_it_replaces() -> None:
    world = await kept_for_two()
    with pytest.raises(Misconfigured, match=r"names east, west, north, but .* for east, west"):
        await producer_of(world, THREE, ["east"]).publish("acc-7", [DRAFT], OPTIONS)

    await producer_of(world, THREE, REGIONS).publish("acc-7", [DRAFT], OPTIONS)
    await producer_of(world, THREE, REGIONS).publish("acc-8", [DRAFT], OPTIONS)
    with pytest.raises(Misconfigured, match=r"names east, west, but .* east, west, north"):
        await world.producer().publish("acc-7", [DRAFT], OPTIONS)

    assert [m.session for m in world.bus.messages("north", "in")] == ["acc-7", "acc-8"]


async def test_two_lists_at_the_same_time_agree_on_one(world: World) -> None:
    first, second = producer_of(world, REGIONS), producer_of(world, THREE)
    stored = world.journal.regions

    async def nothing_yet() -> None:
        return None

    world.journal.regions = nothing_yet  # type: ignore[method-assign]
    await first.readiness.require_regions()
    await second.readiness.require_regions()
    world.journal.regions = stored  # type: ignore[method-assign]

    await first.publish("acc-7", [DRAFT], OPTIONS)
    with pytest.raises(Misconfigured):
        await second.publish("acc-7", [DRAFT], OPTIONS)


async def test_it_costs_one_read_for_a_process() -> None:
    world = await kept_for_two()
    producer = world.producer()
    world.journal.fault_plan.calls.clear()

    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(producer.publish(f"s-{n}", [DRAFT], OPTIONS))

    assert world.journal.fault_plan.calls["regions"] == 1


@pytest.mark.parametrize("fault", CALL_ERRORS)
async def test_a_store_that_fails_refuses_nobody_and_is_asked_again_later(fault: CallFault) -> None:
    world = await kept_for_two()
    producer = producer_of(world, ["east"])
    world.journal.fault_plan.plan("regions", fault)

    await producer.publish("acc-7", [DRAFT], OPTIONS)
    await producer.publish("acc-8", [DRAFT], OPTIONS)
    world.clock.seconds += ASK_AGAIN_SECONDS

    with pytest.raises(Misconfigured):
        await producer.publish("acc-9", [DRAFT], OPTIONS)


async def test_a_store_that_is_silent_delays_nobody_for_long() -> None:
    world = await kept_for_two()

    async def never() -> None:
        await asyncio.Event().wait()

    readiness = Readiness(world.journal, world.delivery())
    world.journal.regions = never  # type: ignore[method-assign]

    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(2 * ASK_SECONDS_MAX):
        await asyncio.gather(*(readiness.require_regions() for _ in range(20)))

    assert asyncio.get_running_loop().time() - began >= ASK_SECONDS_MAX
    assert not readiness.is_agreed


# When an app comes to the journal or the queue of another application, it is refused by name.

OURS = {
    "LOCKSTEP_QUEUE": "in",
    "ServiceBus_east": "east.example",
    "ServiceBus_west": "west.example",
}


def app_of(world: "SharedWorld", region: str, **settings: str) -> Services:
    """An app with these settings in place of ours; its own journal is named by one of them."""
    worker = world.worker(region)
    journal = settings.pop("LOCKSTEP_JOURNAL", "journal")
    worker.readiness.kept_for = OURS | settings
    leases = MemoryContainer(world.leases)
    key = "$queue-" + derive_id(*sorted(worker.readiness.kept_for.values()))
    worker.readiness.queue = KeptQueue(leases, key, journal)
    return worker


@dataclass
class SharedWorld(World):
    """A world with leases beside its journal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.leases = MemoryStore(self.clock)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"LOCKSTEP_QUEUE": "other-in"}, "LOCKSTEP_QUEUE is 'other-in', .* with 'in'"),
        ({"ServiceBus_west": "other.example"}, "ServiceBus_west is 'other.example', .* 'west.ex"),
    ],
)
async def test_another_application_on_a_journal_settles_nothing(
    other: dict[str, str], name: str
) -> None:
    world = SharedWorld()
    await receive_message(app_of(world, "east"), delivery_of(message(0)))
    stranger = app_of(world, "west", **other)

    for trigger in (
        receive_message(stranger, delivery_of(message(0))),
        receive_message(stranger, delivery_of(message(1))),
        stranger.readiness.require_regions(),
        stranger.producer.publish("acc-7", DRAFTS, OPTIONS),
    ):
        with pytest.raises(Misconfigured, match=name):
            await trigger

    assert world.amounts() == [1]
    await receive_message(app_of(world, "west"), delivery_of(message(1)))
    assert world.amounts() == [1, 2]


async def test_two_journals_of_one_queue_are_refused_by_name() -> None:
    """Two applications on one queue, or one whose regions point at different journals."""
    world, elsewhere = SharedWorld(), SharedWorld()
    elsewhere.leases = world.leases
    await receive_message(app_of(world, "east"), delivery_of(message(0)))

    lost = app_of(elsewhere, "west", LOCKSTEP_JOURNAL="jornal")
    with pytest.raises(Misconfigured, match=r"LOCKSTEP_JOURNAL is 'jornal', .* keeps 'journal'"):
        await receive_message(lost, delivery_of(message(1)))
    assert elsewhere.entries() == []

    other = app_of(elsewhere, "west", LOCKSTEP_JOURNAL="others", LOCKSTEP_QUEUE="others-in")
    await receive_message(other, delivery_of(message(0, session="theirs")))


async def test_what_was_corrected_before_the_first_message_is_nobodys() -> None:
    world = SharedWorld()
    misspelt = app_of(world, "east", LOCKSTEP_QUEUE="inn", LOCKSTEP_JOURNAL="journal")
    await misspelt.readiness.require_regions()

    await receive_message(app_of(world, "east"), delivery_of(message(0)))

    assert world.amounts() == [1]


async def test_a_journal_of_an_older_release_becomes_the_first_apps() -> None:
    world = SharedWorld()
    await world.journal.save_regions(REGIONS, None)
    east = app_of(world, "east")
    for sequence in range(3):
        await receive_message(east, delivery_of(message(sequence)))

    assert require(await world.journal.regions()).kept_for == OURS
    assert world.journal.fault_plan.calls["regions"] == 2
    with pytest.raises(Misconfigured):
        await app_of(world, "west", LOCKSTEP_QUEUE="x").readiness.require_regions()


async def test_a_region_that_is_added_is_recorded_with_the_others() -> None:
    world = SharedWorld()
    await receive_message(app_of(world, "east"), delivery_of(message(0)))
    wider = app_of(world, "east", ServiceBus_north="north.example")
    wider.readiness.queue = None
    await receive_message(wider, delivery_of(message(1)))

    assert require(await world.journal.regions()).kept_for == OURS | {
        "ServiceBus_north": "north.example"
    }


def test_a_host_is_named_the_same_however_it_is_reached() -> None:
    by_key = (
        "Endpoint=sb://East.servicebus.windows.net:5671/;SharedAccessKeyName=n;SharedAccessKey=k="
    )
    for one in (
        Connection(by_key),
        Connection(endpoint="east.servicebus.windows.net"),
        Connection(endpoint="https://east.servicebus.windows.net:443/"),
    ):
        assert one.host == "east.servicebus.windows.net"


# When something is missing at the start, it is named in the log and by the health.


async def finished(look: MissingPlaces) -> None:
    """The look has ended."""
    look.begin_looking()
    assert look.looking is not None
    await look.looking


async def test_it_is_logged_as_an_error_and_stands_in_health(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.bus.missing = {("west", "errors")}
    await finished(world.east.missing_places)

    health = json.loads((await show_status(world.east, ask(method="GET"))).get_body())

    assert health["missing"] == {"queue 'errors' of west": "'errors' does not exist in region west"}
    (logged,) = [r for r in caplog.records if r.name == "lockstep.missing_places"]
    assert logged.levelno == logging.ERROR
    assert "queue 'errors' of west cannot be used" in logged.getMessage()


async def test_every_queue_and_container_of_the_settings_is_looked_at() -> None:
    world = World(policy=replace(POLICY, reply_queues=frozenset({"answers"})))

    expected = {f"queue {q!r} of {r}" for r in REGIONS for q in ("in", "out", "errors", "answers")}
    assert set(world.east.missing_places.places) == expected


async def test_a_container_may_be_missing_too() -> None:
    look = MissingPlaces(
        {"container 'leases'": failing(Misconfigured("there is no such container"))}
    )
    await finished(look)

    assert look.reasons == {"container 'leases'": "there is no such container"}


async def test_health_does_not_wait_for_it_and_it_is_done_once(world: World) -> None:
    world.bus.silent = {*REGIONS}

    health = json.loads((await show_status(world.east, ask(method="GET"))).get_body())
    looking = world.east.missing_places.looking
    await show_status(world.east, ask(method="GET"))

    assert health["missing"] == {}
    assert looking is not None
    assert looking is world.east.missing_places.looking
    looking.cancel()


@in_virtual_time
async def test_when_somebody_has_created_it_health_names_it_no_longer() -> None:
    world = World()
    look = world.east.missing_places
    world.bus.missing = {("west", "errors"), ("west", "out")}
    await finished(look)
    first = look.looking

    world.bus.missing = {("west", "out")}
    await asyncio.sleep(LOOK_AGAIN_SECONDS - 1)
    look.begin_looking()
    assert look.looking is first
    await asyncio.sleep(1)
    await finished(look)

    health = json.loads((await show_status(world.east, ask(method="GET"))).get_body())
    assert set(health["missing"]) == {"queue 'out' of west"}
    second = look.looking
    world.bus.missing = set()
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    await finished(look)
    assert (look.looking is second, look.reasons) == (False, {})
    # Nothing is missing any more, so nothing is looked at again.
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    third = look.looking
    look.begin_looking()
    assert look.looking is third


@in_virtual_time
async def test_it_ends_though_nobody_answers() -> None:
    world = World()
    world.bus.silent = {"west"}
    await finished(world.east.missing_places)
    assert virtual_time.now() <= LOOK_SECONDS_MAX
    assert set(world.east.missing_places.reasons) == {
        f"queue {q!r} of west" for q in ("in", "out", "errors")
    }
    assert set(world.east.missing_places.reasons.values()) == {"no answer"}
