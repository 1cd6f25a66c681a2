"""The Service Bus trigger: messages through their session's journal."""

import asyncio
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NoReturn

import azure.functions as func

from shared.domain import wire
from shared.domain.errors import InvalidMessage
from shared.domain.identity import identify
from shared.domain.measures import DELIVERY_SECONDS, DUPLICATES, LATENCY_SECONDS, REJECTIONS
from shared.domain.message import Message
from shared.domain.reports import shorten
from shared.engine.build import Services
from shared.engine.consume.consume import AGAIN
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Expired,
    Faulted,
    Outcome,
    Parked,
    PassedThrough,
    Processed,
    Refused,
)
from shared.engine.handle.raised import describe_error
from shared.ports import Telemetry

log = logging.getLogger("lockstep.receive")

# The longest pause of a delivery that fails, well below the time that the host gives a function.
PAUSE_SECONDS_MAX = 120.0

OUTCOMES: dict[type[Outcome], str] = {
    Processed: "processed",
    AlreadyDone: "duplicate",
    Parked: "parked",
    Claimed: "claimed",
    Faulted: "faulted",
    Refused: "refused",
    Conflicting: "conflicting",
    Expired: "expired",
}


def build_receive_blueprint(services: Services) -> func.Blueprint:
    """The trigger on this region's own namespace: many sessions, many messages of each at once."""
    bp = func.Blueprint()

    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name="%LOCKSTEP_QUEUE%",
        connection=f"ServiceBus_{services.region}",
        is_sessions_enabled=True,
        # As text, the host would let fields of a JSON body overwrite the message's properties.
        data_type=func.DataType.BINARY,
    )
    async def receive(message: func.ServiceBusMessage) -> None:
        await receive_message(services, message)

    return bp


async def receive_message(services: Services, delivery: func.ServiceBusMessage) -> None:
    """Give the delivery its outcome, and tell it; what no journal takes goes to the error queue.

    Returning settles the delivery, raising an Exception abandons it, after a pause. Nothing else is
    raised but the cancellation of the invocation: the host would wait for an answer in vain.
    """
    worker, clock, in_hand = services.worker, services.worker.clock, services.in_hand
    began = clock.now()
    # As long as this lasts; health says so when none of them ends (heartbeats.py).
    in_hand.began[id(delivery)] = time.monotonic()
    try:
        if not services.readiness.is_recorded:
            await services.readiness.require_regions(records=True)
        properties: Mapping[str, object] = delivery.application_properties or {}
        body = delivery.get_body()
        try:
            if f"{wire.PREFIX}id" not in properties:
                session, enqueued_at = delivery.session_id, delivery.enqueued_time_utc
                properties = identify(worker.handlers, properties, body, session, enqueued_at)
            message = wire.from_properties(properties, body)
        except InvalidMessage as error:
            await reject(services, delivery, str(error), is_unreadable=True)
            return
        with worker.span(
            "receive",
            message.traceparent,
            session=message.session,
            message=message.id,
            delivery=delivery.delivery_count or 1,
        ) as span:
            try:
                # The host calls in no certain order; the broker's is that of these numbers. What
                # comes again without an exception may have ended the worker that had it.
                arrival = delivery.sequence_number or 0
                earlier = (delivery.delivery_count or 1) - 1
                as_try = AGAIN if earlier > in_hand.raised.get(arrival, 0) else 0
                outcome = await services.consumer.consume(message, arrival, as_try=as_try)
            except InvalidMessage as error:
                await reject(services, delivery, str(error))
                return
            name = name_outcome(outcome)
            if span is not None:
                span.describe(outcome=name)
            if isinstance(outcome, Conflicting | Expired):
                await reject(services, delivery, outcome.reason)
        if worker.telemetry is not None:
            measure_delivery(worker.telemetry, delivery, name, clock.now() - began)
        log_outcome(message, outcome, logs_all=services.logs_messages)
        in_hand.raised.pop(arrival, None)
    except BaseException as error:
        await pause(services, delivery, began, error)
    finally:
        del in_hand.began[id(delivery)]
        in_hand.ended_at = time.monotonic()


async def pause(
    services: Services, delivery: func.ServiceBusMessage, began: float, error: BaseException
) -> NoReturn:
    """Raise what a delivery failed with, after a pause, as an Exception.

    The end of the invocation itself is raised at once, as it is.
    """
    task, clock = asyncio.current_task(), services.worker.clock
    is_cancelled = isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling())
    if is_cancelled or isinstance(error, GeneratorExit):
        raise error
    services.in_hand.note_raised(delivery.sequence_number or 0)
    failed = error if isinstance(error, Exception) else RuntimeError(describe_error(error))
    services.worker.failure_log.add("a delivery comes again", services.region, failed)
    # The broker delivers again at once, so an error that stays would spend all deliveries of a
    # message in half a minute. What a slow failure took counts: no invocation lasts longer than it
    # has to.
    seconds = pause_seconds(delivery.delivery_count or 1)
    await clock.sleep(max(0.0, began + seconds - clock.now()))
    if failed is error:
        raise error
    raise failed from error


def pause_seconds(delivery_count: int) -> float:
    """Return how long a failing invocation lasts at least: twice as long with each delivery."""
    doublings = min(delivery_count - 1, 60)
    return min(float(2**doublings), PAUSE_SECONDS_MAX)


def measure_delivery(
    telemetry: Telemetry, delivery: func.ServiceBusMessage, outcome: str, seconds: float
) -> None:
    """Measure the time of the invocation, and of everything since the broker had the message."""
    telemetry.add(DELIVERY_SECONDS, seconds, outcome=outcome)
    if outcome == "duplicate":
        telemetry.add(DUPLICATES)
    enqueued = delivery.enqueued_time_utc
    if enqueued is not None:
        # The host may leave the zone out, which is UTC. The broker's clock is another one.
        now = datetime.now(UTC)
        age = (now - enqueued.replace(tzinfo=enqueued.tzinfo or UTC)).total_seconds()
        telemetry.add(LATENCY_SECONDS, max(0.0, age), outcome=outcome)


async def reject(
    services: Services,
    delivery: func.ServiceBusMessage,
    reason: str,
    *,
    is_unreadable: bool = False,
) -> None:
    properties = delivery.application_properties or {}
    body, rejecter = delivery.get_body(), services.rejecter
    reject_it = rejecter.reject_unreadable if is_unreadable else rejecter.reject
    report = await reject_it(delivery.session_id, properties, body, reason)
    if services.worker.telemetry is not None:
        services.worker.telemetry.add(REJECTIONS)
    log.warning("rejected session=%r as=%r: %s", delivery.session_id, report.id, shorten(reason))


def log_outcome(message: Message, outcome: Outcome, *, logs_all: bool) -> None:
    """One line: for everything where that was asked for, else for what a person may have to see.

    Names are quoted, so that what a sender put into them forges no line. Why a handler failed is
    not told, only where: its exception may repeat the body. The journal has it.
    """
    entry = outcome.entry if isinstance(outcome, Processed | Faulted | Refused) else None
    if isinstance(outcome, Conflicting | Expired):
        # Told as it was rejected.
        return
    needs_a_person = isinstance(outcome, Faulted | Refused)
    if isinstance(outcome, PassedThrough):
        needs_a_person = outcome.fault is not None
    if needs_a_person or logs_all:
        fields = {"session": message.session, "message": message.id, "type": message.type}
        fields |= {"entry": str(entry.position)} if entry else {}
        raised_at = outcome.raised_at if isinstance(outcome, PassedThrough) else ()
        if raised_at := entry.raised_at if entry else raised_at:
            fields["raised_at"] = ", ".join(raised_at)
        text = " ".join(f"{name}={value!r}" for name, value in fields.items())
        level = logging.WARNING if needs_a_person else logging.INFO
        log.log(level, "%s %s", name_outcome(outcome), text, extra={"lockstep": fields})


def name_outcome(outcome: Outcome) -> str:
    """An outcome in a word, for logs and measures."""
    if isinstance(outcome, PassedThrough):
        return "failed" if outcome.fault else "passed"
    return OUTCOMES[type(outcome)]
