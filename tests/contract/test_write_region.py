"""The journal's write region is lost: nothing is written, until another one takes the writes."""

import asyncio
from collections import Counter

import pytest

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from tests.cloud import opened_adapters
from tests.entries import step

pytestmark = pytest.mark.wire

SECONDS_MAX = 60.0
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


@pytest.mark.parametrize(
    ("way", "locations"),
    [
        ("silent", LOST),
        ("silent", LIVING),
        ("cut", LOST),
        ("unavailable", LIVING),
        ("too-late", ""),
    ],
)
async def test_when_the_write_region_is_lost_every_writer_goes_on_in_the_next_one(
    cloud: Cloud, way: str, locations: str
) -> None:
    cloud.cosmos.move_write_region("east")
    settings = {"LOCKSTEP_JOURNAL_CALL_SECONDS": "4", "LOCKSTEP_COSMOS_LOCATIONS": locations}
    async with opened_adapters(cloud, **settings) as adapters:
        failed: Counter[str] = Counter()

        async def write(session: str, head: Entry | None, count: int) -> Entry:
            """Add entries, each as often as it takes; what is raised otherwise ends the test."""
            for _ in range(count):
                entry = step(head, session)
                while await adapters.journal.entry(session, entry.position) != entry:
                    try:
                        await adapters.journal.append(entry)
                    except (OutcomeUnknown, Unavailable) as error:
                        failed[type(error).__name__] += 1
                head = entry
            assert head is not None
            return head

        sessions = [f"{way}-{locations[:4]}-{number}" for number in range(WRITERS)]
        before = await asyncio.gather(*(write(session, None, 1) for session in sessions))
        cloud.faults.arm(WAYS[way])
        writers = [
            asyncio.create_task(write(session, head, 3))
            for session, head in zip(sessions, before, strict=True)
        ]
        # A whole call has passed without an answer before the writes move.
        async with asyncio.timeout(SECONDS_MAX):
            while not failed and not any(writer.done() for writer in writers):  # noqa: ASYNC110 - it is the store we wait for
                await asyncio.sleep(0.1)
            assert not any(writer.done() for writer in writers)
            cloud.cosmos.move_write_region("west")
            after = await asyncio.gather(*writers)

        for session, first, last in zip(sessions, before, after, strict=True):
            # The acknowledged entry of the lost region is there, too.
            assert await adapters.journal.entry(session, 0) == first
            assert await adapters.journal.head(session) == last
