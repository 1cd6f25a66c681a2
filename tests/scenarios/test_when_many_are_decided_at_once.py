"""A person decides about a whole cause: each session once, whoever dies, cancels or is second."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from math import ceil
from unittest.mock import patch

import pytest

from functions.triggers.recover import sweep_bulk
from shared.domain.bulk import BulkDecision, BulkOutcome, BulkState
from shared.domain.errors import InvalidMessage, Unavailable, UnknownDecision
from shared.domain.standstill import StandstillKind
from shared.engine.build import Services
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.engine.operate import bulk
from shared.engine.operate.bulk import (
    AT_ONCE,
    LATER_SECONDS,
    LEASE_SECONDS,
    PACE_SECONDS,
    TICK_SECONDS,
)
from shared.ports import Operation, WriteResult
from shared.testkit.memory import MemoryContainer
from tests.far_store import FarContainer
from tests.loop_clock import LoopClock, in_world
from tests.standstills import listed
from tests.world import REGIONS, RETRY, SKIP, World, message, sweep_later, take


async def halt(world: World, *sessions: str, kind: str = "account.burn") -> None:
    """Halt sessions, each with one message that waits behind its fault."""
    for session in sessions:
        await world.east.consumer.consume(message(0, session=session, kind=kind))
        await world.east.consumer.consume(message(1, session=session))


async def cause_of(world: World, session: str) -> str:
    (found,) = (await world.east.standstills.find(session=session, limit=10)).standstills[:1]
    return found.general_cause


def decide(action: str = "skip", who: str = "Ada", *causes: str) -> BulkDecision:
    return BulkDecision(
        f"{who} {action}",
        action,
        who,
        "checked",
        kind=StandstillKind.HALT,
        causes=causes or None,
    )


def decided(world: World, sessions: Sequence[str]) -> dict[str, list[str]]:
    """By session, who decided what."""
    return {
        session: [
            f"{one['resolution']['who']} {one['resolution']['action']}"
            for one in world.entries(session)
            if one.get("resolution")
        ]
        for session in sessions
    }


def each(sessions: Sequence[str], decision: str) -> dict[str, list[str]]:
    return {session: [decision] for session in sessions}


def names(count: int) -> list[str]:
    return [f"acc-{n}" for n in range(count)]


async def finish(worker: Services, wanted: BulkDecision) -> BulkDecision:
    """Ask again until it has ended, as the command line does."""
    for _ in range(20):
        decision = await worker.bulk.begin(wanted)
        if decision.state is not BulkState.RUNNING:
            return decision
    raise AssertionError(decision)


async def test_everything_of_one_cause_is_decided_once_and_nothing_else(world: World) -> None:
    sessions = names(120)
    await halt(world, *sessions)
    await halt(world, "other", kind="nobody.knows")
    cause = await cause_of(world, "acc-3")
    wanted = decide("skip", "Ada", cause)

    done = await finish(world.east, wanted)
    entries = {session: world.entries(session) for session in sessions}
    again = await world.west.bulk.begin(wanted)

    assert (done.state, done.about) == (BulkState.DONE, 120)
    assert done.counts == {BulkOutcome.DONE: 120}
    assert decided(world, [*sessions, "other"]) == {
        **each(sessions, "Ada skip"),
        "other": [],
    }
    # What was parked behind each went on.
    assert [world.amounts(session) for session in sessions] == [[2]] * 120
    # The same again, in another region, is looked up and decides nothing.
    assert again == done
    assert {session: world.entries(session) for session in sessions} == entries
    assert await world.west.bulk.store.running() == []


async def test_what_fails_again_is_not_tried_again(world: World) -> None:
    sessions = names(7)
    await halt(world, *sessions)

    done = await finish(world.east, decide("retry"))

    assert done.counts == {BulkOutcome.FAILED: 7}
    assert decided(world, sessions) == each(sessions, "Ada retry")
    assert [one.outcome for one in done.shown] == [BulkOutcome.FAILED] * 7
    # Somebody who decides later, decides about the new faults.
    later = await world.west.bulk.begin(decide("skip", "Bob"))
    assert later.counts == {BulkOutcome.DONE: 7}


async def test_when_a_region_is_lost_one_decision_is_about_a_queue_that_is_missing_in_any_region(
    world: World,
) -> None:
    for n, missing in enumerate((REGIONS, ("east",), ("west",))):
        world.bus.missing = {(region, "out") for region in missing}
        world.clock.seconds += PAUSE_SECONDS_MAX
        await take(
            world.east, *(message(s, session=f"acc-{n}", kind="account.bill") for s in range(2))
        )
    (cause,) = (await world.west.standstills.causes()).causes

    with world.without("west"):
        wanted = replace(
            decide("redirect", "Ada", cause.cause), kind=StandstillKind.BLOCKED, to="out-2"
        )
        done = await finish(world.east, wanted)

    # Two messages of a session are two entries, and what waits of the one is none of the other's.
    assert (cause.count, done.about) == (6, 6)
    assert done.counts == {BulkOutcome.RECORDED: 4, BulkOutcome.DONE: 2}
    assert {(one.session, one.text) for one in done.shown} == {
        (session, "a sweep carries it out in west once that is possible")
        for session in ("acc-0", "acc-2")
    }
    await sweep_later(world, "west")
    assert await listed(world.east) == []
    for region, sessions in (("east", {"acc-0", "acc-1"}), ("west", {"acc-0", "acc-2"})):
        came = world.bus.messages(region, "out-2")
        assert Counter(one.session for one in came) == dict.fromkeys(sessions, 2)


class Killed(BaseException):
    """A worker ends at a call of the store."""


class Dying(MemoryContainer):
    """A container whose worker ends before or after its n-th write, or lives on."""

    def __init__(self, world: World, at: int, *, is_after: bool) -> None:
        super().__init__(world.journal.store)
        self.left = at
        self.is_after = is_after

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        self.left -= 1
        if self.left == 0 and not self.is_after:
            raise Killed
        result = await super().write(session, operations)
        if self.left == 0:
            raise Killed
        return result


@pytest.mark.parametrize("is_after", [False, True])
async def test_when_an_instance_dies_at_any_write_the_other_region_goes_on(
    is_after: bool,
) -> None:
    deaths = 0
    for at in range(1, 100):
        world, sessions = World(), names(5)
        await halt(world, *sessions)
        container = Dying(world, at, is_after=is_after)
        put(world, container, world.east)
        with patch.object(bulk, "MEMBERS_MAX", 2):
            try:
                await world.east.bulk.begin(decide())
            except Killed:
                deaths += 1
            else:
                break
            put(world, MemoryContainer(world.journal.store))
            # Nobody is asked twice: the sweep of the other region finds what was begun.
            world.clock.seconds += LEASE_SECONDS + 2
            await sweep_bulk(world.west.bulk)
            begun = await world.west.bulk.store.newest(10)
            assert [one.state for one in begun] in ([], [BulkState.DONE])
            # Where it had not begun, whoever asked asks again.
            decision = await world.west.bulk.begin(decide())
            await sweep_later(world)
        assert decision.state is BulkState.DONE
        assert decided(world, sessions) == each(sessions, "Ada skip"), at
        assert decision.decided == 5
        assert {*decision.counts} <= {BulkOutcome.DONE, BulkOutcome.OVER}
        assert [world.amounts(session) for session in sessions] == [[2]] * 5
    # The decision itself, its pieces, and each session's entry and outputs.
    assert deaths >= 2 + 3 + 2 * 5


def put(world: World, container: MemoryContainer, *workers: Services) -> None:
    """Let every call of the store go through a container, also those about bulk decisions."""
    world.journal.journal.container = container
    for worker in workers:
        worker.bulk.store.container = container


async def test_when_two_people_decide_about_one_cause_at_once_each_session_is_decided_once() -> (
    None
):
    world, sessions = World(), names(60)
    await halt(world, *sessions)

    both = await asyncio.gather(
        finish(world.east, decide("skip", "Ada")), finish(world.west, decide("skip", "Bob"))
    )

    done = Counter(who for (who,) in decided(world, sessions).values())
    assert sum(done.values()) == 60
    assert [one.counts.get(BulkOutcome.DONE, 0) for one in both] == [
        done["Ada skip"],
        done["Bob skip"],
    ]
    assert {outcome for one in both for outcome in one.counts} <= {
        BulkOutcome.DONE,
        BulkOutcome.OVER,
    }


class Interfering(MemoryContainer):
    """A container at whose n-th write of a bulk decision something else happens first."""

    def __init__(self, world: World, at: int, happen: Callable[[], Awaitable[object]]) -> None:
        super().__init__(world.journal.store)
        self.left = at
        self.happen = happen

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        self.left -= 1
        if self.left == 0:
            await self.happen()
        return await super().write(session, operations)


async def test_a_session_that_is_mended_meanwhile_and_fails_again_is_left_alone(
    world: World,
) -> None:
    sessions = names(3)
    await halt(world, *sessions)

    async def mend() -> None:
        await world.west.resolver.resolve("acc-0", SKIP)
        await world.west.resolver.resolve("acc-1", RETRY)

    # Before the members that were found are written down.
    world.east.bulk.store.container = Interfering(world, 2, mend)
    done = await world.east.bulk.begin(decide("skip", "Bob"))

    # Whoever came first, and the new fault of the second was not there when Bob decided.
    assert decided(world, sessions) == {
        "acc-0": ["Ada skip"],
        "acc-1": ["Ada retry"],
        "acc-2": ["Bob skip"],
    }
    assert done.counts == {BulkOutcome.OVER: 2, BulkOutcome.DONE: 1}
    assert {one.session: one.text.partition(":")[0] for one in done.shown} == {
        "acc-0": "NotHalted",
        "acc-1": "NotHalted",
    }


async def test_when_it_is_cancelled_what_is_under_way_ends_and_the_rest_stays() -> None:
    world, sessions = World(), names(6)
    await halt(world, *sessions)
    wanted = decide()
    with patch.object(bulk, "MEMBERS_MAX", 2):
        # After the first two.
        world.east.bulk.store.container = Interfering(
            world, 3, lambda: world.west.bulk.cancel(wanted.id, "Bob", "not now")
        )
        ended = await world.east.bulk.begin(wanted)
        world.clock.seconds += LEASE_SECONDS + 2
        await sweep_bulk(world.west.bulk)

    assert (ended.state, ended.cancelled) == (BulkState.CANCELLED, "Bob: not now")
    assert ended.counts == {BulkOutcome.DONE: 2}
    assert await world.west.bulk.begin(wanted) == ended
    assert sum(map(len, decided(world, sessions).values())) == 2
    assert len((await world.east.standstills.find(limit=100)).standstills) == 4


class Silent(MemoryContainer):
    """A container that is silent, or is so only for the writes of some sessions."""

    def __init__(self, world: World, *sessions: str) -> None:
        super().__init__(world.journal.store)
        self.sessions = sessions

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        if not self.sessions or session in self.sessions:
            raise Unavailable("no answer")
        return await super().write(session, operations)


async def test_when_the_journal_is_silent_nothing_is_given_up_and_it_goes_on_after() -> None:
    world, sessions = World(), names(4)
    await halt(world, *sessions)
    with patch.object(bulk, "MEMBERS_MAX", 2):
        # It answers until the first members are written down.
        put(world, Interfering(world, 3, lambda: fall_silent(world)), world.east)
        with pytest.raises(Unavailable):
            await world.east.bulk.begin(decide())
        put(world, MemoryContainer(world.journal.store), world.east)
        world.clock.seconds += LEASE_SECONDS + 2
        done = await world.east.bulk.begin(decide())

    assert done.state is BulkState.DONE
    assert done.counts == {BulkOutcome.DONE: 4}
    assert decided(world, sessions) == each(sessions, "Ada skip")


async def fall_silent(world: World) -> None:
    put(world, Silent(world), world.east)
    raise Unavailable("no answer")


async def test_one_that_cannot_be_had_holds_no_other_back_and_is_named_in_the_end() -> None:
    world, sessions = World(), names(6)
    await halt(world, *sessions)
    put(world, Silent(world, "acc-2"))
    with patch.object(bulk, "MEMBERS_MAX", 2):
        first = await world.east.bulk.begin(decide())
        assert first.counts == {BulkOutcome.DONE: 5}
        assert first.state is BulkState.RUNNING
        # Nobody tries it again at once.
        assert await world.west.bulk.begin(decide()) == first
        for _ in range(4):
            world.clock.seconds += LATER_SECONDS + 2
            await sweep_bulk(world.west.bulk)

    done = await world.east.bulk.read(first.id)
    assert done.state is BulkState.DONE
    assert done.counts == {BulkOutcome.DONE: 5, BulkOutcome.REFUSED: 1}
    assert [(one.session, one.text) for one in done.shown] == [("acc-2", "Unavailable: no answer")]


@pytest.mark.parametrize(
    "wrong",
    [
        decide("edit"),
        decide("close"),
        decide("redirect"),
        replace(decide(), to="elsewhere"),
        replace(decide(), who=""),
        replace(decide(), why="a\nb"),
    ],
)
async def test_what_cannot_be_decided_about_many_is_refused_and_not_begun(
    wrong: BulkDecision, world: World
) -> None:
    await halt(world, "acc-1")

    with pytest.raises(InvalidMessage):
        await world.east.bulk.begin(wrong)
    with pytest.raises(UnknownDecision):
        await world.east.bulk.cancel(wrong.id, "Ada", "never begun")

    assert decided(world, ["acc-1"]) == {"acc-1": []}


@in_world(lambda: World(LoopClock()))
async def test_with_a_store_that_is_far_away_they_are_decided_side_by_side(world: World) -> None:
    sessions = names(200)
    await halt(world, *sessions)
    container = FarContainer(world.journal.store, world.clock, 0.13)
    put(world, container, world.east)
    began, decision = world.clock.now(), decide()

    with patch.object(bulk, "PIECE_SECONDS", 600.0):
        done = await world.east.bulk.begin(decision)

    seconds = world.clock.now() - began
    assert done.counts == {BulkOutcome.DONE: 200}
    # Six calls of each, one after another, and those that find and write down a hundred.
    assert sum(container.calls.values()) <= 200 * 6 + 30
    # Each is done within the second that it takes at least.
    rounds = 2 * ceil(100 / AT_ONCE)
    assert TICK_SECONDS + rounds * PACE_SECONDS < seconds <= rounds * PACE_SECONDS + 6
