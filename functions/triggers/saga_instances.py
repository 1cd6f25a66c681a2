"""A saga's instance in its region's task hub: what it runs, how it is started, and how it is woken.

Each region has a task hub of its own and an instance of every saga. The one in the region that
recorded the start walks; the other stands by, and walks when the saga is not over in time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped]
from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationState, OrchestrationStatus
from durabletask.task import OrchestrationContext

from functions.triggers.saga_drive import CHANGED, DurableSteps, drive
from shared.domain.errors import CallerError, LockstepError, NewerState
from shared.domain.journal import Entry
from shared.domain.saga.plan import SagaState, instance_of, key_of
from shared.domain.saga.record import ListedSaga, SagaRecord
from shared.domain.saga.walk import StartedSaga, orchestrate
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas, start_of
from shared.storage.documents import is_entry, session_in
from shared.storage.entries import decode_entry, lacks_state
from shared.storage.journal import is_beacon

log = logging.getLogger("lockstep.sagas")

ORCHESTRATOR = "saga"
# What proves that sagas of a region run, and its activity.
PROOF, PROOF_ACTIVITY = "prove_sagas", "note_sagas"
# An instance whose state is one of these does nothing any more.
FINISHED = [
    OrchestrationStatus.COMPLETED,
    OrchestrationStatus.FAILED,
    OrchestrationStatus.TERMINATED,
]
# No instance is older. A search needs both ends: Azure's tables know no date before 1601.
FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
# What a run of the sweep looks at when nothing is amiss: so much, however many sagas are under way.
SWEPT_AT_ONCE = 100
CALLS_AT_ONCE = 16
# A task hub that says nothing for so long is as lost as one that refuses.
HUB_SECONDS = 5.0
LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


class TaskHub(Protocol):
    """A client of a region's task hub; both raise grpc.aio.AioRpcError."""

    async def schedule_new_orchestration(
        self,
        orchestrator: str,
        /,
        *,
        input: Any,  # noqa: A002 - the SDK's name
        instance_id: str,
    ) -> str:
        """Start an instance; ALREADY_EXISTS where there is one of this id."""

    async def raise_orchestration_event(self, instance_id: str, event_name: str, /) -> None:
        """Notify an instance; NOT_FOUND or FAILED_PRECONDITION where it is over."""


class SearchedTaskHub(TaskHub, Protocol):
    """The same, as the sweep of sagas asks it for instances and removes some."""

    async def get_orchestration_state(
        self, instance_id: str, *, fetch_payloads: bool
    ) -> OrchestrationState | None:
        """Return what is known of an instance, None for nothing."""

    async def purge_orchestration(self, instance_id: str) -> object:
        """Remove an instance that is over."""


def saga(context: OrchestrationContext, work: Mapping[str, Any]) -> DurableSteps[str]:
    """The orchestrator of every saga; the answer is how it ended."""
    walk = orchestrate(StartedSaga.model_validate(work["saga"]), work["stand_by_seconds"])
    # An instance that an older release began does not say whose it is.
    return (yield from drive(context, walk, work.get("queue")))


def prove_sagas(context: OrchestrationContext, work: Any) -> DurableSteps[None]:  # noqa: ARG001
    """The orchestrator that each beacon of a region starts: it needs all that sagas need to run."""
    yield context.call_activity(PROOF_ACTIVITY)


async def begin_instances(
    services: Services, sagas: Sagas, hub: TaskHub, documents: Collection[Mapping[str, Any]]
) -> None:
    """Start an instance here for every saga the feed shows, and notify it of what has changed.

    For this region's beacon a proof is started that sagas run, by one instance again and again.

    Raises when the journal or the task hub is out of reach: then the feed shows the same again.
    """
    # One instance a saga, however many of its entries the feed shows at once.
    firsts: dict[str, Entry] = {}
    for document in documents:
        entry = started_entry(document)
        if entry is not None:
            firsts.setdefault(key_of(entry.session) or "", entry)
    for key, entry in firsts.items():
        record = await read_readable(sagas, key)
        if record is not None and record.state is SagaState.RUNNING:
            stands_by = stand_by_seconds(services, entry.attempt.owner.region)
            await ensure_instance(services, hub, start_of(key, record), stands_by)
        if record is not None and record.events:
            await notify_instance(hub, key)
    if any(is_beacon(document, services.region) for document in documents):
        await start_instance(hub, PROOF, f"beacon-{services.region}")


async def read_readable(sagas: Sagas, key: str) -> SagaRecord | None:
    """Return a saga's record, None where there is none that can ever be read."""
    try:
        return await sagas.read_record(key)
    except (ValueError, CallerError):
        log.exception("saga %r cannot be read", key)
        return None


def stand_by_seconds(services: Services, region: str) -> float:
    """Return how long an instance here leaves a saga to the region that wrote its journal."""
    return 0.0 if region == services.region else services.worker.policy.lease_seconds


class SagaSweep:
    """Starts again what is under way by its journal and that nobody drives in this region.

    A task hub may be lost, or purged by hand, and the feed shows a change only once. The sagas
    under way are looked at in the order of their keys, SWEPT_AT_ONCE in a run and from there on in
    the next one. Where one of them had no instance the run looks at more, as long as there is time.
    """

    def __init__(self, services: Services, sagas: Sagas) -> None:
        self.services = services
        self.sagas = sagas
        self.after = ""

    async def run(self, hub: SearchedTaskHub) -> int:
        """Return how many sagas were given an instance here. What is left the next run finds.

        Never raises for a store or a task hub that cannot be reached.
        """
        clock, waits = self.services.worker.clock, self.services.worker.policy.waits
        end_at, begun = clock.now() + waits.bound_seconds, 0
        try:
            while True:
                page = await self.services.journal.sagas(
                    SagaState.RUNNING, after=self.after, limit=SWEPT_AT_ONCE
                )
                # What is younger is still the feed's.
                lag = self.services.worker.policy.lag_seconds
                left = [saga for saga in page if saga.age_seconds > lag]
                begun_here = await self.begin_all(hub, left)
                self.after = page[-1].key if len(page) == SWEPT_AT_ONCE else ""
                begun += begun_here
                if not (begun_here and self.after) or clock.now() >= end_at:
                    break
        except LockstepError as error:
            log.warning("the sweep of sagas is postponed: %s", error)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            why = error.code() if isinstance(error, grpc.aio.AioRpcError) else "it is silent"
            log.warning("the sweep of sagas is postponed, for want of the task hub: %s", why)
        if begun:
            log.warning("%d sagas that nobody drove in this region have an instance again", begun)
        return begun

    async def begin_all(self, hub: SearchedTaskHub, sagas: Sequence[ListedSaga]) -> int:
        """Begin those that have no instance; the first one tells whether the hub answers."""
        parts = [sagas[:1], *batched(sagas[1:], CALLS_AT_ONCE, strict=False)]
        begun = 0
        for part in parts:
            calls = [self.begin_left(hub, saga) for saga in part]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                begun += outcome
        return begun

    async def begin_left(self, hub: SearchedTaskHub, saga: ListedSaga) -> bool:
        """Say whether a saga had no instance that goes on, and has one now.

        What is refused for this saga alone is logged, and keeps no other from its instance.
        """
        instance = instance_of(saga.key)
        try:
            async with asyncio.timeout(HUB_SECONDS):
                known = await hub.get_orchestration_state(instance, fetch_payloads=False)
            if known is not None and known.runtime_status not in FINISHED:
                return False
            # It may have ended since it was listed.
            record = await read_readable(self.sagas, saga.key)
            if record is None or record.state is not SagaState.RUNNING:
                return False
            stands_by = stand_by_seconds(self.services, saga.region)
            async with asyncio.timeout(HUB_SECONDS):
                if known is not None:
                    # Not every store starts an instance again that failed or was terminated.
                    await hub.purge_orchestration(instance)
                await ensure_instance(self.services, hub, start_of(saga.key, record), stands_by)
        except (grpc.aio.AioRpcError, NewerState) as error:
            if isinstance(error, grpc.aio.AioRpcError) and error.code() in LOST:
                raise
            log.warning("saga %r has no instance, and none was started: %s", saga.key, error)
            return False
        return True


def started_entry(document: Mapping[str, Any]) -> Entry | None:
    """The entry of a saga that has started; None for every other document of the feed."""
    if not is_entry(document) or key_of(session_in(document)) is None:
        return None
    try:
        entry = decode_entry(document)
    except (KeyError, TypeError, ValueError):
        # Somebody wrote it by hand: it must not keep the feed from the others.
        log.exception("an entry of session %r cannot be read", session_in(document))
        return None
    if lacks_state(document) or (entry.change and entry.change.at == entry.position):
        # The record itself is read anyway, and says whether the saga has started.
        return entry
    state = entry.state.get("state") if entry.state else None
    return entry if state not in (None, SagaState.AWAITED.value) else None


async def ensure_instance(
    services: Services, hub: TaskHub, saga: StartedSaga, stands_by: float
) -> None:
    """Start the saga's instance, unless it is there.

    It stands by for so many seconds, as long as any claim outlives its owner, while the other
    region's instance walks; the one in the region that recorded the start does not wait. It says
    which queue this app reads, so that an app of another application performs none of its steps.
    """
    work = {
        "saga": saga.model_dump(mode="json"),
        "stand_by_seconds": stands_by,
        "queue": services.own_queues.get(services.region),
    }
    await start_instance(hub, ORCHESTRATOR, instance_of(saga.key), work)


async def start_instance(hub: TaskHub, orchestrator: str, instance: str, work: Any = None) -> None:
    """Start an instance, unless it is under way."""
    try:
        await hub.schedule_new_orchestration(orchestrator, input=work, instance_id=instance)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise


async def notify_instance(hub: TaskHub, key: str) -> None:
    """Notify the saga's instance here that its journal has changed, unless it is over."""
    try:
        await hub.raise_orchestration_event(instance_of(key), CHANGED)
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
            raise


async def purge_instances(hub: AsyncTaskHubGrpcClient, retention: timedelta) -> None:
    """Remove finished instances that began longer ago; what is left the next run removes.

    The hub would keep them for ever. What became of their sagas stays in the journal.
    """
    try:
        purged = await hub.purge_orchestrations_by(
            FIRST_DAY, datetime.now(UTC) - retention, FINISHED
        )
    except grpc.aio.AioRpcError as error:
        log.warning("finished sagas stay in the task hub for now: %s", error.code())
        return
    if purged.deleted_instance_count:
        log.info("%d finished sagas left the task hub", purged.deleted_instance_count)


async def try_now(key: str, notification: Awaitable[None]) -> None:
    """Notify the task hub if it can be reached; otherwise the change feed does it later."""
    try:
        await notification
    except grpc.aio.AioRpcError as error:
        log.warning("saga %r is left to the feed: %s", key, error.code())
