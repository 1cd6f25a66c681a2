"""A saga's instance in its region's task hub: what it runs, how it is begun, and how it is woken.

Each region has a task hub of its own and an instance of every saga. The one in the region that
recorded the start walks; the other stands by, and walks when the saga is not over in time.
"""

import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped]
from durabletask.task import OrchestrationContext

from functions.saga_drive import CHANGED, Turns, drive
from shared.domain.saga import State, instance_of, key_of
from shared.domain.saga_walk import Started, orchestrate
from shared.usecases.saga_book import SagaBook, started
from shared.usecases.services import Services

log = logging.getLogger("lockstep.sagas")

ORCHESTRATOR = "saga"


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
        """Tell an instance; NOT_FOUND or FAILED_PRECONDITION where nobody listens any more."""


def saga(context: OrchestrationContext, work: Mapping[str, Any]) -> Turns[str]:
    """The orchestrator of every saga; the answer is how it ended."""
    walk = orchestrate(Started.model_validate(work["saga"]), work["stand_by_seconds"])
    return (yield from drive(context, walk))


async def begin(
    services: Services, book: SagaBook, hub: TaskHub, documents: Iterable[Mapping[str, Any]]
) -> None:
    """See to it that every saga the feed shows has its instance here, and hears what is new.

    Raises when the journal or the task hub is out of reach: then the feed shows the same again.
    """
    firsts = {key: d for d in reversed(list(documents)) if (key := key_in(d)) is not None}
    for key, document in reversed(firsts.items()):
        try:
            record = await book.record(key)
        except ValueError:
            log.exception("saga %s cannot be read", key)
            continue
        if record is not None and record.state is State.RUNNING:
            is_home = document["owner"]["region"] == services.region
            stands_by = 0.0 if is_home else stand_by_seconds(services)
            await ensure(hub, started(key, record), stands_by)
        if record is not None and record.events:
            await wake(hub, key)


def key_in(document: Mapping[str, Any]) -> str | None:
    """The key of the saga that an entry belongs to; None for what is not of a started saga."""
    state = document.get("state", {}).get("state") if document.get("kind") == "entry" else None
    return key_of(document["session"]) if state not in (None, State.AWAITED.value) else None


def stand_by_seconds(services: Services) -> float:
    """How long one region leaves a saga to the other: as long as any claim outlives its owner."""
    return services.consumer.claims.lease_seconds


async def ensure(hub: TaskHub, saga: Started, stands_by: float) -> None:
    """Start the saga's instance, unless it is there; it stands by for so many seconds."""
    work = {"saga": saga.model_dump(mode="json"), "stand_by_seconds": stands_by}
    try:
        await hub.schedule_new_orchestration(
            ORCHESTRATOR, input=work, instance_id=instance_of(saga.key)
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise


async def wake(hub: TaskHub, key: str) -> None:
    """Tell the saga's instance here that its journal has changed; one that is over needs not."""
    try:
        await hub.raise_orchestration_event(instance_of(key), CHANGED)
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
            raise


async def left_to_the_feed(key: str, telling: Awaitable[None]) -> None:
    """Tell the task hub, if it can be reached: the journal has it, and the feed will come to it."""
    try:
        await telling
    except grpc.aio.AioRpcError as error:
        log.warning("saga %s is left to the feed: %s", key, error.code())
