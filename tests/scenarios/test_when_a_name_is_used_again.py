"""A number or an id is used again, or looks like another one: another message is refused."""

import json
from base64 import b64decode
from dataclasses import replace
from itertools import combinations, count

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
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Faulted, Parked, Processed
from shared.testkit.regions import consume_together
from tests.business import (
    LEASE_OVER,
    BusinessWorld,
    claimed,
    failing,
    healthy,
    nothing,
    payment,
    plain,
    processed_and_died,
    swept,
)
from tests.crashes import redelivered, rest, sent, worlds
from tests.deliveries import delivery_of
from tests.scenarios.test_when_outputs_are_not_in_the_entry import QUOTES
from tests.scenarios.test_when_outputs_are_not_in_the_entry import handlers as quoting
from tests.world import LAG_SECONDS, REGIONS, RETRY, SKIP, World, message, take

# When a number is used again for another message, that is refused, wherever the first one is.

BEHIND = 400
EDIT = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"amount":-2}')


def other(of: Message) -> Message:
    """Another message with the same number and id."""
    return replace(of, body=b'{"amount":99}')


async def assert_refused(world: World, worker: Services, first: Message) -> None:
    """Another message under the number is in the error queue, whole; the first stands."""
    entries, before = len(world.entries(first.session)), len(world.reports())

    await receive_message(worker, delivery_of(other(first)))

    (report,) = world.reports()[before:]
    assert "was used before with other content" in report["reason"]
    assert b64decode(report["body"]) == other(first).body
    assert report["properties"] == wire.to_properties(other(first))
    assert len(world.entries(first.session)) == entries
    assert await worker.consumer.consume(first) == AlreadyDone()


def workers(world: World) -> list[Services]:
    """Those that did the work, and new ones that remember nothing."""
    return [world.east, world.west, world.worker("east"), world.worker("west")]


@pytest.mark.parametrize(
    ("many", "sequence"),
    [(1, 0), *((40, n) for n in (0, 1, 20, 38, 39)), *((BEHIND, n) for n in (0, 3, 177, 399))],
)
async def test_at_the_head_a_page_ago_or_long_ago(world: World, many: int, sequence: int) -> None:
    await take(world.east, *(message(n) for n in range(many)))

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))

    assert world.amounts() == [*range(1, many + 1)]


@pytest.mark.parametrize("sequence", [0, 1, 17, 49])
async def test_among_the_entries_of_other_groups(world: World, sequence: int) -> None:
    busy = count()
    for n in range(50):
        others = (message(next(busy), group="busy") for _ in range(n % 13))
        await take(world.east, message(n), *others)

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))
        await assert_refused(world, worker, message(5 * sequence, group="busy"))


async def test_before_a_group_that_has_the_session_ever_since(world: World) -> None:
    await take(world.east, *(message(n) for n in range(5)))
    await take(world.east, *(message(n, group="busy") for n in range(BEHIND)))
    calls = world.journal.fault_plan.calls
    for worker in workers(world):
        calls.clear()
        await assert_refused(world, worker, message(2))
        assert calls["processed"] + calls["entry"] + calls["head"] <= 16


async def test_in_a_batch_that_is_one_entry(world: World) -> None:
    for first in (0, 60):
        await consume_together(world.east, [message(n) for n in range(first, first + 60)])
    assert len(world.entries()) == 2

    for worker in workers(world):
        for sequence in (0, 1, 59, 60, 119):
            await assert_refused(world, worker, message(sequence))


@pytest.mark.parametrize("behind", [0, 1, 3, 60])
async def test_on_a_fault_that_halts(world: World, behind: int) -> None:
    poison = message(1, kind="account.burn")
    assert isinstance((await take(world.east, message(0), poison))[1], Faulted)
    waiting = [message(n) for n in range(2, 2 + behind)]
    assert await take(world.east, *waiting) == [Parked()] * behind

    for worker in workers(world):
        await assert_refused(world, worker, poison)


@pytest.mark.parametrize("decision", [RETRY, SKIP, EDIT])
@pytest.mark.parametrize("behind", range(3))
async def test_after_a_resolution(world: World, behind: int, decision: ResolutionRequest) -> None:
    poison = message(1, kind="account.burn")
    # What a person makes of it is not what was sent.
    corrected = replace(poison, body=b'{"amount":-2}')
    await take(world.east, message(0), poison, *(message(n) for n in range(2, 2 + behind)))
    await world.west.resolver.resolve("acc-7", decision)

    for worker in workers(world):
        if decision is not RETRY:
            assert await worker.consumer.consume(poison) == AlreadyDone()
        await assert_refused(world, worker, poison)
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

    assert isinstance(await world.west.consumer.consume(other(message(1))), Conflicting)

    assert world.amounts() == [1, 2]


async def test_while_the_first_is_claimed() -> None:
    world = await claimed()
    for worker in workers(world):
        assert isinstance(await worker.consumer.consume(other(payment(0))), Conflicting)
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(payment(0)), Processed)
    await assert_refused(world, world.west, payment(0))


async def test_while_the_first_is_parked_beside_a_claim() -> None:
    world = await claimed()
    assert await world.west.consumer.consume(message(1)) == Parked()

    assert isinstance(await world.east.consumer.consume(other(message(1))), Conflicting)
    world.clock.seconds += LEASE_OVER
    await world.west.recovery.sweep()

    assert world.amounts() == [1, 2]


async def test_what_is_compacted_is_a_duplicate_and_changes_nothing(world: World) -> None:
    await take(world.east, *(message(n) for n in range(231)))
    world.clock.seconds += world.policy.retention_seconds
    await take(world.east, *(message(n) for n in range(231, 251)))
    await world.east.compactor.compact()
    assert int(world.entries()[0]["id"]) == 230

    for worker in workers(world):
        assert await worker.consumer.consume(message(7)) == AlreadyDone()
        await assert_refused(world, worker, message(240))
    assert world.amounts() == list(range(1, 252))


# When two senders use one id, their messages are told apart by number, or by source and id.

NUMBERED = ("account.bill", "account.pay", "account.print")


def of_group(group: str, kind: str) -> Message:
    """A group's first message, always under the same id."""
    return replace(message(0, kind=kind, group=group), id="order-1")


def from_source(source: str, kind: str = "account.bill", amount: int = 1) -> Message:
    """A message without a number, always under the same id."""
    body = f'{{"amount":{amount}}}'.encode()
    return replace(plain(0, kind), id="order-1", source=source, body=body)


@pytest.mark.parametrize("kind", NUMBERED)
async def test_two_groups_with_the_same_id_share_no_output_and_no_key(kind: str) -> None:
    world = await healthy(*(of_group(group, kind) for group in ("bank", "shop")))

    assert [entry["status"] for entry in world.entries()] == ["completed", "completed"]
    for region in REGIONS:
        outputs = sent(world, region)
        ids = [identity for identity, _ in outputs]
        assert len(set(ids)) == len(ids) > 1
        assert len({body for _, body in outputs}) == 2
    assert len(set(world.outside.asked)) == len(world.outside.asked)


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


async def test_two_sources_wait_side_by_side_behind_a_fault(world: World) -> None:
    sent_by = [from_source(source) for source in ("bank", "shop", "bank")]
    await take(world.east, message(0, kind="account.burn"), *sent_by)

    await world.east.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [1, 1]
    assert await take(world.west, *sent_by[:2]) == [AlreadyDone(), AlreadyDone()]


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
    world = BusinessWorld()
    world.outside.after = failing(ConnectionError("not today"))
    await world.east.consumer.consume(arriving)

    world.outside.after = nothing
    await world.west.resolver.resolve("acc-7", decision)

    assert len({key for key, _ in world.outside.asked}) == 1
    assert len(world.outside.asked) == 4
    assert world.outputs("west")


@pytest.mark.parametrize("source", ["lockstep", "shop"])
@pytest.mark.parametrize("number", [Number("shop", 0, 0), None])
async def test_a_parked_message_makes_the_ids_that_it_makes_at_once(
    world: World, source: str, number: Number | None
) -> None:
    arriving = replace(from_source(source), number=number)
    direct = await healthy(arriving)

    await take(world.east, message(0, kind="account.burn"), arriving)
    assert not world.outputs("west")
    await world.worker("west").resolver.resolve("acc-7", SKIP)

    assert world.outputs("west") == direct.outputs("west") != []


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
    world = await claimed()
    (claim,) = world.entries()
    del claim["message"]["source"]

    world.clock.seconds += LEASE_OVER
    await swept(world)

    assert world.outside.asked == [(derive_id("acc-7", payment(0).id, "id", "1"), 1)]


async def test_outputs_that_an_older_release_left_are_made_again_as_they_were() -> None:
    world = World(handlers=quoting)
    with world.without("west"):
        # Without a source ids derive as they did before there were sources.
        await world.east.consumer.consume(replace(QUOTES[0], source=""))
        (entry,) = world.entries()
        assert "source" not in entry["message"]
    world.clock.seconds += LAG_SECONDS

    await world.worker("west").recovery.sweep()

    (output,) = world.outputs("west")
    assert world.outputs("east") == [output]
    assert output[0] == derive_id("acc-7", QUOTES[0].id, "output", "0")
    assert json.loads(output[1])["quote"] == derive_id("acc-7", QUOTES[0].id, "id", "1")


async def test_a_marker_of_an_older_release_is_one_of_our_own_source(world: World) -> None:
    await world.east.consumer.consume(plain(0))

    assert f"marker-{derive_id(plain(0).id)}" in world.journal.partitions["acc-7"]
    (entry,) = world.entries()
    assert "source" not in entry["identities"][0]


def test_the_longest_group_is_that_of_a_sessions_outputs() -> None:
    assert len("session:") + 128 == GROUP_CHARACTERS_MAX


# When ids are strange, as long as may be or built to collide, they are ids like any other.

IDS = [
    "i" * ID_CHARACTERS_MAX,
    "ü" * ID_CHARACTERS_MAX,
    "\U0001f6e9" * (ID_CHARACTERS_MAX // 2),
    "a/b\\c?d#e",
    "../..",
    ".",
    " ",
    "'\"",
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


async def test_session_ids_that_look_alike_are_different_sessions(world: World) -> None:
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


@pytest.mark.parametrize("first", ["a_b", "a-b", "a/b", "a b", "a"])
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
async def test_any_group_is_a_group(world: World, group: str) -> None:
    for sequence in (1, 2, 0):
        await receive_message(world.east, delivery_of(message(sequence, group=group)))

    assert world.amounts() == [1, 2, 3]
