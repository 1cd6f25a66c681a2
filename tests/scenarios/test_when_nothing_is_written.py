"""A plan that scales to zero runs no feed while nothing is written: nothing is wrong then.

Each function is a host of its own here, as on Flex Consumption. The sweep's is always there. That
of a feed is started when the journal shows something that the feed has not seen, some time later,
and stopped when it has nothing to do; meanwhile nobody renews its lease.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import pytest

from shared.adapters.cosmos_leases import CosmosLeases
from shared.domain.errors import Unavailable
from shared.engine.operate.heartbeats import BEACON_SECONDS, SAGAS, SWEEP, Age, Heartbeats
from shared.ports import Operation, UpsertDocument, WriteResult
from shared.storage.documents import version_of
from shared.storage.journal import REGIONS_SESSION
from shared.testkit.memory import MemoryContainer
from shared.testkit.memory_store import MemoryStore
from tests.world import REGIONS, World

SWEEP_SECONDS = 15.0
# How long the platform takes to start a host, and how long it leaves one that has nothing to do.
START_SECONDS, IDLE_SECONDS = 60.0, 30.0
FEEDS = {"east": "recover", "sagas-east": "begin_sagas"}
# What has to be heard once a beacon was written; the last one is what the feed before it starts.
WOKEN = (*FEEDS.values(), SAGAS)


class Leases(MemoryContainer):
    """The container of the leases, which can refuse writes."""

    takes_writes = True

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        if not self.takes_writes:
            raise Unavailable("the write region is lost")
        return await super().write(session, operations)


@dataclass
class Feed:
    """A feed's host, where there is one."""

    prefix: str
    starts: bool = True
    seen: int = 0
    due_at: float | None = None
    stops_at: float = 0.0


@dataclass
class Flex:
    """The east of an app on Flex Consumption; `clock` is the store's and that of its process."""

    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self.clock = self.world.clock
        self.leases = Leases(MemoryStore(self.clock))
        self.feeds = {name: Feed(prefix) for prefix, name in FEEDS.items()}
        self.runs_sagas = True
        self.deploy()

    def deploy(self) -> None:
        """Put a new process in the place of the sweep's, and stop the others."""
        self.swept = Heartbeats(
            *(CosmosLeases(self.leases), "east", REGIONS),
            journal=self.world.journal,
            has_sagas=True,
        )
        for feed in self.feeds.values():
            feed.due_at, feed.stops_at = None, 0.0

    def monotonic(self) -> float:
        return self.clock.seconds

    async def run(self, seconds: float) -> None:
        """Let so much time pass: the sweep comes every 15 s, and feeds run while they have to."""
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.clock.seconds += SWEEP_SECONDS
            for feed in self.feeds.values():
                await self.scale(feed)
            if self.swept.is_due():
                await self.swept.note(SWEEP)
                await self.swept.report()

    async def scale(self, feed: Feed) -> None:
        """Start the feed's host where it is behind; a host that runs renews its lease."""
        now, newest = self.clock.seconds, self.newest()
        if newest > feed.seen and feed.starts and feed.due_at is None:
            feed.due_at = now + START_SECONDS
        if feed.due_at is None or now < feed.due_at:
            return
        if newest > feed.seen:
            feed.seen, feed.stops_at = newest, now + IDLE_SECONDS
            if feed.prefix == "sagas-east" and self.runs_sagas:
                await self.swept.note(SAGAS)
        if now >= feed.stops_at:
            feed.due_at = None
            return
        lease = f"{feed.prefix}..0"
        await self.leases.write(lease, (UpsertDocument({"id": lease}),))

    def newest(self) -> int:
        """The version of the newest document of the journal."""
        stored = self.world.journal.partitions.values()
        return max((int(version_of(one)) for own in stored for one in own.values()), default=0)

    async def hear(self) -> dict[str, Age]:
        here = (await self.swept.ages()).here
        return {name: here[name] for name in WOKEN}

    async def silent(self) -> list[str]:
        return [name for name, age in (await self.hear()).items() if age.is_silent]


@pytest.fixture
def flex(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Flex:
    flex = Flex()
    monkeypatch.setattr("shared.engine.operate.heartbeats.time", flex)
    caplog.set_level(logging.WARNING, "lockstep.heartbeats")
    return flex


def said_of_feeds(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records]
    heard_of = [f"nothing was heard of {name} " for name in WOKEN]
    return [line for line in said if line.startswith(tuple(heard_of))]


async def test_when_nothing_is_written_for_hours_no_feed_is_called_silent(
    flex: Flex, caplog: pytest.LogCaptureFixture
) -> None:
    longest = 0.0
    for _ in range(480):
        await flex.run(SWEEP_SECONDS)
        assert await flex.silent() == []
        heard = [age.seconds for age in (await flex.hear()).values()]
        longest = max([longest, *(seconds for seconds in heard if seconds is not None)])

    assert said_of_feeds(caplog) == []
    # They stood at zero meanwhile, for longer than a feed is waited for that has something to see.
    assert 120.0 < longest < BEACON_SECONDS + START_SECONDS
    # What woke them is one document, however often it is written.
    beacons = flex.world.journal.partitions[REGIONS_SESSION]
    assert {one["id"]: one["kind"] for one in beacons.values()} == {"beacon-east": "beacon"}


async def test_when_a_feed_does_not_wake_it_is_silent_without_a_break_until_it_does(
    flex: Flex, caplog: pytest.LogCaptureFixture
) -> None:
    await flex.run(900)
    flex.feeds["begin_sagas"].starts = False
    # What it missed is older than the limit when the next beacon would be due.
    await flex.run(BEACON_SECONDS + 180)
    caplog.clear()

    for _ in range(60):
        # What it starts is as silent.
        assert await flex.silent() == ["begin_sagas", SAGAS]
        await flex.run(SWEEP_SECONDS)

    assert said_of_feeds(caplog) == 15 * [
        "nothing was heard of begin_sagas for 120 s or more",
        "nothing was heard of sagas for 180 s or more",
    ]
    flex.feeds["begin_sagas"].starts = True
    await flex.run(120)
    caplog.clear()
    await flex.run(1_800)
    assert await flex.silent() == []
    assert said_of_feeds(caplog) == []


async def test_when_the_task_hub_is_dead_sagas_are_silent_until_it_is_back_and_feeds_are_not(
    flex: Flex, caplog: pytest.LogCaptureFixture
) -> None:
    await flex.run(900)
    flex.runs_sagas = False
    await flex.run(BEACON_SECONDS + 240)
    caplog.clear()

    for _ in range(20):
        assert await flex.silent() == [SAGAS]
        await flex.run(SWEEP_SECONDS)

    assert set(said_of_feeds(caplog)) == {"nothing was heard of sagas for 180 s or more"}
    # What was started waits in the hub, and runs when it can.
    await flex.swept.note(SAGAS)
    flex.runs_sagas = True
    caplog.clear()
    await flex.run(1_800)
    assert await flex.silent() == []
    assert said_of_feeds(caplog) == []


async def test_when_a_beacon_is_recorded_after_its_saga_has_run_sagas_are_not_silent(
    flex: Flex, caplog: pytest.LogCaptureFixture
) -> None:
    await flex.run(900)
    flex.runs_sagas = False
    await flex.swept.note(SAGAS)
    flex.clock.seconds += 29.0
    await flex.swept.light_beacons()
    await flex.run(240)

    assert await flex.silent() == []
    assert said_of_feeds(caplog) == []


async def test_when_a_deployed_app_cannot_run_sagas_they_were_not_heard_since(flex: Flex) -> None:
    await flex.run(900)
    flex.runs_sagas = False

    flex.deploy()
    began = flex.clock.seconds
    await flex.run(180)

    assert flex.clock.seconds - began < await oldest(flex)


async def oldest(flex: Flex) -> float:
    """For how long the feed or timer was not heard that was heard least recently."""
    seconds = (await flex.swept.ages()).seconds
    return inf if seconds is None else seconds


async def test_when_an_idle_app_is_deployed_every_feed_is_heard_after_it(flex: Flex) -> None:
    await flex.run(900)
    # One of them was broken, and is repaired by what is deployed.
    flex.feeds["begin_sagas"].starts = False
    await flex.run(900)
    flex.feeds["begin_sagas"].starts = True

    flex.deploy()
    began = flex.clock.seconds
    # Both were woken by one beacon: one after the other would take longer.
    await flex.run(START_SECONDS + 60)

    assert flex.clock.seconds - began >= await oldest(flex)


async def test_when_an_idle_app_is_deployed_right_after_a_beacon_every_feed_is_heard_after_it(
    flex: Flex,
) -> None:
    await flex.run(900)
    while (await flex.hear())["recover"].asked != 0.0:
        await flex.run(SWEEP_SECONDS)
    await flex.run(120)

    flex.deploy()
    began = flex.clock.seconds
    await flex.run(180)

    assert flex.clock.seconds - began >= await oldest(flex)


async def test_when_a_deployed_feed_cannot_start_it_was_not_heard_since(flex: Flex) -> None:
    await flex.run(900)
    flex.feeds["recover"].starts = False

    flex.deploy()
    began = flex.clock.seconds
    await flex.run(180)

    assert flex.clock.seconds - began < await oldest(flex)


async def test_when_the_journal_takes_no_writes_no_feed_is_called_silent_for_want_of_them(
    flex: Flex, caplog: pytest.LogCaptureFixture
) -> None:
    await flex.run(900)
    flex.leases.takes_writes = False

    async def refuse(_: str) -> None:
        raise Unavailable("the write region is lost")

    flex.world.journal.light_beacon = refuse  # type: ignore[method-assign,assignment]
    await flex.run(1_800)

    assert said_of_feeds(caplog) == []
    assert "the beacon could not be recorded: the write region is lost" in caplog.text
