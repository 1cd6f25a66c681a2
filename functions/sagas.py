"""Durable Functions: one orchestrator for every saga, its activities, and the feed that begins it.

Each region has a task hub of its own and an instance of every saga. The one in the region that
recorded the start walks; the other stands by, and walks when the saga is not over in time.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import azure.durable_functions as df
import azure.functions as func
import grpc  # type: ignore[import-untyped]
from durabletask.task import OrchestrationContext

from functions.saga_drive import CHANGED, Turns, drive
from shared.domain.saga import State, instance_of, key_of
from shared.domain.saga_walk import Activity, Started, orchestrate
from shared.usecases.saga_activities import Perform, SagaActivities
from shared.usecases.saga_book import SagaBook, started
from shared.usecases.services import Services

log = logging.getLogger("lockstep.sagas")

ORCHESTRATOR = "saga"
type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def blueprint(services: Services) -> func.Blueprint:
    """The orchestrator, its activities, and the change feed of the sagas' journals."""
    bp = func.Blueprint()
    book = SagaBook.of(services)
    activities = SagaActivities(book)
    for activity in Activity:
        add_activity(bp, activity, activities.named(activity))

    bp.orchestration_trigger(context_name="context")(saga)

    @bp.retry(strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:05")
    @bp.cosmos_db_trigger(
        arg_name="documents",
        connection="Cosmos",
        database_name="%LOCKSTEP_DATABASE%",
        container_name="%LOCKSTEP_JOURNAL%",
        lease_container_name="%LOCKSTEP_LEASES%",
        lease_container_prefix="sagas-%LOCKSTEP_REGION%",
    )
    @with_client(bp)
    async def begin_sagas(documents: func.DocumentList, client: Any) -> None:
        await begin(services, book, client, [dict(document) for document in documents])

    return bp


def add_activity(bp: func.Blueprint, activity: Activity, perform: Perform) -> None:
    """Hang one activity on its name."""

    async def call(work: Any) -> dict[str, Any]:
        answer = await perform(work)
        if activity is Activity.END:
            raise_alarm(work, State(answer["ended"]))
        return answer

    call.__name__ = activity.value
    bp.activity_trigger(input_name="work")(call)


def with_client(bp: func.Blueprint) -> Decorator:
    """The decorator of a function that takes a client of its region's task hub as `client`."""
    decorator: Decorator = bp.durable_client_input(client_name="client")
    return decorator


def saga(context: OrchestrationContext, work: Mapping[str, Any]) -> Turns[str]:
    """The orchestrator of every saga; the answer is how it ended."""
    walk = orchestrate(Started.model_validate(work["saga"]), work["stand_by_seconds"])
    return (yield from drive(context, walk))


def raise_alarm(work: Mapping[str, Any], ended: State) -> None:
    """Log an end that needs a person as an error; the app's output queue is told of it, too."""
    if ended.needs_a_person:
        log.error("saga %s is %s: %s", work["key"], ended, work["reason"])


async def begin(
    services: Services,
    book: SagaBook,
    client: df.DurableFunctionsClient,
    documents: Iterable[Mapping[str, Any]],
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
            await ensure(client, started(key, record), stands_by)
        if record is not None and record.events:
            await wake(client, key)


def key_in(document: Mapping[str, Any]) -> str | None:
    """The key of the saga that an entry belongs to; None for what is not of a started saga."""
    state = document.get("state", {}).get("state") if document.get("kind") == "entry" else None
    return key_of(document["session"]) if state not in (None, State.AWAITED.value) else None


def stand_by_seconds(services: Services) -> float:
    """How long one region leaves a saga to the other: as long as any claim outlives its owner."""
    return services.consumer.claims.lease_seconds


async def ensure(client: df.DurableFunctionsClient, saga: Started, stands_by: float) -> None:
    """Start the saga's instance, unless it is there; it stands by for so many seconds."""
    work = {"saga": saga.model_dump(mode="json"), "stand_by_seconds": stands_by}
    try:
        await client.schedule_new_orchestration(
            ORCHESTRATOR, input=work, instance_id=instance_of(saga.key)
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise


async def wake(client: df.DurableFunctionsClient, key: str) -> None:
    """Tell the saga's instance here that its journal has changed; one that is over needs not."""
    try:
        await client.raise_orchestration_event(instance_of(key), CHANGED)
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
            raise


async def left_to_the_feed(key: str, telling: Awaitable[None]) -> None:
    """Tell the task hub, if it can be reached: the journal has it, and the feed will come to it."""
    try:
        await telling
    except grpc.aio.AioRpcError as error:
        log.warning("saga %s is left to the feed: %s", key, error.code())
