"""A queue is missing, renamed or takes small messages only: nothing else waits for it."""

from dataclasses import replace
from itertools import product

import pytest
from pydantic import BaseModel

from shared.domain.errors import InvalidMessage, NotBlocked
from shared.domain.handler import Context, Handled, Handlers, Kind, NoState, Output
from shared.domain.journal import Entry, Status
from shared.domain.message import Message
from shared.domain.outbox import (
    ERRORS,
    HERE,
    OUTPUTS,
    OutputAction,
    OutputDecision,
    OutputsLeft,
    address,
)
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.standstill import StandstillKind
from shared.engine.consume.outcomes import AlreadyDone, PassedThrough, Processed, Refused
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.ports import SessionNeed
from shared.testkit.regions import consume_together
from tests.crashes import sent
from tests.sized_outputs import READER, WRITER, Letter, writing
from tests.sized_outputs import handlers as letter_handlers
from tests.standstills import listed
from tests.world import (
    LAG_SECONDS,
    QUEUES,
    REGIONS,
    Account,
    Amount,
    World,
    message,
    require,
    sweep_later,
    take,
)

# When a queue is missing, disabled or forbidden, nothing else waits for it.

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


async def repair(world: World) -> None:
    """The queue is made, and both regions sweep."""
    world.bus.missing.clear()
    await sweep(world)


def count(world: World, queue: str) -> tuple[int, int]:
    """How many messages the queues of east and west were sent, copies included."""
    return len(world.bus.messages("east", queue)), len(world.bus.messages("west", queue))


async def entry(world: World, position: int = 0) -> Entry:
    """An entry as stored."""
    return require(await world.journal.entry("acc-7", position))


@pytest.mark.parametrize("kind", ["tell", "tell.again"])
async def test_session_and_other_queue_go_on_and_the_reason_is_kept(
    world: World, kind: str
) -> None:
    outcomes = await take(world.east, *(telling(sequence, kind=kind) for sequence in range(3)))

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert (world.amounts(), count(world, "out")) == ([1, 2, 3], (3, 3))
    for position in range(3):
        blocked = (await entry(world, position)).outbox
        assert blocked.regions == ()
        assert blocked.blocked == {region: {AUDIT: WHY(region)} for region in REGIONS}
    assert await world.pending() == []
    found = await listed(world.west)
    assert sorted(one.position or 0 for one in found) == [0, 1, 2]
    assert {(one.kind, one.queue, one.regions, one.cause) for one in found} == {
        (StandstillKind.BLOCKED, AUDIT, REGIONS, f"{AUDIT!r}: {WHY('east')}")
    }
    assert world.entries()[2].get("lagging") is None


@pytest.mark.parametrize("kind", ["tell", "tell.again"])
async def test_what_went_out_is_not_sent_again(world: World, kind: str) -> None:
    await world.east.consumer.consume(telling(0, kind=kind))
    for _ in range(20):
        await sweep(world)
    assert count(world, "out") == (1, 1)

    await repair(world)

    assert (count(world, "out"), count(world, AUDIT)) == ((1, 1), (2, 2))


async def test_a_region_that_fails_after_one_queue_took_its_part_gets_the_rest() -> None:
    world = World(handlers=handlers)
    with world.without(("west", "out")):
        await world.east.consumer.consume(telling(0))
        stored = (await entry(world)).outbox
        assert (stored.regions, dict(stored.delivered)) == (("west",), {"west": (AUDIT,)})

    await sweep(world)

    assert (count(world, "out"), count(world, AUDIT)) == ((1, 1), (2, 2))
    assert (await entry(world)).outbox.delivered == {}


async def test_once_it_exists_everything_comes_to_its_end_by_itself(world: World) -> None:
    whole = World(handlers=handlers)
    for session, one in product(("a", "b", "acc-7"), (world, whole)):
        await take(one.east, *(telling(sequence, session) for sequence in range(3)))

    await repair(world)

    for region, queue in product(REGIONS, (AUDIT, "out")):
        expected = sorted(whole.outputs(region, queue))
        assert sorted(world.outputs(region, queue)) == expected
    assert await listed(world.east) == []
    assert not any(document.get("blocked") for document in world.entries())


async def test_a_sweep_tries_a_queue_once_however_many_sessions_it_blocks(world: World) -> None:
    await take(world.east, *(telling(0, f"session-{number}") for number in range(40)))
    before = dict(world.bus.fault_plan.calls)
    read = world.journal.fault_plan.calls["blocked"]

    world.clock.seconds += PAUSE_SECONDS_MAX + LAG_SECONDS
    await world.east.recovery.sweep()

    assert world.bus.fault_plan.calls["refused.east"] == before["refused.east"] + 1
    # Nor is anything read for the other sessions.
    assert world.journal.fault_plan.calls["blocked"] == read + 1


async def test_one_blocked_queue_does_not_hide_another_that_is_well_again(world: World) -> None:
    world.bus.missing = {("east", AUDIT), ("east", "out")}
    await take(world.east, *(telling(sequence) for sequence in range(3)))
    world.bus.missing = {("east", AUDIT)}

    await sweep(world)

    assert (count(world, "out"), count(world, AUDIT)) == ((3, 3), (0, 6))
    assert (await entry(world)).outbox.blocked == {"east": {AUDIT: WHY("east")}}


async def test_an_idempotent_handlers_output_is_kept_and_its_message_settled(world: World) -> None:
    ping = Message("p-1", "acc-7", "tell.on", b'{"amount":1}')

    assert await world.east.consumer.consume(ping) == PassedThrough(None)
    (kept,) = await world.journal.blocked("acc-7")
    assert kept.position is None
    await repair(world)

    assert count(world, AUDIT) == (2, 2)
    assert await world.journal.blocked("acc-7") == []


async def test_the_error_queue_may_be_missing_too(world: World) -> None:
    world.handlers = Handlers()
    world.bus.missing = {(region, "errors") for region in REGIONS}

    await world.worker("east").consumer.consume(telling(0))
    await repair(world)

    assert count(world, "errors") == (1, 1)
    # It stays a fault for people: its message failed.
    assert {one.session for one in await listed(world.east)} == {"acc-7"}


RETRIED = OutputDecision(OutputAction.RETRY, "Ada", "it exists now")
REDIRECTED = OutputDecision(OutputAction.REDIRECT, "Ada", "the auditors moved", to="audit-2")


async def test_a_person_who_repaired_it_tries_again_at_once(world: World) -> None:
    await world.east.consumer.consume(telling(0))
    world.bus.missing.clear()

    assert await world.west.outputs.decide("acc-7", AUDIT, RETRIED) == []

    assert (count(world, "out"), count(world, AUDIT)) == ((1, 1), (2, 2))
    assert (await entry(world)).outbox.decided == {AUDIT: RETRIED}
    with pytest.raises(NotBlocked, match="blocked at 'audit'"):
        await world.west.outputs.decide("acc-7", AUDIT, RETRIED)


async def test_outputs_are_sent_to_another_queue(world: World) -> None:
    await take(world.east, *(telling(sequence) for sequence in range(2)))

    left = await world.east.outputs.decide("acc-7", AUDIT, REDIRECTED, position=0)

    # What is blocked of the other entry is not what was decided about.
    assert left == []
    assert (count(world, "audit-2"), count(world, AUDIT)) == ((2, 2), (0, 0))
    assert [one.position for one in await world.journal.blocked("acc-7")] == [1]


def decide(action: ResolutionAction, to: str | None = None) -> ResolutionRequest:
    return ResolutionRequest(action, "Ada", "it moved", at=0, queue=AUDIT, to=to)


@pytest.mark.parametrize(
    ("action", "to", "missing", "left"),
    [
        (ResolutionAction.REDIRECT, "audit-2", (), OutputsLeft((), ("west",))),
        (ResolutionAction.REDIRECT, "audit-2", ("east",), OutputsLeft(("east",), ("west",))),
        (ResolutionAction.RETRY, None, ("east",), OutputsLeft(("east",), ("west",))),
        # Tombstones go out by themselves, so nobody has to decide about them again.
        (ResolutionAction.DROP, None, ("east",), OutputsLeft((), ("east", "west"))),
    ],
)
async def test_when_a_region_is_lost_a_decision_says_what_waits_for_it_and_what_for_a_person(
    world: World,
    action: ResolutionAction,
    to: str | None,
    missing: tuple[str, ...],
    left: OutputsLeft,
) -> None:
    await world.east.consumer.consume(telling(0))
    world.bus.missing = {(region, to or AUDIT) for region in missing}

    with world.without("west"):
        assert await world.east.resolver.decide("acc-7", decide(action, to)) == left

    # What waits for the region needs no person: its sweep does what was decided.
    await sweep(world)
    assert (await entry(world)).outbox.blocked.keys() == set(missing)
    sent_to = [len(world.bus.messages(region, to or AUDIT)) for region in REGIONS]
    assert sent_to == [0 if "east" in missing else 2, 2]


async def test_what_a_decision_does_not_reach_in_time_is_left_to_the_next(world: World) -> None:
    await world.east.consumer.consume(telling(0))
    resolver, drop = world.east.resolver, decide(ResolutionAction.DROP)
    in_time = resolver.worker.policy
    resolver.worker.policy = replace(in_time, waits=replace(in_time.waits, bound_seconds=0))

    assert await resolver.decide("acc-7", drop) == OutputsLeft(REGIONS, ())

    resolver.worker.policy = in_time
    assert await resolver.decide("acc-7", drop) == OutputsLeft((), REGIONS)


async def test_a_redirection_outlives_another_failure(world: World) -> None:
    world.bus.missing |= {(region, "audit-2") for region in REGIONS}
    await world.east.consumer.consume(telling(0))
    assert await world.east.outputs.decide("acc-7", AUDIT, REDIRECTED)
    world.bus.missing = {(region, AUDIT) for region in REGIONS}

    await sweep(world)

    assert count(world, "audit-2") == (2, 2)


async def test_dropped_outputs_are_no_fault_any_more_and_leave_no_gap(world: World) -> None:
    await world.east.consumer.consume(telling(0))
    dropped = OutputDecision(OutputAction.DROP, "Ada", "nobody audits any more")

    await world.east.outputs.decide("acc-7", AUDIT, dropped)

    assert await listed(world.east) == []
    await repair(world)
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

    await repair(world)

    assert world.outputs("west") == world.outputs("east") != []
    assert "staged" not in {d["kind"] for d in world.journal.partitions[WRITER].values()}


# When a queue is renamed by a setting, what is pending goes where the setting points now.

RENAMED = replace(QUEUES, here="in-2", outputs="out-2", errors="errors-2")


@pytest.mark.parametrize(
    ("kind", "queue"), [("account.bill", "out-2"), ("account.burn", "errors-2")]
)
async def test_pending_outputs_and_faults_go_to_the_new_queue(kind: str, queue: str) -> None:
    world = World()
    with world.without(*REGIONS):
        await world.east.consumer.consume(message(0, kind=kind))

    for region in REGIONS:
        world.clock.seconds += LAG_SECONDS
        worker = world.worker(region)
        worker.recovery.dispatcher.delivery.queues = RENAMED
        await worker.recovery.sweep()

    assert [len(world.bus.messages(region, queue)) for region in REGIONS] == [1, 1]
    assert not world.journal.newest("acc-7").outbox.regions  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("stored", "sent_to"),
    [(OUTPUTS, "out-2"), (ERRORS, "errors-2"), (HERE, "in-2"), ("out", "out"), ("audit", "audit")],
)
async def test_only_what_was_stored_by_its_real_name_stays_there(stored: str, sent_to: str) -> None:
    world = World()
    dispatcher = world.east.recovery.dispatcher
    dispatcher.delivery.queues = RENAMED

    await dispatcher.delivery.deliver(address(stored, [message(0)], REGIONS))

    assert [len(world.bus.messages(region, sent_to)) for region in REGIONS] == [1, 1]


# When a queue refuses an output that is too large for it, a tombstone takes its place.


def limited() -> World:
    """Two regions whose output queues take small messages only."""
    world = World(handlers=letter_handlers)
    world.bus.largest = {(region, "out"): 1_000 for region in REGIONS}
    return world


def kinds(world: World, region: str) -> list[str]:
    """The types in a region's output queue, each message once."""
    found = {m.id: m.type for m in world.bus.messages(region, "out")}
    return list(found.values())


@pytest.mark.parametrize("kind", ["write", "write.again"])
async def test_a_tombstone_with_its_id_and_number_takes_its_place(kind: str) -> None:
    world, free = limited(), World(handlers=letter_handlers)
    for one in (free, world):
        assert isinstance(
            await one.east.consumer.consume(writing([1, 5_000, 3], kind=kind)), Processed
        )

    meant = free.bus.messages("east", "out")
    for region in REGIONS:
        came = list({m.id: m for m in world.bus.messages(region, "out")}.values())
        assert [(m.id, m.number) for m in came] == [(m.id, m.number) for m in meant]
        assert [m.type for m in came] == ["letter", TOMBSTONE_TYPE, "letter"]
        assert (came[0], came[2]) == (meant[0], meant[2])
    assert sent(world, "east") == sent(world, "west")
    assert await world.pending() == []


async def test_nothing_that_stands_before_or_after_it_in_its_entry_is_sent_twice() -> None:
    world = limited()
    await consume_together(world.east, [writing([1, 2]), writing([3, 5_000, 4], 1)])

    assert len(world.entries(WRITER)) == 1
    for region in ("east", "west"):
        came = [m.number.sequence for m in world.bus.messages(region, "out") if m.number]
        assert came == [0, 1, 2, 3, 4]


async def test_the_entry_names_it_and_is_a_fault_that_people_see() -> None:
    world = limited()
    await world.east.consumer.consume(writing([1, 5_000, 3]))

    entry = require(await world.journal.entry(WRITER, 0))
    poison = entry.outbox.messages[1]
    assert dict(entry.outbox.refused) == {poison.id: "a message is too large for 'out'"}
    assert Letter.model_validate_json(poison.body).text == "b" * 5_000
    assert list(await world.journal.sessions(SessionNeed.RESOLUTION, limit=10)) == [WRITER]
    assert entry.halt is None


async def test_the_receiver_records_the_tombstone_and_goes_on() -> None:
    world, receiver = limited(), World(handlers=letter_handlers)
    await world.east.consumer.consume(writing([1, 5_000, 3]))

    outcomes = await take(receiver.east, *world.bus.messages("east", "out"))
    assert set(await take(receiver.west, *world.bus.messages("west", "out"))) == {AlreadyDone()}

    assert {type(outcome) for outcome in outcomes} <= {AlreadyDone, Processed, Refused}
    head = require(await receiver.journal.head(READER))
    assert dict(head.state or {}) == {"letters": [1, 3]}
    recorded = require(await receiver.journal.entry(READER, 1))
    assert recorded.status is Status.SKIPPED
    assert recorded.reason == "voided by its sender: its queue does not take it"


async def test_one_regions_refusal_is_told_in_the_same_words_as_the_others() -> None:
    world = limited()
    with world.without("west"):
        await world.east.consumer.consume(writing([5_000, 2]))
    world.bus.largest.clear()
    await sweep_later(world, "west")

    assert sent(world, "west") == sent(world, "east")
    assert kinds(world, "west") == [TOMBSTONE_TYPE, "letter"]
