"""Another worker is first again and again: the message is parked, or waits in its queue."""

import pytest

from shared.domain.errors import Unavailable
from shared.domain.handler import Context, Handlers
from shared.domain.journal import Entry, Status
from shared.engine.build import Services
from shared.engine.consume.outcomes import Parked
from shared.ports import NOTHING_CARRIED, Carried, WriteResult
from shared.testkit.intercepted import InterceptedJournal
from tests.business import worker_with
from tests.world import POLICY, Account, Amount, World, add, message

RACES_MAX = POLICY.waits.races_max


class Contended(InterceptedJournal):
    """The journal of a worker before whose appends another worker's message is always quicker."""

    def __init__(self, world: World, *statuses: Status) -> None:
        super().__init__(world.journal)
        self.world = world
        self.statuses = statuses
        self.rivals = 0

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        if entry.status in self.statuses:
            rival = message(self.rivals, 1_000 + self.rivals, group="rival")
            self.rivals += 1
            await self.world.west.consumer.consume(rival)
        return await super().append(entry, carried)


def contended(*statuses: Status) -> tuple[World, Services, list[int]]:
    """A world with a worker that keeps losing races, and the runs of its handler."""
    runs: list[int] = []
    counted = Handlers()

    @counted.register("account.add", state=Account, body=Amount)
    def count(account: Account, body: Amount, context: Context) -> Account:
        if body.amount < 1_000:
            runs.append(body.amount)
        return add(account, body, context)

    world = World(handlers=counted)
    return world, worker_with(world, "east", journal=Contended(world, *statuses)), runs


async def test_it_is_parked_and_drained_by_whoever_is_quicker() -> None:
    world, worker, runs = contended(Status.COMPLETED)

    assert await worker.consumer.consume(message(0)) == Parked()

    assert len(runs) <= 3 * RACES_MAX
    assert world.amounts().count(1) == 1
    assert "parked" not in world.entries()[-1]


async def test_where_parking_loses_too_it_waits_in_its_queue() -> None:
    world, worker, runs = contended(Status.COMPLETED, Status.PARKED)

    with pytest.raises(Unavailable, match="keep being first"):
        await worker.consumer.consume(message(0))

    assert len(runs) <= RACES_MAX
    await world.worker("east").consumer.consume(message(0))
    assert world.amounts().count(1) == 1
