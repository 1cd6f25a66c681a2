"""A saga's instance in its region's task hub: what it runs, how it is started, and how it is woken.

Each region has a task hub of its own and an instance of every saga. The one in the region that
recorded the start walks; the other stands by, and walks when the saga is not over in time.
"""

import logging
from collections.abc import Awaitable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped]
from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationStatus
from durabletask.task import OrchestrationContext

from functions.triggers.saga_drive import CHANGED, DurableSteps, drive
from shared.domain.journal import Entry
from shared.domain.saga.plan import SagaState, instance_of, key_of
from shared.domain.saga.walk import StartedSaga, orchestrate
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas, start_of
from shared.storage.documents import is_entry, session_in
from shared.storage.entries import decode_entry, lacks_state

log = logging.getLogger("lockstep.sagas")

ORCHESTRATOR = "saga"
# An instance whose state is one of these does nothing any more.
FINISHED = [
    OrchestrationStatus.COMPLETED,
    OrchestrationStatus.FAILED,
    OrchestrationStatus.TERMINATED,
]
# No instance is older. A search needs both ends: Azure's tables know no date before 1601.
FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)


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


def saga(context: OrchestrationContext, work: Mapping[str, Any]) -> DurableSteps[str]:
    """The orchestrator of every saga; the answer is how it ended."""
    walk = orchestrate(StartedSaga.model_validate(work["saga"]), work["stand_by_seconds"])
    # An instance that an older release began does not say whose it is.
    return (yield from drive(context, walk, work.get("queue")))


async def begin_instances(
    services: Services, sagas: Sagas, hub: TaskHub, documents: Iterable[Mapping[str, Any]]
) -> None:
    """Start an instance here for every saga the feed shows, and notify it of what has changed.

    Raises when the journal or the task hub is out of reach: then the feed shows the same again.
    """
    # One instance a saga, however many of its entries the feed shows at once.
    firsts: dict[str, Entry] = {}
    for document in documents:
        entry = started_entry(document)
        if entry is not None:
            firsts.setdefault(key_of(entry.session) or "", entry)
    for key, entry in firsts.items():
        try:
            record = await sagas.read_record(key)
        except ValueError:
            log.exception("saga %r cannot be read", key)
            continue
        if record is not None and record.state is SagaState.RUNNING:
            is_home = entry.attempt.owner.region == services.region
            stands_by = 0.0 if is_home else services.worker.policy.lease_seconds
            await ensure_instance(services, hub, start_of(key, record), stands_by)
        if record is not None and record.events:
            await notify_instance(hub, key)


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
    try:
        await hub.schedule_new_orchestration(
            ORCHESTRATOR, input=work, instance_id=instance_of(saga.key)
        )
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
