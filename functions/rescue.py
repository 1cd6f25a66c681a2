"""The change feed and the timer: whatever a dispatcher left is dispatched after all."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import azure.functions as func

from shared.domain.documents import owing_from
from shared.domain.errors import LockstepError
from shared.usecases.rescue import Rescuer
from shared.usecases.services import Services

log = logging.getLogger("lockstep.rescue")


def blueprint(services: Services) -> func.Blueprint:
    """Both triggers. Each region has leases of its own, so each sees every change."""
    bp = func.Blueprint()

    @bp.cosmos_db_trigger(
        arg_name="documents",
        connection="Cosmos",
        database_name="%LOCKSTEP_DATABASE%",
        container_name="%LOCKSTEP_JOURNAL%",
        lease_container_name="%LOCKSTEP_LEASES%",
        lease_container_prefix="%LOCKSTEP_REGION%",
    )
    async def rescue(documents: func.DocumentList) -> None:
        await rescue_documents(services.rescuer, [dict(document) for document in documents])

    @bp.timer_trigger(arg_name="timer", schedule="%LOCKSTEP_SWEEP_SCHEDULE%")
    async def sweep(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the binding needs it
        await sweep_journal(services.rescuer)

    return bp


async def rescue_documents(rescuer: Rescuer, documents: Iterable[Mapping[str, Any]]) -> None:
    """Dispatch what the feed shows as owed.

    Never raises for a store or a region that is out of reach: the feed speaks of each change once
    and moves on even when the function fails, so failing would gain nothing. The sweep comes later.
    """
    seen = [owing for document in documents if (owing := owing_from(document))]
    try:
        rescued = await rescuer.rescue(seen)
    except LockstepError as error:
        log.warning("rescue left to the sweep: %s", error)
        return
    if rescued.paid or rescued.left:
        log.info("rescue paid %d outboxes and left %d", rescued.paid, rescued.left)


async def sweep_journal(rescuer: Rescuer) -> None:
    """Dispatch what is owed for longer than the lag; the next run takes what this one cannot."""
    try:
        rescued = await rescuer.sweep()
    except LockstepError as error:
        log.warning("sweep postponed: %s", error)
        return
    if rescued.paid or rescued.left:
        log.info("sweep paid %d outboxes and left %d", rescued.paid, rescued.left)
