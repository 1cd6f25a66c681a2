"""HTTP ingest: accept a message, number it and publish it to every region."""

import asyncio
from dataclasses import replace

import azure.functions as func

from functions.http.asking import answer_at_once
from functions.http.requests import SESSION, path_to, read_name, read_wait
from functions.http.responses import respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage, OutcomeUnknown
from shared.domain.message import UNPRINTABLE, Message, parse_moment, refuse_reserved
from shared.domain.producer import Draft
from shared.domain.wire import TRACE_HEADER, read_traceparent
from shared.engine.build import Services
from shared.engine.handle.handle import parse_body

PARAMETERS = frozenset({"type", "time"})
# The sender's time in the CloudEvents HTTP binding.
TIME_HEADER = "ce-time"
# A journal that is silent may take longer, and whoever posts has a limit of its own.
ANSWER_SECONDS = 14.0


routes = HttpRoutes()


@routes.add(
    "ingest",
    "POST sessions/{session}/messages",
    Right.SEND,
    "Accept a message and publish it, or, with `Prefer: wait=SECONDS`, apply it and answer.",
    {
        200: "It was asked, and took effect.",
        202: "It is safe.",
        **REFUSED,
        403: "Not for this session.",
        409: "Other content.",
        410: "It was asked, and nobody remembers what came of it.",
        422: "It was asked, and failed.",
    },
    {"type": TEXT, "time": {"type": "string", "format": "date-time"}},
)
async def accept(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """202 when the message is safe, which is before it is processed; problem details otherwise.

    With `Prefer: wait=SECONDS` (RFC 7240) it is applied at once, exactly once by its key: 200 with
    what its handler answered, 202 where it has to wait in the journal for longer.

    `Idempotency-Key` names the message: for a day sending the same again changes nothing, and other
    content under the same key is a 409. `type` in the query names the handler; the sender's time
    may be given as `time` there or as the header `ce-time`. What follows belongs to the trace of a
    header `traceparent`. The answer says where the session can be looked at.
    """
    message = read_request(services, request)
    seconds = read_wait(request.headers.get("Prefer"), int(ANSWER_SECONDS))
    said = {"session": message.session, "message": message.id}
    with services.worker.span("ingest", message.traceparent, **said) as span:
        traceparent = span.traceparent if span else message.traceparent
        if seconds is not None:
            asked = replace(message, traceparent=traceparent)
            return await answer_at_once(services, asked, seconds)
        draft = Draft(message.id, message.type, message.body, message.time, traceparent=traceparent)
        try:
            # Cancelled, the draft keeps what it has: sent again, it finds its number.
            async with asyncio.timeout(ANSWER_SECONDS):
                accepted = await services.ingest.take(message.session, draft)
        except TimeoutError:
            reason = f"no answer in {ANSWER_SECONDS:g} s; send it again under the same key"
            raise OutcomeUnknown(reason) from None
    path = path_to(SESSION, accepted.session)
    number = accepted.number.sequence if accepted.number else None
    document = {"id": accepted.id, "session": accepted.session, "sequence": number, "see": path}
    return respond(document, 202, {"Location": f"/api/{path}"})


def read_request(services: Services, request: func.HttpRequest) -> Message:
    """The request as a message that its handler will take; raises CallerError."""
    most = services.producer.delivery.queues.body_bytes_max
    session = read_name(request, SESSION, PARAMETERS, most)
    key = request.headers.get("Idempotency-Key")
    if not key:
        raise InvalidMessage("header Idempotency-Key is missing")
    if UNPRINTABLE.search(key):
        raise InvalidMessage(f"header Idempotency-Key holds control characters: {key!r}")
    message = Message(
        id=str(key),
        session=session,
        type=request.params.get("type", ""),
        body=request.get_body(),
        time=read_time(request),
        traceparent=read_traceparent(request.headers.get(TRACE_HEADER)),
    )
    refuse_reserved(message.session, message.type)
    parse_body(services.handlers.of(message.type, message.session), message)
    return message


def read_time(request: func.HttpRequest) -> str | None:
    """The sender's time, if it gave one; raises InvalidMessage for two, or what is no ISO 8601."""
    given = [t for t in (request.params.get("time"), request.headers.get(TIME_HEADER)) if t]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidMessage(f"the time is given twice: as time and as header {TIME_HEADER}")
    try:
        # What follows from it goes elsewhere, so it has a zone from here on.
        return parse_moment(given[0]).isoformat()
    except ValueError:
        raise InvalidMessage(f"the time is not ISO 8601: {given[0]!r}") from None
