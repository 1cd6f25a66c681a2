"""HTTP for the error queue: what it holds, and sending a rejected delivery again."""

from collections.abc import Mapping
from typing import Any

import azure.functions as func
from pydantic import BaseModel, ConfigDict

from functions.http.descriptions import keep_known
from functions.http.operate import LIMIT, read_limit
from functions.http.requests import SESSION, path_to, read_decision, read_whole, require_request
from functions.http.responses import REPORT_HELP, respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes, principal_of
from shared.domain.access import Right
from shared.domain.message import SEQUENCE_MAX
from shared.domain.spending import count_spending
from shared.engine.build import Services
from shared.engine.operate.error_queue import QueuedReport, RepeatRequest

# Sessions that are passed over are locked one after another, so a page cannot begin anywhere.
SKIP_MAX = 200


class RepeatBody(BaseModel):
    """The body that an operator sends; what is left out is as the rejected delivery had it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    session: str
    report: str
    sequence: int
    who: str | None = None
    why: str
    to: str | None = None
    type: str | None = None
    body: Any = None


routes = HttpRoutes()


@routes.add(
    "errors",
    "GET errors",
    Right.LOOK,
    "What this region's error queue holds; nothing of it is taken.",
    {200: "A page, and what to ask for next.", **REFUSED},
    {
        "session": TEXT,
        "after": {"type": "integer", "minimum": 0},
        "skip": {"type": "integer", "minimum": 0, "maximum": SKIP_MAX},
        "limit": LIMIT,
    },
)
async def list_errors(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """List the content of this region's error queue; nothing of it is taken.

    With `session`, its reports behind the number `after`; without, the first report of each of
    several sessions, after `skip` others.
    """
    require_request(request, frozenset({"session", "after", "skip", "limit"}))
    with count_spending() as spending:
        shown = await find_errors(services, request.params)
    return respond(shown | {"request_units": round(spending.request_units, 2)})


async def find_errors(services: Services, parameters: Mapping[str, str]) -> dict[str, Any]:
    """A page of reports, and what to ask for next; raises InvalidMessage or Unavailable."""
    limit = read_limit(parameters)
    session = parameters.get("session") or None
    after = read_whole(parameters, "after", SEQUENCE_MAX)
    skip = read_whole(parameters, "skip", SKIP_MAX)
    found = await services.errors.browse(session, after=after, skip=skip, limit=limit)
    is_full = len(found) == limit
    if session is not None:
        following = {"after": found[-1].queued.sequence if is_full else None}
    else:
        following = {"skip": skip + limit if is_full and skip + limit <= SKIP_MAX else None}
    return {
        "region": services.region,
        "errors": [describe_report(one) for one in found],
        "next": following,
    }


def describe_report(report: QueuedReport) -> dict[str, Any]:
    """A report as JSON: what it says, and whether and by whom its delivery was sent again."""
    queued, said, repetition = report.queued, report.document, report.repetition
    described: dict[str, Any] = {
        "session": queued.session,
        "report": queued.id,
        "sequence": queued.sequence,
        "type": queued.type,
        "repeatable": report.is_repeatable,
        "see": path_to(SESSION, queued.session),
        "help": REPORT_HELP,
        "enqueued": queued.enqueued_at.isoformat() if queued.enqueued_at else None,
        "reason": said.get("reason"),
        "raised_at": said.get("raised_at"),
        "message": said.get("message"),
        "properties": said.get("properties"),
        "body": report.body.decode(errors="replace") if report.is_repeatable else None,
    }
    if repetition:
        again = {"who": repetition.who, "why": repetition.why, "done": repetition.is_done}
        described["sent_again"] = again
    return keep_known(described)


@routes.add(
    "send_again",
    "POST errors/again",
    Right.RESOLVE,
    "Send a rejected delivery of the error queue again, once.",
    {
        200: "The message that was sent.",
        **REFUSED,
        409: "It is not there, or was sent by another decision.",
    },
)
async def repeat(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Send a rejected delivery again: 200 with the message, also when it is repeated.

    409 where another decision was first, or the report holds no delivery that is there whole.
    """
    require_request(request, frozenset())
    asked = RepeatRequest(
        **read_decision(RepeatBody, request.get_body(), principal_of(services, request))
    )
    return respond(await send_and_describe(services, asked))


async def send_and_describe(services: Services, asked: RepeatRequest) -> dict[str, Any]:
    """Send again and say what became of it; raises as `ErrorQueue.send_again` does."""
    sent = await services.errors.send_again(asked)
    return {"id": sent.id, "session": sent.session, "see": path_to(SESSION, sent.session)}
