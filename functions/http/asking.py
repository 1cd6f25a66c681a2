"""Messages that are asked over HTTP: applied at once through their journal, and answered."""

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime

import azure.functions as func

from functions.http.requests import SESSION, path_to
from functions.http.responses import describe_problem, respond
from shared.domain.errors import (
    ContentConflict,
    MessageFaulted,
    OutcomeUnknown,
    SessionEnded,
    TooOld,
)
from shared.domain.message import Message
from shared.domain.producer import HTTP_SOURCE
from shared.engine.build import Services
from shared.engine.consume.outcomes import (
    Answered,
    Conflicting,
    Expired,
    Failed,
    Reply,
    Waiting,
)
from shared.engine.consume.park import ENDED

# What goes on after its time: nobody else holds these tasks.
UNDER_WAY: set[asyncio.Task[Reply]] = set()


async def answer_at_once(services: Services, message: Message, seconds: int) -> func.HttpResponse:
    """Ask, and answer with what came of it within so many seconds.

    Raises ContentConflict, TooOld and what `Consumer.ask` raises; OutcomeUnknown where the time is
    over: the message may take effect afterwards, and the same asked again says so.
    """
    # Without a time of its own it gets that of its arrival, so that its handler has a time. The
    # same asked again comes at another one, and is the same message: no time identifies anything.
    arrival = datetime.fromtimestamp(services.worker.clock.today(), UTC).isoformat()
    asked = replace(message, source=HTTP_SOURCE, time=message.time or arrival)
    # A handler that calls the outside is not to be cut off because its caller has no more time.
    asking = asyncio.ensure_future(services.consumer.ask(asked, seconds))
    UNDER_WAY.add(asking)
    asking.add_done_callback(forget)
    try:
        async with asyncio.timeout(seconds):
            reply = await asyncio.shield(asking)
    except TimeoutError:
        raise OutcomeUnknown(
            f"no answer in {seconds} s; ask again under the same key: it acts once"
        ) from None
    response = respond_reply(asked, reply)
    response.headers["Preference-Applied"] = f"wait={seconds}"
    return response


def forget(asking: asyncio.Task[Reply]) -> None:
    UNDER_WAY.discard(asking)
    # Where nobody waits any more, nobody misses it: whoever asks again is told.
    asking.cancelled() or asking.exception()


def respond_reply(message: Message, reply: Reply) -> func.HttpResponse:
    """A reply over HTTP: 200, 202 while it waits, 422 for a fault, 409 after an end."""
    path = path_to(SESSION, message.session)
    document = {"session": message.session, "message": message.id}
    match reply:
        case Answered():
            return respond(document | asdict(reply))
        case Waiting():
            return respond(document | {"see": path}, 202, {"Location": f"/api/{path}"})
        case Failed(reason, position, halts):
            fault = SessionEnded(reason) if reason == ENDED else MessageFaulted(reason)
            details = describe_problem(fault) | document | {"position": position, "halts": halts}
            return respond(details, details["status"], None, "application/problem+json")
        case Conflicting(reason):
            raise ContentConflict(reason)
        case Expired(reason):
            raise TooOld(reason)
