"""Durable Functions: one orchestrator for every saga, its activities, the feed that starts it."""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import azure.functions as func

from functions.triggers.change_feed import JOURNAL_FEED
from functions.triggers.saga_drive import NOT_OURS
from functions.triggers.saga_instances import (
    PROOF_ACTIVITY,
    begin_instances,
    prove_sagas,
    purge_instances,
    saga,
)
from shared.domain.errors import Misconfigured
from shared.domain.measures import STRANGERS
from shared.domain.reports import shorten
from shared.domain.saga.plan import SagaState, traceparent_of
from shared.domain.saga.walk import Activity
from shared.engine.build import Services
from shared.engine.operate.heartbeats import SAGAS
from shared.engine.sagas.sagas import PerformActivity, Sagas

log = logging.getLogger("lockstep.sagas")

type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def build_saga_blueprint(services: Services) -> func.Blueprint:
    """The orchestrator, its activities, what starts its instances and what removes them."""
    bp = func.Blueprint()
    sagas = Sagas(services.consumer)
    for activity, perform in sagas.activities().items():
        add_activity(services, bp, activity, perform)

    bp.orchestration_trigger(context_name="context")(saga)
    bp.orchestration_trigger(context_name="context")(prove_sagas)

    async def note_sagas(work: Any) -> None:  # noqa: ARG001 - the binding needs it
        if services.heartbeats is not None:
            await services.heartbeats.note(SAGAS)

    note_sagas.__name__ = PROOF_ACTIVITY
    bp.activity_trigger(input_name="work")(note_sagas)

    @bp.retry(strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:05")
    @bp.cosmos_db_trigger(**JOURNAL_FEED, lease_container_prefix="sagas-%LOCKSTEP_REGION%")
    @with_client(bp)
    async def begin_sagas(documents: func.DocumentList, client: Any) -> None:
        await begin_instances(services, sagas, client, [dict(document) for document in documents])

    @bp.timer_trigger(arg_name="timer", schedule="%LOCKSTEP_COMPACT_SCHEDULE%")
    @with_client(bp)
    async def purge_sagas(timer: func.TimerRequest, client: Any) -> None:  # noqa: ARG001
        await purge_instances(client, timedelta(seconds=services.worker.policy.retention_seconds))

    return bp


def add_activity(
    services: Services, bp: func.Blueprint, activity: Activity, perform: PerformActivity
) -> None:
    """Register one activity under its name. It does nothing for a saga of another application."""

    async def call(work: Any) -> dict[str, Any]:
        queue, own = work.pop("queue", None), services.own_queues.values()
        if queue not in (None, *own):
            why = (
                f"the saga's app reads queue {queue!r}, and this one {', '.join(own)}:"
                " give each app a task hub of its own (hubName)"
            )
            services.worker.failure_log.add("a saga's step", "the task hub", Misconfigured(why))
            if services.worker.telemetry is not None:
                services.worker.telemetry.add(STRANGERS)
            return NOT_OURS
        traceparent = traceparent_of(work["key"])
        with services.worker.span(f"saga {activity.value}", traceparent, saga=work["key"]):
            answer = await perform(work)
        if activity is Activity.END:
            log_alert(work, SagaState(answer["ended"]))
        return answer

    call.__name__ = activity.value
    bp.activity_trigger(input_name="work")(call)


def with_client(bp: func.Blueprint) -> Decorator:
    """The decorator of a function that takes a client of its region's task hub as `client`."""
    decorator: Decorator = bp.durable_client_input(client_name="client")
    return decorator


def log_alert(work: Mapping[str, Any], ended: SagaState) -> None:
    """Log an end that needs a person as an error; the app's output queue gets an alert as well."""
    if ended.needs_a_person:
        log.error("saga %r is %s: %s", work["key"], ended, shorten(str(work["reason"])))
