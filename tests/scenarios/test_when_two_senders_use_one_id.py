"""Two messages have the same id: what identifies a message is its number, or its source and id."""

import json
from dataclasses import replace

import pytest

from shared.domain.handler import Context
from shared.domain.message import GROUP_CHARACTERS_MAX, Message, Number, derive_id
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Processed
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.testkit.injected_faults import CallFault
from tests.business import LEASE_OVER, Outside, dies, payment, plain, swept, world_of
from tests.crashes import redelivered, rest, sent, worlds
from tests.deliveries import delivery_of
from tests.scenarios.test_when_outputs_are_made_again import QUOTES
from tests.scenarios.test_when_outputs_are_made_again import handlers as quoting
from tests.world import LAG_SECONDS, REGIONS, World, message

NUMBERED = ("account.bill", "account.pay", "account.print")
RETRY = ResolutionRequest(ResolutionAction.RETRY, "Ada", "the outside is back")
EDIT = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typing error", b'{"amount":70}')


def of_group(group: str, kind: str) -> Message:
    """A group's first message, always under the same id."""
    return replace(message(0, kind=kind, group=group), id="order-1")


def from_source(source: str, kind: str = "account.bill", amount: int = 1) -> Message:
    """A message without a number, always under the same id."""
    body = f'{{"amount":{amount}}}'.encode()
    return replace(plain(0, kind), id="order-1", source=source, body=body)


@pytest.mark.parametrize("kind", NUMBERED)
async def test_two_groups_with_the_same_id_share_no_output_and_no_key(kind: str) -> None:
    outside = Outside()
    world = world_of(outside)

    for group in ("bank", "shop"):
        assert isinstance(await world.east.consumer.consume(of_group(group, kind)), Processed)

    for region in REGIONS:
        outputs = sent(world, region)
        ids = [identity for identity, _ in outputs]
        assert len(set(ids)) == len(ids) > 1
        assert len({body for _, body in outputs}) == 2
    assert len(set(outside.asked)) == len(outside.asked)


async def test_two_sources_with_one_id_are_two_messages_and_each_has_its_copies() -> None:
    async def work(world: World) -> None:
        await redelivered(world, from_source("bank"), from_source("shop"), from_source("lockstep"))
        await redelivered(world, from_source("shop"), from_source("lockstep"), from_source("bank"))
        await rest(world)

    quiet = None
    async for world in worlds(work, World().handlers):
        quiet = quiet or world
        assert world.amounts() == [1, 1, 1]
        for region in REGIONS:
            assert sorted(set(sent(world, region))) == sorted(quiet.outputs(region))
            assert len(set(quiet.outputs(region))) == 3
        for region in REGIONS:
            for source in ("bank", "shop", "lockstep"):
                other = from_source(source, amount=9)
                assert isinstance(await world.worker(region).consumer.consume(other), Conflicting)


async def test_two_sources_wait_side_by_side_behind_a_fault() -> None:
    world = World()
    await world.east.consumer.consume(message(0, kind="account.burn"))
    for source in ("bank", "shop", "bank"):
        await world.east.consumer.consume(from_source(source))

    skip = replace(RETRY, action=ResolutionAction.SKIP)
    await world.east.resolver.resolve("acc-7", skip)

    assert world.amounts() == [1, 1]
    for source in ("bank", "shop"):
        assert await world.west.consumer.consume(from_source(source)) == AlreadyDone()


async def test_the_same_source_is_read_from_the_wire_and_a_missing_one_is_ours() -> None:
    world = World()
    foreign = from_source("//shop.example/orders")
    await redelivered(world, foreign)

    arrived = delivery_of(foreign).application_properties
    assert arrived["cloudEvents_source"] == foreign.source
    assert await world.west.consumer.consume(from_source("//shop.example/orders")) == AlreadyDone()
    assert isinstance(await world.west.consumer.consume(from_source("lockstep")), Processed)


@pytest.mark.parametrize("decision", [RETRY, EDIT])
@pytest.mark.parametrize("arriving", [payment(0), from_source("shop", "account.pay")])
async def test_a_message_that_a_person_resolves_keeps_its_keys(
    arriving: Message, decision: ResolutionRequest
) -> None:
    async def refuse() -> None:
        raise ConnectionError("not today")

    outside = Outside(after=refuse)
    world = world_of(outside)
    await world.east.consumer.consume(arriving)

    async def accept() -> None:
        return

    outside.after = accept
    await world.west.resolver.resolve("acc-7", decision)

    assert len({key for key, _ in outside.asked}) == 1
    assert len(outside.asked) == 4
    assert world.outputs("west")


@pytest.mark.parametrize("source", ["lockstep", "shop"])
@pytest.mark.parametrize("is_numbered", [True, False])
async def test_a_parked_message_makes_the_ids_that_it_makes_at_once(
    source: str, *, is_numbered: bool
) -> None:
    number = Number("shop", 0, 0) if is_numbered else None
    arriving = replace(from_source(source), number=number)
    direct, waiting = World(), World()
    await direct.east.consumer.consume(arriving)

    await waiting.east.consumer.consume(message(0, kind="account.burn"))
    await waiting.east.consumer.consume(arriving)
    assert not waiting.outputs("west")
    skip = replace(RETRY, action=ResolutionAction.SKIP)
    await waiting.worker("west").resolver.resolve("acc-7", skip)

    assert waiting.outputs("west") == direct.outputs("west") != []


def test_whatever_identifies_a_message_changes_its_ids_and_its_randomness() -> None:
    numbered = of_group("bank", "account.bill")
    assert numbered.number
    others = [
        numbered,
        replace(numbered, session="acc-8"),
        of_group("shop", "account.bill"),
        replace(numbered, number=replace(numbered.number, sequence=1)),
        replace(numbered, number=replace(numbered.number, level=1)),
        from_source("bank"),
        from_source("shop"),
        replace(from_source("shop"), id="order-2"),
    ]

    assert len({Context(one).new_id() for one in others}) == len(others)
    assert len({Context(one).random.random() for one in others}) == len(others)
    corrected = replace(numbered, body=b'{"amount":7}', source="shop", time="2026-05-28T20:26:40Z")
    assert Context(corrected).new_id() == Context(numbered).new_id()


async def test_a_claim_of_an_older_release_goes_on_with_its_own_key() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)
    (claim,) = world.entries()
    del claim["message"]["source"]

    world.clock.seconds += LEASE_OVER
    await swept(world)

    assert outside.asked == [(derive_id("acc-7", payment(0).id, "id", "1"), 1)]


async def test_outputs_that_an_older_release_left_are_made_again_as_they_were() -> None:
    world = World(handlers=quoting)
    world.bus.unavailable = {"west"}
    # Without a source ids derive as they did before there were sources.
    await world.east.consumer.consume(replace(QUOTES[0], source=""))
    (entry,) = world.entries()
    assert "source" not in entry["message"]
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS

    await world.worker("west").recovery.sweep()

    (output,) = world.outputs("west")
    assert world.outputs("east") == [output]
    assert output[0] == derive_id("acc-7", QUOTES[0].id, "output", "0")
    assert json.loads(output[1])["quote"] == derive_id("acc-7", QUOTES[0].id, "id", "1")


async def test_a_marker_of_an_older_release_is_one_of_our_own_source() -> None:
    world = World()
    await world.east.consumer.consume(plain(0))

    assert f"marker-{derive_id(plain(0).id)}" in world.journal.partitions["acc-7"]
    (entry,) = world.entries()
    assert "source" not in entry["identities"][0]


def test_the_longest_group_is_that_of_a_sessions_outputs() -> None:
    assert len("session:") + 128 == GROUP_CHARACTERS_MAX
