"""A message has more outputs than one send takes: each goes out once, and whoever goes on knows.

Time is virtual here: a second passes only while everything waits. A batch takes as long as its
bytes do on the link of its region.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from proof.simulation.world import virtual_time
from shared.domain.errors import NotBlocked, OutcomeUnknown, Unavailable
from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.domain.outbox import (
    EVERY_QUEUE,
    OUTPUTS,
    DestinationBatch,
    Outbox,
    OutputsLeft,
    Part,
    Staged,
)
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.wire import wire_bytes
from shared.engine.build import Services
from shared.engine.consume.outcomes import Processed
from shared.storage.documents import decode_pending, version_of
from shared.testkit.injected_faults import CallFault
from tests.crashes import sent
from tests.loop_clock import LoopClock
from tests.sized_outputs import WRITER, writing
from tests.sized_outputs import handlers as letter_handlers
from tests.world import POLICY, REGIONS, World, in_place_of, message, require, sequences
from tests.world import handlers as business

ANSWER_SECONDS_MAX = 10.0
SWEEP_SECONDS = 15.0
FEED_SECONDS = 0.5
LINK_BYTES = 1_000_000.0
LARGE = [10_000] * 150
# So many of them fit one batch.
IN_A_BATCH = 22
DELIVER = ResolutionRequest(ResolutionAction.DELIVER, "Ada", "is it on its way?")
DROP = ResolutionRequest(ResolutionAction.DROP, "Ada", "nobody wants them", queue=EVERY_QUEUE)


class LinkedWorld(World):
    """A world whose regions are reached over links; every batch that came is counted."""

    def __init__(self, **link_bytes: float) -> None:
        self.link_bytes = dict.fromkeys(REGIONS, LINK_BYTES) | link_bytes
        # Handlers are timed by the machine's clock, and a busy machine takes long for many outputs.
        policy = replace(POLICY, acknowledge_seconds=0.5, handler_seconds=600, lease_seconds=1200)
        super().__init__(
            LoopClock(), policy=policy, handlers=Handlers.joined([business, letter_handlers])
        )
        self.batches: dict[str, list[list[int]]] = defaultdict(list)
        links = {region: asyncio.Lock() for region in REGIONS}

        @in_place_of(self.bus, "send")
        async def over_the_link(
            send: Any, region: str, queue: str, messages: Sequence[Message], **options: Any
        ) -> None:
            async def carry() -> None:
                async with links[region]:
                    await asyncio.sleep(sum(map(wire_bytes, messages)) / self.link_bytes[region])
                    await send(region, queue, messages, **options)
                    self.batches[region].append(sequences(messages))

            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await carry()
            except TimeoutError as error:
                raise OutcomeUnknown("no answer") from error

    async def feed(self, worker: Services) -> None:
        """What the change feed does in a region: it shows every change once."""
        seen: set[str] = set()
        while True:
            await asyncio.sleep(FEED_SECONDS)
            documents = [d for p in self.journal.partitions.values() for d in p.values()]
            new = [d for d in documents if version_of(d) not in seen]
            seen |= {version_of(document) for document in new}
            shown = [pending for document in new if (pending := decode_pending(document))]
            await worker.recovery.recover(shown)

    async def sweeps(self, worker: Services) -> None:
        """What the timer does in a region."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await worker.recovery.sweep()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Inside the block the feeds and timers of both regions run, each in its own process."""
        tasks = [
            asyncio.create_task(work(self.worker(region)))
            for region in REGIONS
            for work in (self.feed, self.sweeps)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def settled(self) -> None:
        """Wait until no region misses anything."""
        for _ in range(600):
            if not await self.pending():
                return
            await asyncio.sleep(1.0)
        pytest.fail("something is pending for ever")

    def copies(self, region: str) -> list[int]:
        """The numbers that a region's queue took, in order, each as often as it came."""
        return sequences(self.bus.messages(region, "out"))


async def insist(worker: Services, arriving: Message) -> None:
    """Deliver a message until it is processed, as its queue does."""
    for _ in range(600):
        try:
            assert isinstance(await worker.consumer.consume(arriving), Processed)
        except Unavailable:
            await asyncio.sleep(1.0)
        else:
            return
    pytest.fail("it is never processed")


@pytest.mark.parametrize(
    ("kind", "outputs", "size"),
    [
        ("write", 5_000, 10_000),
        pytest.param("write.again", 2_500, 10_000, marks=pytest.mark.slow),
        pytest.param("write", 20_000, 20, marks=pytest.mark.slow),
    ],
)
def test_each_is_sent_once_to_each_region_and_the_session_goes_on(
    kind: str, outputs: int, size: int
) -> None:
    async def run() -> None:
        world = LinkedWorld()
        async with world.at_work():
            await insist(world.east, writing([size] * outputs, kind=kind))
            await insist(world.east, writing([1], 1, kind=kind))
            await world.settled()
        for region in REGIONS:
            assert world.copies(region) == list(range(outputs + 1))
        assert world.outputs("east") == world.outputs("west")
        assert all(not entry.get("pending") for entry in world.entries(WRITER))
        # How far it is is written after a batch, and each few seconds; the outputs never again.
        calls, batches = world.journal.fault_plan.calls, len(world.batches["east"])
        assert calls["acknowledge"] <= 2 * batches + 10
        assert calls["append"] == 2

    virtual_time.run(run())


def test_when_there_is_much_to_send_an_invocation_ends_in_time() -> None:
    async def run() -> None:
        world = LinkedWorld()
        await insist(world.east, writing([10_000] * 3_000))
        assert virtual_time.now() <= POLICY.waits.bound_seconds + 1
        (entry,) = world.entries(WRITER)
        assert entry["pending"] == [*REGIONS]
        assert "sending" not in entry["outbox"]

    virtual_time.run(run())


def test_when_one_region_is_slow_it_is_waited_for_as_long_as_it_takes_batches() -> None:
    async def run() -> None:
        world = LinkedWorld(west=100_000.0)
        await insist(world.east, writing(LARGE))
        assert world.copies("east") == world.copies("west") == [*range(len(LARGE))]
        assert await world.pending() == []

    virtual_time.run(run())


def test_when_the_worker_dies_between_two_batches_at_most_one_is_sent_again() -> None:
    """Whichever batch it is, and whether it was taken or not."""

    async def dies(place: int, *, is_taken: bool) -> int:
        world = LinkedWorld()
        batches = count()
        dying: list[asyncio.Task[object]] = []

        @in_place_of(world.bus, "send")
        async def die_at_one(send: Any, *arguments: Any, **options: Any) -> None:
            is_last = next(batches) == place
            if not is_last or is_taken:
                await send(*arguments, **options)
            if is_last:
                dying[0].cancel()
                await asyncio.sleep(ANSWER_SECONDS_MAX)

        work = world.east.consumer.consume(writing(LARGE))
        dying.append(asyncio.create_task(work))
        await asyncio.wait(dying)
        was_killed = dying[0].cancelled()
        async with world.at_work():
            await insist(world.worker("east"), writing([1], 1))
            await world.settled()
        for region in REGIONS:
            assert list(dict.fromkeys(world.copies(region))) == list(range(len(LARGE) + 1))
            sent_again = len(world.copies(region)) - (len(LARGE) + 1)
            assert sent_again <= IN_A_BATCH, (place, is_taken, region, world.batches[region])
        assert sent(world, "east") == sent(world, "west")
        return was_killed

    async def run() -> None:
        for is_taken in (False, True):
            place = 0
            while await dies(place, is_taken=is_taken):
                place += 1
            assert place >= 2 * len(LARGE) / IN_A_BATCH

    virtual_time.run(run())


@pytest.mark.parametrize("fault", [CallFault.LOST, CallFault.UNANSWERED, CallFault.REFUSED])
def test_when_one_batch_has_no_answer_it_alone_is_sent_again(fault: CallFault) -> None:
    async def run() -> None:
        world = LinkedWorld()
        world.bus.fault_plan.plan("send.west", *[*[None] * 4, fault])
        await insist(world.east, writing(LARGE))
        (entry,) = world.entries(WRITER)
        count, total = entry["outbox"]["sent"]["west"][OUTPUTS]
        assert 0 < count < total == len(LARGE)
        async with world.at_work():
            await world.settled()
        assert world.copies("east") == list(range(len(LARGE)))
        again = world.batches["west"][4] if fault is CallFault.UNANSWERED else []
        assert sorted(world.copies("west")) == sorted([*range(len(LARGE)), *again])
        assert sent(world, "east") == sent(world, "west")

    virtual_time.run(run())


def test_when_another_worker_is_sending_the_sweep_and_the_next_message_send_nothing() -> None:
    async def run() -> None:
        world = LinkedWorld()
        sending = asyncio.create_task(insist(world.east, writing(LARGE)))
        await asyncio.sleep(1.0)
        (entry,) = world.entries(WRITER)
        assert entry["outbox"]["sending"] == [*REGIONS]
        other = world.worker("east")
        waiting = asyncio.create_task(insist(other, writing([1], 1)))
        left = await other.resolver.deliver(WRITER, DELIVER)
        assert [one.outbox.regions for one in left] == [REGIONS]
        part = require(left[0].outbox.part_in("west"))
        assert 0 < part.count < part.total == len(LARGE)
        for region in REGIONS:
            await world.worker(region).recovery.sweep()
        await sending
        await waiting
        await asyncio.sleep(POLICY.lag_seconds)
        for region in REGIONS:
            await world.worker(region).recovery.sweep()
        assert world.copies("east") == world.copies("west") == [*range(len(LARGE) + 1)]

    virtual_time.run(run())


def test_when_a_send_is_slower_than_the_lag_nobody_sends_it_again() -> None:
    """One small batch, as on a busy host: the lag is counted from the last sign of its worker."""

    async def run() -> None:
        world = LinkedWorld(east=100.0, west=100.0)
        async with world.at_work():
            await insist(world.east, message(0, kind="account.bill"))
            await world.settled()
        assert world.copies("east") == world.copies("west") == [0]

    virtual_time.run(run())


def test_when_a_person_drops_what_is_pending_tombstones_take_its_place() -> None:
    async def run() -> None:
        world = LinkedWorld()
        with world.without("west"):
            await insist(world.east, writing(LARGE))
        await asyncio.sleep(60.0)
        left = await world.west.resolver.decide_outputs(WRITER, EVERY_QUEUE, DROP)
        assert left == OutputsLeft((), ())

        assert world.copies("east") == world.copies("west") == [*range(len(LARGE))]
        assert {one.type for one in world.bus.messages("west", "out")} == {TOMBSTONE_TYPE}
        (entry,) = world.entries(WRITER)
        decided = entry["outbox"]["decided"][OUTPUTS]
        assert (decided["action"], decided["who"], decided["why"]) == ("drop", DROP.who, DROP.why)
        assert await world.pending() == []
        with pytest.raises(NotBlocked):
            await world.west.resolver.decide_outputs(WRITER, EVERY_QUEUE, DROP)

    virtual_time.run(run())


def test_when_a_person_drops_the_rest_what_was_sent_stays() -> None:
    async def run() -> None:
        world = LinkedWorld()
        world.bus.fault_plan.plan("send.west", *[*[None] * 4, CallFault.REFUSED])
        await insist(world.east, writing(LARGE))
        await asyncio.sleep(60.0)
        await world.west.resolver.decide_outputs(WRITER, OUTPUTS, DROP)

        assert world.copies("west") == [*range(len(LARGE))]
        types = [one.type for one in world.bus.messages("west", "out")]
        whole = len([one for batch in world.batches["west"][:4] for one in batch])
        assert types == ["letter"] * whole + [TOMBSTONE_TYPE] * (len(LARGE) - whole)

    virtual_time.run(run())


async def test_an_outbox_that_an_older_release_wrote_is_sent_from_its_beginning() -> None:
    world = World(handlers=letter_handlers)
    with world.without("west"):
        await world.east.consumer.consume(writing([10] * 3))
    (entry,) = world.entries(WRITER)
    assert entry["outbox"].keys().isdisjoint({"sent", "sending"})
    await world.west.resolver.deliver(WRITER, DELIVER)
    assert world.outputs("west") == world.outputs("east")


def test_a_part_says_how_much_a_region_has() -> None:
    outbox = Outbox(
        (
            DestinationBatch("a", (writing([1]), writing([1], 1))),
            DestinationBatch("b", (writing([1], 2),)),
        ),
        REGIONS,
        delivered={"east": ("b",)},
        sent={"east": {"a": Part(1, 2)}},
    )
    assert outbox.part_in("east") == Part(2, 3)
    assert outbox.part_in("west") == Part(0, 3)
    assert outbox.kept_at(Staged("a", 1)).part_in("west") is None
