"""A number or an id is used again, or looks like another one: another message is refused."""

import json
from base64 import b64decode
from dataclasses import replace
from itertools import combinations

import pytest

from functions.triggers.receive import receive_message
from shared.domain import wire
from shared.domain.handler import Context
from shared.domain.message import (
    GROUP_CHARACTERS_MAX,
    ID_CHARACTERS_MAX,
    Message,
    Number,
    derive_id,
)
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Faulted, Parked, Processed
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.testkit.injected_faults import CallFault
from shared.testkit.regions import consume_together
from tests.business import (
    LEASE_OVER,
    Outside,
    dies,
    payment,
    plain,
    processed_and_died,
    swept,
    world_of,
)
from tests.crashes import redelivered, rest, sent, worlds
from tests.deliveries import delivery_of
from tests.scenarios.test_when_outputs_are_not_in_the_entry import QUOTES
from tests.scenarios.test_when_outputs_are_not_in_the_entry import handlers as quoting
from tests.world import LAG_SECONDS, REGIONS, World, message, take

# When a number is used again: another message under a used number or id: refused visibly, wherever
# the first one is by now.


BEHIND = 400


def other(of: Message) -> Message:
    """Another message with the same number and id."""
    return replace(of, body=b'{"amount":99}')


async def assert_refused(world: World, worker: Services, first: Message) -> None:
    """Another message under the number is in the error queue, whole; the first stands."""
    entries = len(world.entries(first.session))
    reports = {region: len(world.bus.messages(region, "errors")) for region in REGIONS}

    await receive_message(worker, delivery_of(other(first)))

    for region in REGIONS:
        *_, newest = world.bus.messages(region, "errors")
        assert len(world.bus.messages(region, "errors")) == reports[region] + 1
        report = json.loads(newest.body)
        assert "was used before with other content" in report["reason"]
        assert b64decode(report["body"]) == other(first).body
        assert report["properties"] == wire.to_properties(other(first))
    assert len(world.entries(first.session)) == entries
    assert await worker.consumer.consume(first) == AlreadyDone()


def workers(world: World) -> list[Services]:
    """Those that did the work, and new ones that remember nothing."""
    return [world.east, world.west, world.worker("east"), world.worker("west")]


async def test_at_the_head(world: World) -> None:
    await world.east.consumer.consume(message(0))

    for worker in workers(world):
        await assert_refused(world, worker, message(0))

    assert world.amounts() == [1]


@pytest.mark.parametrize("sequence", [0, 1, 20, 38, 39])
async def test_a_page_ago(world: World, sequence: int) -> None:
    await take(world.east, *(message(n) for n in range(40)))

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))


@pytest.mark.parametrize("sequence", [0, 3, 177, 399])
async def test_far_in_the_past(sequence: int) -> None:
    world = World()
    await take(world.east, *(message(n) for n in range(BEHIND)))

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))


@pytest.mark.parametrize("sequence", [0, 1, 17, 49])
async def test_among_the_entries_of_other_groups(sequence: int) -> None:
    world = World()
    busy = 0
    for n in range(50):
        await world.east.consumer.consume(message(n))
        for _ in range(n % 13):
            await world.east.consumer.consume(message(busy, group="busy"))
            busy += 1

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))
        await assert_refused(world, worker, message(5 * sequence, group="busy"))


async def test_before_a_group_that_has_the_session_ever_since() -> None:
    world = World()
    await take(world.east, *(message(n) for n in range(5)))
    await take(world.east, *(message(n, group="busy") for n in range(BEHIND)))
    calls = world.journal.fault_plan.calls
    for worker in workers(world):
        calls.clear()
        await assert_refused(world, worker, message(2))
        assert calls["processed"] + calls["entry"] + calls["head"] <= 16


async def test_in_a_batch_that_is_one_entry() -> None:
    world = World()
    await consume_together(world.east, [message(n) for n in range(60)])
    await consume_together(world.east, [message(n) for n in range(60, 120)])
    assert len(world.entries()) == 2

    for worker in workers(world):
        for sequence in (0, 1, 59, 60, 119):
            await assert_refused(world, worker, message(sequence))


@pytest.mark.parametrize("behind", [0, 1, 3, 60])
async def test_on_a_fault_that_halts(world: World, behind: int) -> None:
    poison = message(1, kind="account.burn")
    await world.east.consumer.consume(message(0))
    assert isinstance(await world.east.consumer.consume(poison), Faulted)
    assert set(await take(world.east, *(message(n) for n in range(2, 2 + behind)))) == {Parked()}

    for worker in workers(world):
        await assert_refused(world, worker, poison)


@pytest.mark.parametrize(
    "action", [ResolutionAction.RETRY, ResolutionAction.EDIT, ResolutionAction.SKIP]
)
@pytest.mark.parametrize("behind", range(3))
async def test_after_a_resolution(behind: int, action: ResolutionAction) -> None:
    world = world_of(Outside())
    poison = message(1, kind="account.burn")
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(poison)
    await take(world.east, *(message(n) for n in range(2, 2 + behind)))
    bodies = {
        ResolutionAction.EDIT: b'{"amount":-2}',
        ResolutionAction.SET_STATE: b'{"amounts":[]}',
    }
    body = bodies.get(action)
    await world.west.resolver.resolve("acc-7", ResolutionRequest(action, "Ada", "why", body))

    for worker in workers(world):
        if action is not ResolutionAction.RETRY:
            assert await worker.consumer.consume(poison) == AlreadyDone()
        await assert_refused(world, worker, poison)
        # What the person made of it is not what was sent.
        corrected = replace(poison, body=b'{"amount":-2}')
        assert isinstance(await worker.consumer.consume(corrected), Conflicting)


async def test_while_the_first_is_parked(world: World) -> None:
    assert await world.east.consumer.consume(message(2)) == Parked()

    for worker in workers(world):
        await assert_refused(world, worker, message(2))
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(message(1))

    assert world.amounts() == [1, 2, 3]


async def test_when_the_turn_of_the_parked_one_has_come(world: World) -> None:
    await world.east.consumer.consume(message(1))
    await processed_and_died(world.worker("west"), message(0))
    assert world.amounts() == [1]

    outcome = await world.west.consumer.consume(other(message(1)))

    assert isinstance(outcome, Conflicting)
    assert world.amounts() == [1, 2]


async def test_while_the_first_is_claimed() -> None:
    world = world_of(Outside())
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)

    for worker in workers(world):
        outcome = await worker.consumer.consume(other(payment(0)))
        assert isinstance(outcome, Conflicting)
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(payment(0)), Processed)
    await assert_refused(world, world.west, payment(0))


async def test_while_the_first_is_parked_beside_a_claim() -> None:
    world = world_of(Outside())
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)
    assert await world.west.consumer.consume(message(1)) == Parked()

    assert isinstance(await world.east.consumer.consume(other(message(1))), Conflicting)
    world.clock.seconds += LEASE_OVER
    await world.west.recovery.sweep()

    assert world.amounts() == [1, 2]


async def test_what_is_compacted_is_a_duplicate_and_changes_nothing() -> None:
    world = World()
    for n in range(250):
        await world.east.consumer.consume(message(n))
        if n == 230:
            world.clock.seconds += world.policy.retention_seconds
    await world.east.consumer.consume(message(250))
    await world.east.compactor.compact()
    assert int(world.entries()[0]["id"]) == 230

    for worker in workers(world):
        assert await worker.consumer.consume(message(7)) == AlreadyDone()
        await assert_refused(world, worker, message(240))
    assert world.amounts() == list(range(1, 252))


# When two senders use one id: two messages have the same id: what identifies a message is its
# number, or its source and id.


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
    await take(world.east, *(from_source(source) for source in ("bank", "shop", "bank")))

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


# When ids are strange: ids of every kind: as long as may be, with any character, or built to
# collide.


IDS = [
    "i" * ID_CHARACTERS_MAX,
    "ü" * ID_CHARACTERS_MAX,
    "\U0001f6e9" * ID_CHARACTERS_MAX,
    "a/b\\c?d#e",
    "../..",
    ".",
    " ",
    "'\"",
    "\u0000",
    "000000000000",
    "genesis",
    "A",
    "a",
    "ä",
    "a\u0308",
    "marker-" + "0" * 32,
]


@pytest.mark.parametrize("session", IDS)
async def test_any_session_id_of_at_most_128_characters_is_a_session(session: str) -> None:
    world = World()
    sent = [message(n, session=session, kind="account.bill") for n in (2, 0, 1)]

    for arriving in sent:
        await receive_message(world.east, delivery_of(arriving))
        await receive_message(world.west, delivery_of(arriving))

    assert world.amounts(session) == [1, 2, 3]
    assert len(world.outputs("east")) == len(world.outputs("west")) == 3


async def test_session_ids_that_look_alike_are_different_sessions() -> None:
    world = World()
    for n, session in enumerate(IDS):
        await receive_message(world.east, delivery_of(message(0, n, session=session)))

    assert [world.amounts(session) for session in IDS] == [[n] for n in range(len(IDS))]


@pytest.mark.parametrize("numbered", [True, False])
async def test_message_ids_that_look_alike_are_different_messages(*, numbered: bool) -> None:
    world = World()
    for n, name in enumerate(IDS):
        sent = replace(message(n, kind="account.bill"), id=name)
        if not numbered:
            sent = replace(sent, number=None, time="2026-05-28T20:26:40Z")
        await receive_message(world.east, delivery_of(sent))
        await receive_message(world.west, delivery_of(sent))

    assert world.amounts() == list(range(1, len(IDS) + 1))
    assert len(dict(world.outputs("east"))) == len(IDS)


@pytest.mark.parametrize("first", ["a_b", "a-b", "a/b", "a\u0000b", "a"])
async def test_ids_built_to_collide_do_not(first: str) -> None:
    pairs = [(first, "c"), (first[0], first[1:] + "c"), (first + "c", "c"), (first, "cc")]
    pairs = [(session, name) for session, name in pairs if session and name]
    world = World()
    for n, (session, name) in enumerate(dict.fromkeys(pairs)):
        sent = replace(
            message(0, n, session=session, kind="account.bill"),
            id=name,
            number=None,
            time="2026-05-28T20:26:40Z",
        )
        await receive_message(world.east, delivery_of(sent))

    outputs = world.outputs("east")
    assert len(outputs) == len(dict.fromkeys(pairs))
    for (one, _), (other, _) in combinations(outputs, 2):
        assert one != other


@pytest.mark.parametrize(
    "group", ["g" * GROUP_CHARACTERS_MAX, "a/b\\c?d#e", "ü\U0001f6e9", " ", "bank\u0000"]
)
async def test_any_group_is_a_group(group: str) -> None:
    world = World()
    for sequence in (1, 2, 0):
        await receive_message(world.east, delivery_of(message(sequence, group=group)))

    assert world.amounts() == [1, 2, 3]


async def test_a_group_that_is_too_long_is_refused_by_name() -> None:
    world = World()
    too_long = message(0, group="g" * (GROUP_CHARACTERS_MAX + 1))

    await receive_message(world.east, delivery_of(too_long))

    assert not world.entries()
    (report,) = world.bus.messages("west", "errors")
    said = "the producer group has 137 characters, over 136"
    assert json.loads(report.body)["reason"] == said
