"""Where entries keep their inputs, compaction removes only what the archive has."""

import logging
from dataclasses import replace

import pytest

from shared.domain.handler import Handlers
from shared.domain.journal import Status
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.operate.compact import RUN_SECONDS, Compacted
from shared.ports import UpsertDocument
from shared.storage.archive import (
    GENESIS_POSITION,
    ArchiveRecord,
    ArchiveRow,
    encode_archive_record,
    make_archive_row,
)
from shared.storage.entries import GENESIS_ID
from shared.storage.journal import REGIONS_SESSION
from tests.business import plain
from tests.world import POLICY, Account, Amount, World, booked, message, take

RETENTION = POLICY.retention_seconds
DAY = 24 * 3600.0
# What a run of compaction adds to what the archive lacks.
SLACK = 2 * RUN_SECONDS
ERASE = ResolutionRequest(ResolutionAction.ERASE, "Ada", "asked to be forgotten")
STOPPED = "the journal keeps all that the archive lacks"


@pytest.fixture
def keeping() -> World:
    return World(policy=replace(POLICY, keeps_inputs=True))


def now(world: World) -> float:
    """The time of the store."""
    return world.clock.now()


async def archive_until(world: World, until: float) -> None:
    """An archive has all that was written until then."""
    record = encode_archive_record(REGIONS_SESSION, ArchiveRecord(int(until), "somewhere"))
    await world.journal.container.write(REGIONS_SESSION, [UpsertDocument(record)])


def positions(world: World) -> list[int]:
    return [int(entry["id"]) for entry in world.entries()]


async def test_nothing_goes_before_there_is_an_archive_and_that_is_told(
    keeping: World, caplog: pytest.LogCaptureFixture
) -> None:
    await take(keeping.east, *map(message, range(5)))
    keeping.clock.seconds += 2 * RETENTION

    assert await keeping.east.compactor.compact() == Compacted()

    assert positions(keeping) == [*range(5)]
    assert f"nothing was archived ever: {STOPPED}" in caplog.text


async def test_what_the_archive_has_goes_and_the_rest_stays_however_old(keeping: World) -> None:
    await take(keeping.east, *map(message, range(3)))
    keeping.clock.seconds += 3600
    archived = now(keeping)
    keeping.clock.seconds += SLACK + 3600
    await take(keeping.east, *map(message, range(3, 6)))
    keeping.clock.seconds += 2 * RETENTION
    await archive_until(keeping, archived)

    assert await keeping.east.compactor.compact() == Compacted(2)

    assert positions(keeping) == [2, 3, 4, 5]
    assert keeping.amounts() == [1, 2, 3, 4, 5, 6]


async def test_an_archive_in_time_changes_nothing_and_says_nothing(
    keeping: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    await take(keeping.east, *map(message, range(5)))
    keeping.clock.seconds += RETENTION
    await archive_until(keeping, now(keeping) - DAY)

    assert await keeping.east.compactor.compact() == Compacted(4)

    assert not caplog.text


async def test_an_archive_that_stopped_is_told_in_each_run_until_it_goes_on(
    keeping: World, caplog: pytest.LogCaptureFixture
) -> None:
    keeping.clock.seconds += 1
    await take(keeping.east, *map(message, range(5)))
    await archive_until(keeping, now(keeping))
    keeping.clock.seconds += RETENTION + DAY / 2

    for told in (1, 2):
        await keeping.east.compactor.compact()
        assert caplog.text.count(f"nothing was archived for 7.5 days: {STOPPED}") == told
    await archive_until(keeping, now(keeping) - 300)
    assert await keeping.west.compactor.compact() == Compacted()
    assert await keeping.east.compactor.compact() == Compacted(4)
    assert caplog.text.count(STOPPED) == 2


async def test_when_an_entry_changed_after_it_was_archived_it_waits_for_the_next_run(
    keeping: World,
) -> None:
    with keeping.without("west"):
        await take(keeping.east, message(0, kind="account.bill"), message(1), message(2))
    keeping.clock.seconds += 3600
    archived = now(keeping)
    keeping.clock.seconds += SLACK + 3600
    await keeping.west.recovery.sweep()
    assert not keeping.entries()[0].get("pending")
    keeping.clock.seconds += 2 * RETENTION

    await archive_until(keeping, archived)
    await keeping.east.compactor.compact()
    assert positions(keeping) == [0, 1, 2]
    await archive_until(keeping, now(keeping) - 300)
    await keeping.east.compactor.compact()
    assert positions(keeping) == [2]


async def test_when_a_session_has_ended_it_stays_until_the_archive_has_its_end(
    keeping: World,
) -> None:
    await take(keeping.east, plain(0, "account.add"))
    end = ResolutionRequest(ResolutionAction.END, "Ada", "closed")
    await keeping.east.resolver.resolve("acc-7", end)
    for _ in range(8):
        keeping.clock.seconds += RETENTION
        await keeping.east.compactor.compact()
    assert positions(keeping) == [0, 1]

    for _ in range(8):
        keeping.clock.seconds += RETENTION
        await archive_until(keeping, now(keeping) - 300)
        await keeping.east.compactor.compact()

    store = keeping.journal.store
    assert not [one for one in store.partitions["acc-7"] if store.read("acc-7", one)]


async def test_erasing_waits_for_no_archive(keeping: World) -> None:
    await take(keeping.east, *map(message, range(3)))

    await keeping.east.resolver.resolve("acc-7", ERASE)

    assert positions(keeping) == [3]


async def test_off_compaction_asks_for_no_archive(world: World) -> None:
    await take(world.east, message(0), message(1))
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()

    assert positions(world) == [1]
    assert "archive_age" not in world.journal.fault_plan.calls


def rows(world: World, session: str = "acc-7") -> list[ArchiveRow | None]:
    """The rows that an archive makes of a session's documents, its genesis first."""
    genesis = world.journal.partitions[session][GENESIS_ID]
    return [make_archive_row(one) for one in (genesis, *world.entries(session))]


async def test_a_row_is_the_entry_as_stored_without_what_the_store_adds(keeping: World) -> None:
    await take(keeping.east, message(0, kind="account.bill"))

    genesis, row = rows(keeping)

    written = int(now(keeping))
    assert genesis is not None
    assert genesis[:3] == ("acc-7", GENESIS_POSITION, written)
    assert row is not None
    assert row[:3] == ("acc-7", 0, written)
    assert '"body":"{\\"amount\\":1}"' in row[3]
    assert '"_etag"' not in row[3]


async def test_a_row_has_no_body_of_a_type_that_is_not_archived() -> None:
    own = Handlers()

    @own.register("account.add", state=Account, body=Amount, archived=False)
    def add(account: Account, body: Amount, _: object) -> Account:
        if body.amount == 7_777:
            raise ArithmeticError("no such luck")
        return booked(account, body)

    world = World(policy=replace(POLICY, keeps_inputs=True), handlers=own)
    await take(world.east, message(0, 5_555), message(1, 7_777))

    assert [entry["status"] for entry in world.entries()] == [Status.COMPLETED, Status.FAULTED]
    _, *entries = rows(world)
    for row in entries:
        assert row is not None
        assert '"inputs":[null]' in row[3]
        assert '"body"' not in row[3]


async def test_a_claim_is_no_row_before_it_has_ended(keeping: World) -> None:
    await take(keeping.east, message(0))
    (entry,) = keeping.entries()

    assert make_archive_row(entry | {"status": "working", "claimed": True}) is None
