"""Outputs beyond one batch are staged beside the journal, and belong to the entry that commits."""

from collections.abc import Sequence

import pytest

from shared.domain.errors import LockstepError, OutcomeUnknown
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.domain.outbox import Staged
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Processed
from shared.ports import Document
from shared.storage import limits
from shared.storage.documents import STAGED_SECONDS, staged_ids
from shared.storage.limits import INLINE_BYTES_MAX
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.crashes import redelivered, rest, sent, worlds
from tests.letters import WRITER, handlers, writing, written_in
from tests.world import LAG_SECONDS, World

OVER_A_BATCH = [700_000] * 4
OVER_AN_ENTRY = [INLINE_BYTES_MAX]
THREE_STAGES = [300_000, 600_000, 500_000]


@pytest.fixture
def world() -> World:
    """Two regions whose handlers write letters."""
    return World(handlers=handlers)


def staged(world: World) -> list[Document]:
    """The staged documents of the writer that the store still has."""
    kept = world.journal.partitions[WRITER].values()
    return [d for d in kept if d["kind"] == "staged" and not world.journal.store.is_over(d)]


def state(world: World) -> list[object]:
    """What the writer's journal says it has written."""
    return written_in([e["state"] for e in world.entries(WRITER) if "state" in e])


async def die_at(world: World, call: str, arriving: Message) -> None:
    """A worker whose process ends at its first call of a kind."""

    async def killed(*_: object, **__: object) -> None:
        raise ProcessKilled(call)

    dying = world.worker("east")
    setattr(world.bus if call == "send" else world.journal, call, killed)
    with pytest.raises(ProcessKilled):
        await dying.consumer.consume(arriving)
    delattr(world.bus if call == "send" else world.journal, call)


@pytest.mark.parametrize("sizes", [OVER_A_BATCH, OVER_AN_ENTRY, THREE_STAGES])
async def test_all_of_them_arrive_whole_in_order_in_both_regions(
    world: World, sizes: Sequence[int]
) -> None:
    outcome = await world.east.consumer.consume(writing(sizes))

    assert isinstance(outcome, Processed)
    assert isinstance(outcome.entry.outbox.location, Staged)
    texts = [b'"%s"' % (b"%c" % (ord("a") + n) * size) for n, size in enumerate(sizes)]
    for region in ("east", "west"):
        bodies = [m.body for m in world.bus.messages(region, "out")]
        assert len(bodies) == len(sizes)
        assert all(text in body for text, body in zip(texts, bodies, strict=True))


async def test_the_stages_vanish_when_every_region_is_paid(world: World) -> None:
    world.bus.unavailable = {"west"}
    await world.east.consumer.consume(writing(THREE_STAGES))
    assert len(staged(world)) == 3
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS

    await world.west.recovery.sweep()

    assert staged(world) == []
    assert sent(world, "east") == sent(world, "west")
    assert len(sent(world, "west")) == 3


async def test_whoever_is_killed_at_the_commit_leaves_stages_that_vanish_by_themselves(
    world: World,
) -> None:
    await die_at(world, "append", writing(THREE_STAGES))
    assert len(staged(world)) == 3
    assert world.entries(WRITER) == []

    world.clock.seconds += STAGED_SECONDS

    assert staged(world) == []


async def test_whoever_is_killed_after_the_commit_leaves_them_to_the_sweep(world: World) -> None:
    quiet = World(handlers=handlers)
    await quiet.east.consumer.consume(writing(THREE_STAGES))
    await die_at(world, "send", writing(THREE_STAGES))
    world.clock.seconds += STAGED_SECONDS

    await rest(world)

    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")
    assert staged(world) == []


async def test_what_another_worker_delivered_between_two_reads_is_not_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await die_at(world, "send", writing(THREE_STAGES))
    world.clock.seconds += STAGED_SECONDS
    read_staged = world.journal.staged

    async def read_staged_too_late(session: str, location: Staged) -> Sequence[object]:
        world.journal.staged = read_staged  # type: ignore[method-assign]
        await rest(world)
        return await read_staged(session, location)

    world.journal.staged = read_staged_too_late  # type: ignore[assignment, method-assign]

    await world.worker("east").recovery.sweep()

    assert len(world.outputs("east")) == len(world.outputs("west")) == len(THREE_STAGES)
    assert "are gone" not in caplog.text
    assert await world.pending() == []


async def test_an_attempt_whose_stages_are_gone_cannot_commit(world: World) -> None:
    append = world.journal.append
    late: list[object] = []

    async def append_after_an_hour(*arguments: object, **options: object) -> object:
        world.clock.seconds += STAGED_SECONDS
        world.journal.append = append  # type: ignore[method-assign]
        late.append(await append(*arguments, **options))  # type: ignore[arg-type]
        return late[0]

    world.journal.append = append_after_an_hour  # type: ignore[assignment, method-assign]

    outcome = await world.east.consumer.consume(writing(THREE_STAGES))

    assert [str(answer) for answer in late] == ["WriteResult.ORPHANED"]
    assert isinstance(outcome, Processed)
    assert outcome.entry.attempt.id != "east-1/1"
    assert len(sent(world, "east")) == 3
    assert sent(world, "east") == sent(world, "west")


async def test_two_attempts_stages_do_not_mix(world: World) -> None:
    stage = world.journal.stage
    rival = world.worker("west")

    async def stage_after_a_rival(*arguments: object) -> None:
        world.journal.stage = stage  # type: ignore[method-assign]
        await stage(*arguments)  # type: ignore[arg-type]
        world.bus.unavailable = {"east", "west"}
        await rival.consumer.consume(writing(THREE_STAGES))
        world.bus.unavailable = set()

    world.journal.stage = stage_after_a_rival  # type: ignore[assignment, method-assign]

    outcome = await world.east.consumer.consume(writing(THREE_STAGES))

    assert isinstance(outcome, AlreadyDone)
    (entry,) = world.entries(WRITER)
    assert entry["attempt"].startswith("west")
    kept = {document["id"]: document["ttl"] for document in staged(world)}
    adopted = dict.fromkeys(staged_ids(Staged(entry["attempt"], 3)), -1)
    assert kept == adopted | dict.fromkeys(staged_ids(Staged("east-1/1", 3)), STAGED_SECONDS)
    await rest(world)
    assert len(sent(world, "east")) == 3
    assert sent(world, "east") == sent(world, "west")


async def test_an_unknown_outcome_of_the_commit_deletes_nothing(world: World) -> None:
    world.journal.fault_plan.plan("append", *[CallFault.UNANSWERED] * 6)
    world.journal.fault_plan.plan("entry", *[CallFault.LOST] * 6)
    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(writing(THREE_STAGES))

    assert len(staged(world)) == 3
    world.journal.fault_plan.planned.clear()
    await rest(world)
    assert len(sent(world, "east")) == 3
    assert sent(world, "east") == sent(world, "west")


async def test_a_refused_output_is_kept_for_people_after_the_payment(world: World) -> None:
    world.bus.largest = {("east", "out"): 550_000, ("west", "out"): 550_000}

    await world.east.consumer.consume(writing(THREE_STAGES))

    assert await world.pending() == []
    assert any("b" * 600_000 in str(document["batches"]) for document in staged(world))
    world.clock.seconds += 31 * 24 * 3600
    assert staged(world) == []


async def test_a_state_too_large_for_the_store_is_a_fault_by_name(world: World) -> None:
    outcome = await world.east.consumer.consume(writing([3], remember=3_000_000))

    assert isinstance(outcome, Faulted)
    assert outcome.entry.status is Status.FAULTED
    assert "bytes" in (outcome.entry.reason or "")
    assert world.outputs("east") == world.outputs("west") == []
    assert len(world.bus.messages("east", "errors")) == 1


async def test_more_stages_than_one_batch_adopts_are_a_fault_by_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MAX", 5_000)

    outcome = await world.east.consumer.consume(writing([5_000] * 101))

    assert isinstance(outcome, Faulted)
    assert "operations" in (outcome.entry.reason or "")
    assert world.outputs("east") == world.outputs("west") == []


async def test_whatever_call_fails_state_and_outputs_are_those_of_one_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "INLINE_BYTES_MAX", 5_000)
    monkeypatch.setattr(limits, "STAGED_BYTES_MAX", 5_000)
    messages = [writing([4_500, 4_000]), writing([3], 1)]

    async def work(world: World) -> None:
        await redelivered(world, *messages)
        await rest(world)

    expected: list[tuple[str, bytes]] = []
    async for world in worlds(work, handlers):
        expected = expected or sent(world, "east")
        assert len(expected) == 3
        assert state(world) == [[4_500, 4_000], [3]], world.fault_plan
        for region in ("east", "west"):
            assert sent(world, region) == expected, (region, str(world.fault_plan))
        assert await world.pending() == [], str(world.fault_plan)
        world.clock.seconds += STAGED_SECONDS
        assert staged(world) == [], str(world.fault_plan)


async def test_the_largest_message_there_is_can_become_a_fault(world: World) -> None:
    poison = writing([1])
    body = b'"%s"' % (b"x" * 990_000)
    largest = Message(poison.id, poison.session, poison.type, body, poison.number)

    try:
        outcome = await world.east.consumer.consume(largest)
    except LockstepError as error:
        pytest.fail(f"not kept: {error}")

    assert isinstance(outcome, Faulted)
    kept = await world.journal.entry(WRITER, 0)
    assert kept is not None
    assert kept.message == largest
    (report,) = world.bus.messages("east", "errors")
    assert largest.digest.encode() in report.body
