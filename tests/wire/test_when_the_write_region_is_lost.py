"""The region that dies is the one that writes: both regions' workers go on, each thing once."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.domain.errors import LockstepError
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.build import Services
from shared.wiring import connect
from tests.business import Outside, business
from tests.cloud import opened_adapters, running_cloud, settings_of
from tests.world import REGIONS, message, require

pytestmark = [pytest.mark.wire, pytest.mark.slow]

# A bound for what would never end, not a limit.
SECONDS_MAX = 300.0
EACH = 5
SETTINGS = {
    "LOCKSTEP_JOURNAL_CALL_SECONDS": "4",
    "LOCKSTEP_LEASE_SECONDS": "3",
    "LOCKSTEP_SECONDARY_DELAY_SECONDS": "0",
    "LOCKSTEP_RECOVERY_LAG_SECONDS": "1",
}
WAYS = {
    "silent": Fault("cosmos", Action.SILENT, region="east"),
    "cut": Fault("cosmos", Action.DOWN, region="east"),
    "unavailable": Fault("cosmos", Action.STATUS, region="east", status=503),
    "too-late": Fault("cosmos", Action.STATUS, region="east", status=408),
    "refused": Fault("cosmos", Action.STATUS, region="east", status=403, substatus=3),
}


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cloud]]:
    """An account that fails over as a whole, and one whose partitions do by themselves."""
    with (
        running_cloud(tmp_path_factory.mktemp("account"), 2) as account,
        running_cloud(tmp_path_factory.mktemp("ppaf"), 2, partitions_fail_over=True) as partitions,
    ):
        yield {"account": account, "partitions": partitions}


@asynccontextmanager
async def workers_in(cloud: Cloud, outside: Outside) -> AsyncIterator[dict[str, Services]]:
    """A worker in each region, which reads in its own one first."""
    async with AsyncExitStack() as opened:
        found = {}
        for region in REGIONS:
            locations = dict.fromkeys((region, *cloud.cosmos.regions))
            own = SETTINGS | {
                "LOCKSTEP_REGION": region,
                "LOCKSTEP_COSMOS_LOCATIONS": ",".join(locations),
            }
            adapters = await opened.enter_async_context(opened_adapters(cloud, **own))
            settings = settings_of(cloud, region, **own)
            found[region] = connect(settings, business(outside), adapters)
        yield found


class Load:
    """Work in both regions that is tried again until it is done, as hosts and callers do."""

    def __init__(self) -> None:
        self.failed: Counter[str] = Counter()

    async def insist[T](self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except LockstepError as error:
                self.failed[type(error).__name__] += 1
                await asyncio.sleep(0.2)

    async def deliver(self, worker: Services, *arriving: Message) -> None:
        """Messages that come at once, so that they gather."""
        await asyncio.gather(
            *(self.insist(partial(worker.consumer.consume, one)) for one in arriving)
        )

    async def post(self, worker: Services, session: str) -> None:
        """Publish messages one after another, as a feed does."""
        options = ProducerOptions(f"feed-{session}")
        for number in range(EACH):
            body = json.dumps({"amount": number}).encode()
            drafts = [Draft(f"d-{number}", "account.add", body)]
            await self.insist(partial(worker.producer.publish, session, drafts, options))

    async def command(self, worker: Services, session: str) -> None:
        """The steps of a saga: commands that are answered."""
        for number in range(EACH):
            body = json.dumps({"amount": number + 1}).encode()
            now = datetime.now(UTC).isoformat()
            command = Message(f"step-{number}", session, "account.bill", body, time=now)
            await self.insist(partial(worker.consumer.ask, command))


async def amounts_of(worker: Services, session: str) -> object:
    """The state of an account."""
    head = await worker.journal.head(session)
    return ((await worker.worker.input_after(head)).state or {}).get("amounts")


async def has_ended(worker: Services, sessions: Collection[str]) -> bool:
    """Whether nothing is claimed or parked in any of the sessions, and nothing is pending."""
    for session in sessions:
        head = await worker.journal.head(session)
        if head is not None and (head.status is Status.WORKING or head.parked):
            return False
        if await worker.journal.pending(session, REGIONS):
            return False
    return True


@pytest.mark.proof
@pytest.mark.parametrize("moved", ["account", "partitions"])
@pytest.mark.parametrize("way", WAYS)
async def test_both_regions_go_on_and_everything_is_done_once_and_in_order(
    clouds: dict[str, Cloud], way: str, moved: str
) -> None:
    cloud, outside, load = clouds[moved], Outside(), Load()
    cloud.cosmos.move_write_region("east")
    billed, paid = ([f"{kind}-{way}-{n}" for n in range(4)] for kind in ("bill", "pay"))
    posted, stepped = f"post-{way}", f"step-{way}"
    bills = {s: [message(n, session=s, kind="account.bill") for n in range(EACH)] for s in billed}
    payments = {s: [message(n, session=s, kind="account.pay") for n in range(EACH)] for s in paid}

    async with workers_in(cloud, outside) as workers, asyncio.timeout(SECONDS_MAX):
        # On one machine a client learns the regions' addresses from the account alone.
        await asyncio.gather(*(worker.journal.container.look() for worker in workers.values()))
        for session in (*billed, *paid):
            first = (bills | payments)[session][0]
            await load.deliver(workers["west"], first)
        cloud.faults.arm(WAYS[way])
        working = asyncio.gather(
            *(
                load.deliver(worker, *own)
                for worker in workers.values()
                for own in (*bills.values(), *payments.values())
            ),
            load.post(workers["west"], posted),
            load.command(workers["east"], stepped),
        )
        # A whole call has ended without an answer before the writes move.
        while not load.failed and not working.done():  # noqa: ASYNC110 - it is the store we wait for
            await asyncio.sleep(0.1)
        if moved == "account":
            cloud.cosmos.move_write_region("west")
        else:
            cloud.faults.arm(Fault("cosmos", Action.MOVE_WRITES, region="west"))
        await working
        every = {*billed, *paid, stepped}
        # Sweeps bring to an end what was claimed, or is pending, or waits for its turn.
        while not await load.insist(partial(has_ended, workers["west"], {*every, posted})):
            await asyncio.gather(*(load.insist(one.recovery.sweep) for one in workers.values()))

        for session in every:
            assert (session, await amounts_of(workers["west"], session)) == (
                session,
                [1, 2, 3, 4, 5],
            )
        # However often a payment was asked for, it was under one key.
        assert {amount: len(keys) for amount, keys in outside.keys.items()} == dict.fromkeys(
            range(1, EACH + 1), len(paid)
        )
        for queue, count in (
            ("lockstep-out", EACH * (len(billed) + len(paid) + 1)),
            ("lockstep", EACH),
        ):
            browser = require(workers["west"].errors.browser)
            looked = [await browser.browse_sessions(region, queue, 1_000) for region in REGIONS]
            east, west = (
                {one.id: one.body for one in look.messages if one.session in {*every, posted}}
                for look in looked
            )
            assert east == west
            assert len(east) == count
