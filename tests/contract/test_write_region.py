"""The journal's write region is lost: nothing is written, until another one takes the writes."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from local.cloud import Cloud
from local.cosmos.items.partitions import cut_ring
from local.faults import Action, Fault
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.wiring import Adapters
from tests.cloud import opened_adapters, running_cloud
from tests.entries import step

pytestmark = pytest.mark.wire

# A bound for what would never end, not a limit.
SECONDS_MAX = 300.0
WRITERS = 4
# Longer than any test waits: what a silent region took may still be applied after the test.
SILENT_SECONDS = 300.0
WAYS = {
    "silent": Fault("cosmos", Action.DELAY, region="east", seconds=SILENT_SECONDS),
    "cut": Fault("cosmos", Action.DOWN, region="east"),
    "unavailable": Fault("cosmos", Action.STATUS, region="east", status=503),
    "too-late": Fault("cosmos", Action.STATUS, region="east", status=408),
}
# An app reads in its own region first: it may be the one that is lost, or the one that goes on.
LOST, LIVING = "east,west,north", "west,east,north"
MOVED = Fault("cosmos.journal", Action.MOVE_WRITES, region="west", entity="0")
PARTITIONS = 2
CALL = {"LOCKSTEP_JOURNAL_CALL_SECONDS": "4"}


@pytest.fixture(scope="module")
def failing_over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """An account whose partitions fail over by themselves."""
    logs = tmp_path_factory.mktemp("logs")
    with running_cloud(logs, PARTITIONS, partitions_fail_over=True) as cloud:
        yield cloud


class Writer:
    """Adds entries to a session, each as often as it takes; what else is raised ends the test."""

    def __init__(self, adapters: Adapters, session: str) -> None:
        self.journal = adapters.journal
        self.session = session
        self.entries: list[Entry] = []
        self.failed: Counter[str] = Counter()

    async def write(self, entries: int) -> None:
        for _ in range(entries):
            entry = step(self.entries[-1] if self.entries else None, self.session)
            while await self.read(entry.position) != entry:
                try:
                    await self.journal.append(entry)
                except (OutcomeUnknown, Unavailable) as error:
                    self.failed[type(error).__name__] += 1
            self.entries.append(entry)

    async def read(self, position: int) -> Entry | None:
        try:
            return await self.journal.entry(self.session, position)
        except Unavailable as error:
            self.failed[type(error).__name__] += 1
            return None

    async def require_all(self) -> None:
        """What was acknowledged is there, in the lost region's time too."""
        stored = [await self.journal.entry(self.session, n) for n in range(len(self.entries))]
        assert stored == self.entries


@pytest.mark.parametrize(
    ("way", "locations"),
    [
        ("silent", LIVING),
        ("cut", LOST),
        pytest.param("silent", LOST, marks=pytest.mark.proof),
        pytest.param("unavailable", LIVING, marks=pytest.mark.proof),
        pytest.param("too-late", "", marks=pytest.mark.proof),
    ],
)
async def test_when_the_write_region_is_lost_every_writer_goes_on_in_the_next_one(
    cloud: Cloud, way: str, locations: str
) -> None:
    cloud.cosmos.move_write_region("east")
    async with (
        opened_adapters(cloud, **CALL, LOCKSTEP_COSMOS_LOCATIONS=locations) as adapters,
        asyncio.timeout(SECONDS_MAX),
    ):
        writers = [Writer(adapters, f"{way}-{locations[:4]}-{n}") for n in range(WRITERS)]
        await asyncio.gather(*(writer.write(1) for writer in writers))
        cloud.faults.arm(WAYS[way])
        writing = asyncio.gather(*(writer.write(3) for writer in writers))
        # A whole call has passed without an answer before the writes move.
        while not any(writer.failed for writer in writers):  # noqa: ASYNC110 - it is the store we wait for
            await asyncio.sleep(0.1)
        assert [len(writer.entries) for writer in writers] == [1] * WRITERS
        cloud.cosmos.move_write_region("west")
        await writing
        for writer in writers:
            await writer.require_all()


@pytest.mark.parametrize("locations", [LOST, pytest.param(LIVING, marks=pytest.mark.proof)])
@pytest.mark.parametrize(
    "way",
    ["silent", "moved", *(pytest.param(w, marks=pytest.mark.proof) for w in WAYS if w != "silent")],
)
async def test_when_one_partition_is_lost_its_writers_go_on_elsewhere_and_others_never_stop(
    failing_over: Cloud, way: str, locations: str
) -> None:
    cloud, ring = failing_over, cut_ring(PARTITIONS)
    async with (
        opened_adapters(cloud, **CALL, LOCKSTEP_COSMOS_LOCATIONS=locations) as adapters,
        asyncio.timeout(SECONDS_MAX),
    ):
        writers: defaultdict[int, list[Writer]] = defaultdict(list)
        for name in (f"{way}-{locations[:4]}-{number}" for number in count()):
            own = writers[ring.find_partition(json.dumps(name))]
            own += [Writer(adapters, name)] if len(own) < WRITERS else []
            if sum(map(len, writers.values())) == PARTITIONS * WRITERS:
                break
        every = [*writers[0], *writers[1]]
        await asyncio.gather(*(writer.write(1) for writer in every))
        if way in WAYS:
            cloud.faults.arm(replace(WAYS[way], component="cosmos.journal", entity="0"))
        else:
            cloud.faults.arm(MOVED)
        writing = asyncio.gather(*(writer.write(3) for writer in writers[0]))
        # Their writes are all acknowledged while those of the lost partition wait.
        await asyncio.gather(*(writer.write(20) for writer in writers[1]))
        if way in WAYS:
            assert [len(writer.entries) for writer in writers[0]] == [1] * WRITERS
            cloud.faults.arm(MOVED)
        await writing
        for writer in every:
            await writer.require_all()
