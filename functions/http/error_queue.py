"""HTTP for the error queue: what it holds, and sending again or dismissing it."""

import json
from base64 import b64decode, urlsafe_b64encode
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
from shared.domain.errors import InvalidMessage
from shared.domain.message import SEQUENCE_MAX
from shared.domain.spending import count_spending
from shared.engine.build import Services
from shared.engine.operate.error_queue import QueuedReport, Rank, RepeatRequest, ReportPlace


class DismissBody(BaseModel):
    """The body that names a report, who decides about it and why."""

    model_config = ConfigDict(extra="forbid", strict=True)

    session: str
    report: str
    sequence: int
    who: str | None = None
    why: str


class RepeatBody(DismissBody):
    """The body that an operator sends; what is left out is as the rejected delivery had it."""

    to: str | None = None
    type: str | None = None
    body: Any = None
    time: str | None = None
    source: str | None = None
    replyto: str | None = None
    replysession: str | None = None
    correlationid: str | None = None
    traceparent: str | None = None


# The reports that are asked for, by their ranks: those that need somebody here, copies of faults
# and what is no report of Lockstep, those that somebody ended, and all of them.
SHOWN = {
    "open": {Rank.OPEN},
    "fault": {Rank.NOTED},
    "ended": {Rank.ENDED},
    "all": {*Rank},
}
routes = HttpRoutes()


@routes.add(
    "errors",
    "GET errors",
    Right.LOOK,
    "Open reports of any region, or what this region's error queue holds; nothing is taken.",
    {200: "A page, and what to ask for next.", **REFUSED},
    {
        "session": TEXT,
        "above": {"type": "integer", "minimum": 0},
        "after": TEXT,
        "show": {"enum": [*SHOWN]},
        "limit": LIMIT,
    },
)
async def list_errors(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """List reports; nothing of the queue is taken.

    With `show=open` they are those of any region that nobody has ended, from the journal, and
    `counts` has none. Otherwise they are what this region's error queue holds: what is open comes
    first, then the oldest. With `session`, its reports alone, those with numbers above `above`;
    `after` is where the page before ended.
    """
    require_request(request, frozenset({"session", "above", "after", "show", "limit"}))
    with count_spending() as spending:
        shown = await find_errors(services, request.params)
    return respond(shown | {"request_units": round(spending.request_units, 2)})


async def find_errors(services: Services, parameters: Mapping[str, str]) -> dict[str, Any]:
    """A page of reports, and what to ask for next; raises InvalidMessage or Unavailable."""
    session = parameters.get("session") or None
    above = read_whole(parameters, "above", SEQUENCE_MAX)
    if above and session is None:
        raise InvalidMessage("above is a number in a session: say session")
    show = parameters.get("show") or "all"
    if show not in SHOWN:
        raise InvalidMessage(f"show is one of {', '.join(SHOWN)}")
    after, limit = read_report_place(parameters.get("after") or None), read_limit(parameters)
    if show == "open":
        page = await services.errors.list_open(session, after=after, limit=limit)
    else:
        page = await services.errors.browse(
            session, above=above, after=after, ranks=SHOWN[show], limit=limit
        )
    return {
        "region": services.region,
        "errors": [describe_report(one) for one in page.reports],
        "next": {
            "after": encode_report_place(page.after) if page.after else None,
            "above": page.above,
        },
        "complete": page.is_all,
        "counts": {
            name: sum(page.counts.get(rank, 0) for rank in ranks)
            for name, ranks in SHOWN.items()
            if page.counts
        },
    }


def encode_report_place(place: ReportPlace) -> str:
    """A place in the list as callers hand it back: text that a URL may hold."""
    return urlsafe_b64encode(json.dumps(place).encode()).decode()


def read_report_place(after: str | None) -> ReportPlace | None:
    """The place that an earlier answer named; raises InvalidMessage."""
    if after is None:
        return None
    try:
        rank, enqueued, session, report = json.loads(b64decode(after, altchars="-_", validate=True))
        return ReportPlace(int(rank), float(enqueued), str(session), str(report))
    except (ValueError, TypeError, RecursionError):
        raise InvalidMessage("after is not what an earlier answer said") from None


def describe_report(report: QueuedReport) -> dict[str, Any]:
    """A report as JSON: what it says, and whether and by whom it was sent again or dismissed."""
    queued, said, repetition = report.queued, report.document, report.repetition
    described: dict[str, Any] = {
        "session": queued.session,
        "report": queued.id,
        "sequence": queued.sequence,
        "type": queued.type,
        "open": report.place.rank is Rank.OPEN,
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
        decided: dict[str, Any] = {"who": repetition.who, "why": repetition.why}
        if repetition.is_dismissed:
            described["dismissed"] = decided
        else:
            described["sent_again"] = decided | {"done": repetition.is_done}
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


@routes.add(
    "dismiss",
    "POST errors/dismissal",
    Right.RESOLVE,
    "Record that nothing is to be done about a report of the error queue.",
    {
        200: "Who decided, and why.",
        **REFUSED,
        409: "It is not there, or was ended by another decision.",
    },
)
async def dismiss(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Dismiss a report: 200 with the decision, also when it is repeated; 409 as for sending again.

    The report stays in the queue.
    """
    require_request(request, frozenset())
    asked = RepeatRequest(
        **read_decision(DismissBody, request.get_body(), principal_of(services, request))
    )
    decided = await services.errors.dismiss(asked)
    said = {"session": asked.session, "report": asked.report}
    return respond(said | {"who": decided.who, "why": decided.why})
