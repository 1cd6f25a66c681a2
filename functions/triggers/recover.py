"""The change feed and the timers: whatever a worker left is done after all, and old entries go."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import azure.functions as func

from functions.triggers.change_feed import JOURNAL_FEED, LEDGERS_FEED
from functions.triggers.saga_instances import SagaSweep
from functions.triggers.sagas import with_client
from shared.domain.errors import LockstepError
from shared.domain.measures import POSTPONED
from shared.domain.saga.record import kinds_of
from shared.engine.build import Services
from shared.engine.operate.bulk import BulkDecisions
from shared.engine.operate.compact import Compactor
from shared.engine.operate.dead_letters import DeadLetters
from shared.engine.operate.heartbeats import COMPACT, SWEEP
from shared.engine.operate.recover import Recovery
from shared.engine.sagas.sagas import Sagas
from shared.ports import Telemetry
from shared.storage.documents import decode_pending

log = logging.getLogger("lockstep.recover")


def build_recovery_blueprint(services: Services) -> func.Blueprint:
    """The change feed and the timers. Each region has leases of its own: each sees every change."""
    bp = func.Blueprint()

    @bp.cosmos_db_trigger(**JOURNAL_FEED, lease_container_prefix="%LOCKSTEP_REGION%")
    async def recover(documents: func.DocumentList) -> None:
        services.missing_places.begin_looking()
        await services.readiness.require_regions()
        await recover_documents(services.recovery, [dict(document) for document in documents])

    if (ledgers := services.external_ledgers) is not None:

        @bp.cosmos_db_trigger(**LEDGERS_FEED, lease_container_prefix="ledgers-%LOCKSTEP_REGION%")
        async def recover_ledgers(documents: func.DocumentList) -> None:
            await ledgers.readiness.require_regions()
            await recover_documents(ledgers.recovery, [dict(document) for document in documents])

    async def sweep(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the binding needs it
        services.missing_places.begin_looking()
        await services.readiness.require_regions()
        await sweep_journal(services.recovery)
        await sweep_ledgers(services.external_ledgers, records=services.readiness.is_recorded)
        await sweep_dead_letters(services.dead_letters)
        if services.heartbeats is not None and services.heartbeats.is_due():
            overview = services.overview
            seen = await overview.look(services.heartbeats.silences()) if overview else None
            await services.heartbeats.note(SWEEP, seen)
            await services.heartbeats.report()
        await sweep_bulk(services.bulk)

    saga_sweep = SagaSweep(services, Sagas(services.consumer))

    async def sweep_with_sagas(timer: func.TimerRequest, client: Any) -> None:
        await sweep(timer)
        await saga_sweep.run(client)

    function: Any = sweep
    if kinds_of(services.handlers):
        sweep_with_sagas.__name__ = sweep.__name__
        function = with_client(bp)(sweep_with_sagas)
    # A host that takes the timer over from a killed one does not wait for the next occurrence.
    at = "%LOCKSTEP_SWEEP_SCHEDULE%"
    bp.timer_trigger(arg_name="timer", schedule=at, run_on_startup=True)(function)

    @bp.timer_trigger(arg_name="timer", schedule="%LOCKSTEP_COMPACT_SCHEDULE%")
    async def compact(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the binding needs it
        await services.readiness.require_regions()
        await compact_journal(services.compactor)
        await renew_reports(services.dead_letters)
        if services.heartbeats is not None:
            await services.heartbeats.note(COMPACT)

    return bp


@contextmanager
def postponing(work: str, telemetry: Telemetry | None = None) -> Iterator[None]:
    """Log and measure that a store or a region was unavailable; a later run takes what is left."""
    try:
        yield
    except LockstepError as error:
        log.warning("%s postponed: %s", work, error)
        if telemetry is not None:
            telemetry.add(POSTPONED)


async def recover_documents(recovery: Recovery, documents: Iterable[Mapping[str, Any]]) -> None:
    """Deliver what the feed shows as pending.

    Never raises for a store or a region that is unavailable: the feed shows each change once and
    moves on even when the function fails, so failing would gain nothing. The sweep comes later.
    """
    changed = [pending for document in documents if (pending := decode_pending(document))]
    recovered = await recovery.recover(changed)
    if recovered.helped:
        log.info("the change feed helped %d sessions", recovered.helped)
    if recovered.left:
        log.warning("the change feed left %d sessions to the sweep", recovered.left)


async def sweep_journal(recovery: Recovery) -> None:
    """Help sessions that have waited for longer than the lag; a later run takes what is left."""
    with postponing("sweep", recovery.worker.telemetry):
        recovered = await recovery.sweep()
        if recovered.helped or recovered.left:
            log.info("the sweep helped %d sessions and left %d", recovered.helped, recovered.left)


async def sweep_ledgers(external_ledgers: Services | None, *, records: bool = False) -> None:
    """Deliver what producers outside could not send to this region.

    Their list of regions is held against this app's, so that one who knows another is refused, and
    so is one of another application once this app `records` whose ledgers these are.
    """
    if external_ledgers is not None:
        with postponing("the sweep of the ledgers of producers outside"):
            await external_ledgers.readiness.require_regions(records=records)
            await sweep_journal(external_ledgers.recovery)


async def sweep_dead_letters(dead_letters: DeadLetters) -> None:
    """Run dead letters of this region after all, or report them; a later run takes what is left."""
    with postponing("dead letters"):
        if ended := await dead_letters.sweep():
            log.warning("%d dead letters were brought to an end", ended)


async def sweep_bulk(bulk: BulkDecisions) -> None:
    """Go on with bulk decisions that nobody carries out; a later run takes what is left."""
    with postponing("bulk decisions"):
        await bulk.sweep()


async def renew_reports(dead_letters: DeadLetters) -> None:
    """Put back what expired in the error queue undecided; a later run takes what is left."""
    with postponing("expired reports"):
        if ended := await dead_letters.renew_reports():
            log.info("%d expired reports were removed or put back", ended)


async def compact_journal(compactor: Compactor) -> None:
    """Remove old entries; what one run cannot remove the next one will."""
    with postponing("compaction"):
        done = await compactor.compact()
        if done.entries or done.failed:
            log.info("compacted %d entries, %d sessions failed", done.entries, done.failed)
