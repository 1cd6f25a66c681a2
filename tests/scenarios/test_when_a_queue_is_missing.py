"""A queue that outputs go to is missing, disabled or forbidden: nothing else waits for it."""

import pytest
from pydantic import BaseModel

from shared.domain.errors import InvalidMessage, NotBlocked
from shared.domain.handler import Context, Handled, Handlers, Kind, NoState, Output
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.domain.outbox import OutputAction, OutputDecision
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.standstill import StandstillKind
from shared.engine.consume.outcomes import PassedThrough, Processed
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from tests.letters import handlers as letter_handlers
from tests.letters import writing
from tests.standing import listed
from tests.world import LAG_SECONDS, REGIONS, Account, Amount, World, message

AUDIT = "audit"
WHY = "'audit' does not exist in region {}".format


class Line(BaseModel):
    """What both queues are told."""

    total: int


def told(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Tell the auditors, the app's own output queue, and the auditors again."""
    booked = Account(amounts=[*account.amounts, body.amount])
    line = Line(total=sum(booked.amounts))
    audit = Output("line", line, to=AUDIT)
    return Handled(booked, (audit, Output("line", line), audit))


handlers = Handlers()
handlers.register("tell", state=Account, body=Amount)(told)
handlers.register("tell.again", state=Account, body=Amount, kind=Kind.DETERMINISTIC)(told)


@handlers.register("tell.on", body=Amount, kind=Kind.IDEMPOTENT)
def tell_on(state: NoState, body: Amount, context: Context) -> Handled[NoState]:
    """Tell the same without a journal."""
    return Handled(state, told(Account(), body, context).outputs)


@pytest.fixture
def world() -> World:
    """Two regions in which the auditors' queue is missing."""
    world = World(handlers=handlers)
    world.bus.missing = {(region, AUDIT) for region in REGIONS}
    return world


def telling(sequence: int, session: str = "acc-7", kind: str = "tell") -> Message:
    """The n-th message of a session."""
    return message(sequence, session=session, kind=kind)


async def sweep(world: World) -> None:
    """Both regions sweep, after every pause is over."""
    for worker in (world.east, world.west):
        world.clock.seconds += PAUSE_SECONDS_MAX + LAG_SECONDS
        await worker.recovery.sweep()


def count(world: World, queue: str) -> dict[str, int]:
    """How many messages each region's queue was sent, copies included."""
    return {region: len(world.bus.messages(region, queue)) for region in REGIONS}


async def entry(world: World, position: int = 0) -> Entry:
    """An entry as stored."""
    found = await world.journal.entry("acc-7", position)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["tell", "tell.again"])
async def test_the_session_and_the_other_queue_go_on_and_the_reason_is_kept(
    world: World, kind: str
) -> None:
    for sequence in range(3):
        outcome = await world.east.consumer.consume(telling(sequence, kind=kind))
        assert isinstance(outcome, Processed)

    assert world.amounts() == [1, 2, 3]
    assert count(world, "out") == {"east": 3, "west": 3}
    for position in range(3):
        blocked = (await entry(world, position)).outbox
        assert blocked.regions == ()
        assert blocked.blocked == {region: {AUDIT: WHY(region)} for region in REGIONS}
    assert await world.pending() == []
    found = await listed(world.west)
    assert sorted(one.position or 0 for one in found) == [0, 1, 2]
    assert {(one.kind, one.queue, one.regions) for one in found} == {
        (StandstillKind.BLOCKED, AUDIT, REGIONS)
    }
    assert {one.cause for one in found} == {f"{AUDIT!r}: {WHY('east')}"}
    assert world.entries()[2].get("lagging") is None


@pytest.mark.parametrize("kind", ["tell", "tell.again"])
async def test_what_went_out_is_not_sent_again(world: World, kind: str) -> None:
    await world.east.consumer.consume(telling(0, kind=kind))
    for _ in range(20):
        await sweep(world)
    assert count(world, "out") == {"east": 1, "west": 1}

    world.bus.missing.clear()
    await sweep(world)

    assert count(world, "out") == {"east": 1, "west": 1}
    assert count(world, AUDIT) == {"east": 2, "west": 2}


async def test_a_region_that_fails_after_one_queue_took_its_part_gets_the_rest_only(
    world: World,
) -> None:
    world.bus.missing.clear()
    world.bus.unavailable = {("west", "out")}
    await world.east.consumer.consume(telling(0))
    stored = (await entry(world)).outbox
    assert (stored.regions, dict(stored.delivered)) == (("west",), {"west": (AUDIT,)})

    world.bus.unavailable.clear()
    await sweep(world)

    assert count(world, AUDIT) == {"east": 2, "west": 2}
    assert count(world, "out") == {"east": 1, "west": 1}
    assert (await entry(world)).outbox.delivered == {}


async def test_once_it_exists_everything_comes_to_its_end_by_itself(world: World) -> None:
    whole = World(handlers=handlers)
    for session in ("a", "b", "acc-7"):
        for sequence in range(3):
            await world.east.consumer.consume(telling(sequence, session))
            await whole.east.consumer.consume(telling(sequence, session))
    world.bus.missing.clear()

    await sweep(world)

    for region in REGIONS:
        for queue in (AUDIT, "out"):
            expected = {(m.id, m.body) for m in whole.bus.messages(region, queue)}
            assert {(m.id, m.body) for m in world.bus.messages(region, queue)} == expected
            assert count(world, queue)[region] == len(expected)
    assert await listed(world.east) == []
    assert not any(document.get("blocked") for document in world.entries())


async def test_a_sweep_tries_a_queue_once_however_many_sessions_it_blocks(world: World) -> None:
    for number in range(40):
        await world.east.consumer.consume(telling(0, f"session-{number}"))
    before = dict(world.bus.fault_plan.calls)
    read = world.journal.fault_plan.calls["blocked"]

    world.clock.seconds += PAUSE_SECONDS_MAX + LAG_SECONDS
    await world.east.recovery.sweep()

    assert world.bus.fault_plan.calls["refused.east"] == before["refused.east"] + 1
    # Nor is anything read for the other sessions.
    assert world.journal.fault_plan.calls["blocked"] == read + 1


async def test_one_blocked_queue_does_not_hide_another_that_is_well_again(world: World) -> None:
    world.bus.missing = {("east", AUDIT), ("east", "out")}
    for sequence in range(3):
        await world.east.consumer.consume(telling(sequence))
    world.bus.missing = {("east", AUDIT)}

    await sweep(world)

    assert count(world, "out") == {"east": 3, "west": 3}
    assert count(world, AUDIT) == {"east": 0, "west": 6}
    assert (await entry(world)).outbox.blocked == {"east": {AUDIT: WHY("east")}}


async def test_an_idempotent_handlers_output_is_kept_and_its_message_settled(world: World) -> None:
    ping = Message("p-1", "acc-7", "tell.on", b'{"amount":1}')

    assert await world.east.consumer.consume(ping) == PassedThrough(None)
    (kept,) = await world.journal.blocked("acc-7")
    assert kept.position is None
    world.bus.missing.clear()
    await sweep(world)

    assert count(world, AUDIT) == {"east": 2, "west": 2}
    assert await world.journal.blocked("acc-7") == []


async def test_the_error_queue_may_be_missing_too(world: World) -> None:
    world.handlers = Handlers()
    east = world.worker("east")
    world.bus.missing = {(region, "errors") for region in REGIONS}

    await east.consumer.consume(telling(0))
    world.bus.missing.clear()
    await sweep(world)

    assert count(world, "errors") == {"east": 1, "west": 1}
    # It stays a fault for people: its message failed.
    assert {one.session for one in await listed(world.east)} == {"acc-7"}


WHO_AND_WHY = ("Ada", "the auditors moved")


async def test_a_person_who_repaired_it_tries_again_at_once(world: World) -> None:
    await world.east.consumer.consume(telling(0))
    world.bus.missing.clear()
    decision = OutputDecision(OutputAction.RETRY, *WHO_AND_WHY)

    assert await world.west.outputs.decide("acc-7", AUDIT, decision) == []

    assert count(world, AUDIT) == {"east": 2, "west": 2}
    assert count(world, "out") == {"east": 1, "west": 1}
    assert (await entry(world)).outbox.decided == {AUDIT: decision}
    with pytest.raises(NotBlocked, match="blocked at 'audit'"):
        await world.west.outputs.decide("acc-7", AUDIT, decision)


async def test_outputs_are_sent_to_another_queue(world: World) -> None:
    for sequence in range(2):
        await world.east.consumer.consume(telling(sequence))
    decision = OutputDecision(OutputAction.REDIRECT, *WHO_AND_WHY, to="audit-2")

    left = await world.east.outputs.decide("acc-7", AUDIT, decision, position=0)

    assert [pending.position for pending in left] == [1]
    assert count(world, "audit-2") == {"east": 2, "west": 2}
    assert count(world, AUDIT) == {"east": 0, "west": 0}


async def test_a_redirection_outlives_another_failure(world: World) -> None:
    world.bus.missing |= {(region, "audit-2") for region in REGIONS}
    await world.east.consumer.consume(telling(0))
    decision = OutputDecision(OutputAction.REDIRECT, *WHO_AND_WHY, to="audit-2")
    assert await world.east.outputs.decide("acc-7", AUDIT, decision)
    world.bus.missing = {(region, AUDIT) for region in REGIONS}

    await sweep(world)

    assert count(world, "audit-2") == {"east": 2, "west": 2}


async def test_dropped_outputs_are_no_fault_any_more_and_leave_no_gap(world: World) -> None:
    await world.east.consumer.consume(telling(0))
    decision = OutputDecision(OutputAction.DROP, *WHO_AND_WHY)

    await world.east.outputs.decide("acc-7", AUDIT, decision)

    assert await listed(world.east) == []
    world.bus.missing.clear()
    await sweep(world)
    for region in REGIONS:
        came = world.bus.messages(region, AUDIT)
        assert [m.type for m in came] == [TOMBSTONE_TYPE] * 2
        assert [m.number.sequence for m in came if m.number] == [0, 1]
    assert await world.journal.blocked("acc-7") == []


@pytest.mark.parametrize(
    "fields", [("retry", "", "why"), ("retry", "who", ""), ("redirect", "who", "why")]
)
def test_a_decision_says_who_why_and_where_to(fields: tuple[str, str, str]) -> None:
    action, who, why = fields
    with pytest.raises(InvalidMessage, match="needs"):
        OutputDecision(OutputAction(action), who, why)


async def test_staged_outputs_stay_while_they_are_blocked() -> None:
    world = World(handlers=letter_handlers)
    world.bus.missing = {("west", "out")}
    await world.east.consumer.consume(writing([300_000, 300_000]))
    await sweep(world)
    world.bus.missing.clear()

    await sweep(world)

    assert world.outputs("west") == world.outputs("east") != []
    kinds = {d["kind"] for d in world.journal.partitions[writing([1]).session].values()}
    assert "staged" not in kinds
