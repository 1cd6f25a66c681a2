"""Fill a journal and the error queues as the product fills them, through its own engine.

The adapters are the product's, so every document and every report is one that an app has written.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from cli.cloud import app_settings
from local.testing.cloud import CloudProcess
from proof.bench.load import make_status, make_statuses
from proof.testbed.command import RunFailed
from shared.domain import next_entry
from shared.domain.handler import HandlerResult
from shared.domain.journal import Attempt
from shared.domain.message import Message, Number, derive_id
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX
from shared.domain.saga.plan import SagaState
from shared.domain.saga.walk import AwaitChange, CallAll, StartedSaga, orchestrate
from shared.engine.build import Services
from shared.engine.handle.find import find_handlers
from shared.engine.operate.heartbeats import SWEEP
from shared.engine.sagas.sagas import Sagas
from shared.settings import Settings
from shared.wiring import Adapters, connect

GROUP = "bench"
# What is written side by side.
AT_ONCE = 32
PRODUCTS = range(50)
# A saga that waits for approval for so long is still waiting when it is looked at.
APPROVAL_SECONDS = 24 * 3600
# By two causes, as the tracking handler finds them.
CAUSES: Mapping[str, bytes] = {
    "no flight": b'{"at":1}',
    "no status": b'{"at":"2013-01-01T05:17:00","destination":"IAH","flight":"UA1","origin":"EWR"}',
}


@asynccontextmanager
async def open_worker(cloud: CloudProcess, region: str) -> AsyncIterator[Services]:
    """A worker of the product in this process, as one of a region."""
    settings = Settings.read(app_settings(cloud) | {"LOCKSTEP_REGION": region})
    adapters = Adapters.of(settings)
    services = connect(settings, find_handlers("functions.handlers", settings), adapters)
    # No worker died before this one, so nothing has to run under a claim.
    services.worker.careful_until = 0.0
    try:
        yield services
    finally:
        await adapters.close()


async def work_all[T](work: Callable[[T], Awaitable[object]], given: Iterable[T]) -> None:
    """Do all of it, so many at once; the first failure is raised."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def do(one: T) -> None:
        async with slots:
            await work(one)

    async with asyncio.TaskGroup() as group:
        for one in given:
            group.create_task(do(one))


async def begin_session(services: Services, session: str) -> None:
    """Write the entry of a session's first message, without a look at the session before."""
    message = make_status(session, 0)
    attempt = Attempt(message.id, services.worker.owner)
    opened = next_entry.open_entry(EntryInput(None, message, attempt))
    done = HandlerResult({"events": 1, "status": "airborne", "flight": "UA0"}, (), {}, {})
    await services.journal.append(next_entry.complete(opened, done, NO_OUTBOX))


async def halt(services: Services, session: str, body: bytes) -> None:
    """A message that its handler cannot take halts its session, and the error queue has a copy."""
    number = Number(GROUP, 0, 0)
    bad = Message(derive_id(session, "bad"), session, "flight.status", body, number)
    await services.consumer.consume(bad)


async def add_report(services: Services, session: str) -> None:
    """Report a delivery that no journal takes: it has neither a number nor a time."""
    properties = {"id": derive_id(session, "stray"), "type": "flight.status"}
    body = make_statuses(session, range(1))[0].body
    reason = "the message has no number and no time: it cannot be told from a copy"
    await services.rejecter.reject(session, properties, body, reason)


async def stock(services: Services) -> None:
    """Put so much into stock, and into the account of who orders, that every order is filled."""
    plenty = ((f"stock:{one:02d}", "stock.receive", b'{"quantity":1000}') for one in PRODUCTS)
    for session, kind, body in (*plenty, ("account:ada", "account.deposit", b'{"amount":100000}')):
        await services.consumer.ask(give_time(services, session, kind, body))


def give_time(services: Services, session: str, kind: str, body: bytes) -> Message:
    now = datetime.fromtimestamp(services.worker.clock.today(), UTC).isoformat()
    return Message(derive_id(session, kind), session, kind, body, time=now)


async def begin_saga(services: Services, number: int, *, waits: bool) -> StartedSaga:
    """Start an order of two lines, which waits for approval before it is paid or does not."""
    order = {
        "customer": "ada",
        "lines": [
            {"product": f"{PRODUCTS[(number + line) % len(PRODUCTS)]:02d}", "quantity": 1}
            for line in range(2)
        ],
        "amount": 10,
        "approval_seconds": APPROVAL_SECONDS if waits else 0,
    }
    sagas, key = Sagas(services.consumer), f"order-{number:05d}"
    started = await sagas.start(key, "order.place", json.dumps(order).encode())
    found = await sagas.load(key)
    if not started.is_accepted or not isinstance(found, StartedSaga):
        raise RunFailed(f"saga {key} did not start: {started.reason}")
    return found


async def complete_saga(services: Services, started: StartedSaga) -> None:
    """Record that a saga was completed, as the last activity of its walk does."""
    await Sagas(services.consumer).end(
        {"key": started.key, "state": SagaState.COMPLETED, "outcomes": {}, "reason": None}
    )


async def walk_saga(services: Services, started: StartedSaga) -> None:
    """Take a saga step by step to its end, or to where it waits for approval."""
    activities = Sagas(services.consumer).activities()
    walking = orchestrate(started, 0.0)
    answer: Any = None
    while True:
        try:
            request = walking.send(answer)
        except StopIteration:
            return
        match request:
            case CallAll(calls):
                answer = [await activities[call.activity](call.work) for call in calls]
            case AwaitChange():
                return
            case _:
                answer = None


async def record_look(cloud: CloudProcess) -> None:
    """Let a sweep of each region look, which counts what needs attention."""
    for region in cloud.regions:
        async with open_worker(cloud, region) as services:
            if services.overview is None or services.heartbeats is None:
                raise AssertionError("heartbeats are not kept")
            await services.heartbeats.note(SWEEP, await services.overview.look({}))


async def process_many(services: Services, session: str, count: int) -> None:
    """Process one message after another, so that each has an entry of its own."""
    for message in make_statuses(session, range(count)):
        await services.consumer.consume(message)
