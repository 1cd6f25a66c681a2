"""HTTP for bulk decisions: the causes that there are, and a decision about all of one."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import azure.functions as func
from pydantic import BaseModel, ConfigDict

from functions.http.descriptions import format_seconds
from functions.http.operate import LIMIT, read_kinds, read_limit, read_overview
from functions.http.requests import read_decision, require_request
from functions.http.responses import respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes, principal_of
from shared.domain.access import Right
from shared.domain.bulk import BulkDecision, BulkOutcome
from shared.domain.errors import InvalidBody
from shared.domain.message import derive_id, require_text
from shared.domain.resolution import VERBS, ResolutionAction
from shared.domain.spending import count_spending
from shared.domain.standstill import NOTHING_COUNTED, StandstillKind
from shared.engine.build import Services


class BulkBody(BaseModel):
    """A decision about everything of a kind, or of some of its causes; the same `id` is the same.

    Without `causes` it is about all of the kind, with `queue` only about outputs for that.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    action: str
    who: str | None = None
    why: str
    kind: str
    causes: list[str] | None = None
    queue: str | None = None
    to: str | None = None


class CancelBody(BaseModel):
    """The body that ends a bulk decision before its end."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    who: str | None = None
    why: str


routes = HttpRoutes()


@routes.add(
    "causes",
    "GET causes",
    Right.LOOK,
    "What needs attention, counted by kind and cause, the most urgent first.",
    {200: "The causes, and whether there are more than were counted.", **REFUSED},
    {"kind": {**TEXT, "description": f"some of {', '.join(StandstillKind)}, with commas"}},
)
async def list_causes(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Count what needs attention by kind and general cause, of 10,000 records at most.

    It is what a sweep counted at the time `counted`, and what came since; what is over since is
    not taken off.
    """
    require_request(request, frozenset({"kind"}))
    with count_spending() as spending:
        shown = await describe_causes(services, request.params)
    return respond(shown | {"request_units": round(spending.request_units, 2)})


async def describe_causes(services: Services, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The causes of some kinds; raises InvalidMessage or Unavailable."""
    kinds, recorded = read_kinds(parameters), (await read_overview(services)).causes
    # Of causes that the record has no room for nothing is known but by a count of all.
    counted = NOTHING_COUNTED if recorded is None or recorded.is_cut else recorded
    found = await services.standstills.causes(kinds, counted)
    return {
        "counted": format_seconds(found.at if counted is NOTHING_COUNTED else counted.at),
        "causes": [
            {
                "kind": one.kind.value,
                "cause": one.cause,
                "example": one.example,
                "count": one.count,
                "oldest": format_seconds(one.since),
                "actions": [
                    action.value
                    for action in VERBS[one.kind]
                    if action is not ResolutionAction.EDIT
                ],
            }
            for one in found.causes
        ],
        "more": found.is_more,
    }


@routes.add(
    "decisions",
    "GET decisions",
    Right.LOOK,
    "Bulk decisions, those that changed last first, or the one of an id.",
    {200: "The decisions, how far each has come.", **REFUSED, 404: "There is none of this id."},
    {"id": TEXT, "limit": LIMIT},
)
async def list_bulk(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Bulk decisions of the last month, or the one of `id`. Nothing is decided by looking."""
    require_request(request, frozenset({"id", "limit"}))
    if wanted := request.params.get("id"):
        found = [await services.bulk.read(wanted)]
    else:
        found = [*await services.bulk.store.newest(read_limit(request.params))]
    return respond({"decisions": [describe_bulk(one) for one in found]})


@routes.add(
    "decide",
    "POST decisions",
    Right.RESOLVE,
    "Begin a bulk decision, or go on with it: a piece of some seconds is carried out.",
    {200: "The decision, and how far it has come.", **REFUSED},
)
async def begin_bulk(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Begin a decision about everything of a kind or of some causes, and carry out a piece of it.

    The same body again goes on with it, until its `state` is no more `running`. Where nobody asks
    again, the sweeps go on.
    """
    require_request(request, frozenset())
    said = read_decision(BulkBody, request.get_body(), principal_of(services, request))
    require_text("id", said["id"])
    try:
        said["kind"] = StandstillKind(said["kind"])
    except ValueError:
        raise InvalidBody(
            f"kind {said['kind']!r} is not among {', '.join(StandstillKind)}"
        ) from None
    return respond(describe_bulk(await services.bulk.begin(make_bulk(**said))))


def make_bulk(**said: Any) -> BulkDecision:
    """The decision that was said; another one under the same `id` has another id in the end."""
    causes = said.pop("causes")
    wanted = BulkDecision(**said, causes=None if causes is None else tuple(causes))
    members = [{"session": one.session, "verb": dict(one.verb)} for one in wanted.members]
    content = json.dumps([said | {"members": members}, causes], sort_keys=True)
    return replace(wanted, id=derive_id("bulk", content))


@routes.add(
    "cancel_decision",
    "POST decisions/cancellation",
    Right.RESOLVE,
    "End a bulk decision before its end; what is done stays done.",
    {200: "The decision.", **REFUSED, 404: "There is none of this id."},
)
async def end_bulk(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Begin no further members of a bulk decision; one that has ended stays as it is."""
    require_request(request, frozenset())
    said = read_decision(CancelBody, request.get_body(), principal_of(services, request))
    decision = await services.bulk.cancel(said["id"], said["who"], said["why"])
    return respond(describe_bulk(decision))


def describe_bulk(decision: BulkDecision) -> dict[str, Any]:
    """A bulk decision as JSON: what it is about, and how far it has come."""
    return {
        "id": decision.id,
        "state": decision.state.value,
        "action": decision.action,
        "who": decision.who,
        "why": decision.why,
        "cancelled": decision.cancelled or None,
        "kind": decision.kind.value if decision.kind else None,
        "causes": None if decision.causes is None else list(decision.causes),
        "queue": decision.queue,
        "to": decision.to,
        "begun": format_seconds(decision.begun_at),
        "about": decision.about,
        "outcomes": {outcome.value: decision.counts.get(outcome, 0) for outcome in BulkOutcome},
        "shown": [
            {"session": one.session, "outcome": one.outcome.value, "text": one.text}
            for one in decision.shown
        ],
    }
