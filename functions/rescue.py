"""The change feed and the timer: whatever a dispatcher left is dispatched after all."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import azure.functions as func

from shared.domain.documents import owing_from
from shared.domain.errors import LockstepError
from shared.usecases.compact import Compactor
from shared.usecases.rescue import Rescuer
from shared.usecases.services import Services

log = logging.getLogger("lockstep.rescue")


def blueprint(services: Services) -> func.Blueprint:
    """The change feed and the timers. Each region has leases of its own: each sees every change."""
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

    @bp.timer_trigger(arg_name="timer", schedule="%LOCKSTEP_COMPACT_SCHEDULE%")
    async def compact(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the binding needs it
        await compact_journal(services.compactor)

    return bp


async def rescue_documents(rescuer: Rescuer, documents: Iterable[Mapping[str, Any]]) -> None:
    """Dispatch what the feed shows as owed.

    Never raises for a store or a region that is out of reach: the feed speaks of each change once
    and moves on even when the function fails, so failing would gain nothing. The sweep comes later.
    """
    rescued = await rescuer.rescue([o for document in documents if (o := owing_from(document))])
    if rescued.paid:
        log.info("rescue paid %d sessions", rescued.paid)
    if rescued.left:
        log.warning("rescue left %d sessions to the sweep", rescued.left)


async def sweep_journal(rescuer: Rescuer) -> None:
    """Dispatch what is owed for longer than the lag; the next run takes what this one cannot."""
    try:
        rescued = await rescuer.sweep()
    except LockstepError as error:
        log.warning("sweep postponed: %s", error)
        return
    if rescued.paid or rescued.left:
        log.info("sweep paid %d outboxes and left %d", rescued.paid, rescued.left)


async def compact_journal(compactor: Compactor) -> None:
    """Remove old entries; what one run cannot remove the next one will."""
    try:
        compacted = await compactor.compact()
    except LockstepError as error:
        log.warning("compaction postponed: %s", error)
        return
    if compacted.entries or compacted.failed:
        log.info("compacted %d entries, %d sessions failed", compacted.entries, compacted.failed)
