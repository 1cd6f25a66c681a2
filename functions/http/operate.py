"""HTTP for operators: health, a session's journal, what needs attention, and decisions."""

import asyncio
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import azure.functions as func
from pydantic import BaseModel, ConfigDict

from functions.http.descriptions import (
    describe_entry,
    describe_overview,
    describe_parts,
    describe_standstill,
    summarise_head,
)
from functions.http.requests import SESSION, read_decision, read_name, read_whole, require_request
from functions.http.responses import respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes, principal_of
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage, LockstepError, Unavailable
from shared.domain.journal import Entry, Status
from shared.domain.message import require_text
from shared.domain.outbox import OutputsLeft
from shared.domain.overview import NO_RECORD, RegionRecord
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.spending import count_spending
from shared.domain.standstill import ListPlace, StandstillKind
from shared.engine.build import Services
from shared.engine.operate.heartbeats import Age
from shared.engine.operate.standstills import READ_AT_ONCE
from shared.ports import SessionNeed

# So many are listed at once.
STANDSTILLS_MAX = 100
# A page of sessions by last change looks at so many documents of a need, or entries.
LOOKED_MAX = 200
# The states by which sessions are asked for, each by the need that shows it.
STATES = {
    "halted": SessionNeed.RESOLUTION,
    "working": SessionNeed.TAKE_OVER,
    "parked": SessionNeed.DRAINING,
}
SESSION_PARAMETERS = frozenset({"prefix", "after", "limit", "order", "state"})


class ResolutionBody(BaseModel):
    """The decision that an operator sends; which fields an action takes is said in resolve.py."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: ResolutionAction
    who: str | None = None
    why: str
    at: int | None = None
    body: Any = None
    type: str | None = None
    group: str | None = None
    number: int | None = None
    queue: str | None = None
    to: str | None = None
    step: str | None = None


LIMIT = {"type": "integer", "minimum": 1, "maximum": STANDSTILLS_MAX}
routes = HttpRoutes()


@routes.add(
    "health",
    "GET health",
    None,
    "Whether this region can read the journal, and whether anything is wrong.",
    {200: "It can."},
)
async def report_health(services: Services, _: func.HttpRequest) -> func.HttpResponse:
    """200 when the journal can be read from this region, 503 when it cannot.

    A journal that is silent for two seconds cannot be read. Anybody may ask, so nothing is named:
    only how many places the app found missing, and how long ago the feed or timer was heard that
    was heard least recently.
    """
    try:
        health = await services.health.look()
    except LockstepError:
        nameless = "the journal cannot be read from this region: GET /api/status says why"
        raise Unavailable(nameless) from None
    heard = health.heard.seconds if health.heard else None
    return respond(
        describe_region(services) | {"missing": len(health.missing), "heardSecondsAgo": heard}
    )


@routes.add(
    "status",
    "GET status",
    Right.LOOK,
    "What is missing, and when each feed, timer and other region was heard.",
    {200: "The journal can be read from this region.", **REFUSED},
)
async def show_status(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """The same with names and reasons, each other region as a whole, and what needs attention."""
    require_request(request, frozenset())
    health = await services.health.look()
    heard, record = health.heard, await read_overview(services)
    return respond(
        describe_region(services)
        | {
            "missing": dict(health.missing),
            "heartbeats": describe_ages(heard.here) if heard else None,
            "regions": describe_ages(heard.regions) if heard else None,
            "overview": describe_overview(record) if record.at else None,
        }
    )


async def read_overview(services: Services) -> RegionRecord:
    """Return what the sweeps of all regions recorded; nothing where that cannot be read."""
    try:
        return await services.overview.show() if services.overview else NO_RECORD
    except LockstepError:
        return NO_RECORD


def describe_region(services: Services) -> dict[str, Any]:
    return {"region": services.region, "journal": "readable"}


def describe_ages(ages: Mapping[str, Age]) -> dict[str, Any]:
    return {
        name: {"secondsAgo": age.seconds, "within": age.seconds_max, "silent": age.is_silent}
        for name, age in ages.items()
    }


@routes.add(
    "session",
    "GET sessions/{session}",
    Right.LOOK,
    "A session: its newest entry, its state, its fault, and what needs attention.",
    {200: "The session.", **REFUSED, 404: "There is nothing of it."},
)
async def show_session(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """The newest entry of a session, its state, its fault, and what needs attention."""
    head, shown = await find_session(services, read_name(request, SESSION))
    return respond(shown, 200 if head or shown["standstills"] else 404)


async def find_session(services: Services, session: str) -> tuple[Entry | None, dict[str, Any]]:
    """The newest entry of a session, and what is shown of the session; raises InvalidMessage."""
    require_text("session", session)
    head = await services.journal.head(session)
    state = (await services.worker.input_after(head)).state
    halt = head.halt if head else None
    fault = await services.journal.entry(session, halt.at) if halt else None
    page = await services.standstills.find(session=session, limit=STANDSTILLS_MAX)
    return head, {
        "session": session,
        "head": describe_entry(head) if head else None,
        "state": dict(state),
        "fault": describe_entry(fault) if fault else None,
        "standstills": [describe_standstill(one) for one in page.standstills],
    }


@routes.add(
    "sessions",
    "GET sessions",
    Right.LOOK,
    "Sessions by name or last change, page by page, with what the newest entry of each says.",
    {200: "A page, where the next one begins, its request units.", **REFUSED},
    {
        "prefix": TEXT,
        "limit": LIMIT,
        "after": TEXT,
        "order": {"enum": ["name", "changed"]},
        "state": {"enum": [*STATES]},
    },
)
async def list_sessions(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Sessions by name, page by page, each with what its newest entry says.

    `prefix` asks for those whose names begin with it, `limit` for so many at once, and `after` goes
    on where a page ended. With `order=changed` those that were written last come first, and with
    `state` of them those in a state. A page costs one search, and one read for each session.
    """
    require_request(request, SESSION_PARAMETERS)
    with count_spending() as spending:
        listed, after = await find_sessions(services, request.params)
    return respond(
        {"sessions": listed, "after": after, "request_units": round(spending.request_units, 2)}
    )


async def find_sessions(
    services: Services, parameters: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str | None]:
    """A page of sessions, and the name to go on from; raises InvalidMessage or Unavailable."""
    limit = read_limit(parameters)
    prefix, after = (parameters.get(name, "") for name in ("prefix", "after"))
    state, order = parameters.get("state", ""), parameters.get("order", "")
    if order not in ("", "name", "changed") or state not in ("", *STATES):
        raise InvalidMessage(f"order is name or changed, and state one of {', '.join(STATES)}")
    if order == "changed" or state:
        if prefix or order == "name":
            raise InvalidMessage("sessions by last change are not asked for by prefix")
        return await find_changed(services, state, read_place(after or None), limit)
    # One more is asked for: whether there is a next page is known without another search.
    names = await services.journal.listed(prefix, after, limit + 1)
    heads = await read_heads(services, names[:limit])
    listed = [
        {"session": name, **(summarise_head(head) if head else {})} for name, head in heads.items()
    ]
    return listed, names[limit - 1] if len(names) > limit else None


async def read_heads(services: Services, names: Sequence[str]) -> dict[str, Entry | None]:
    """Return the newest entry of each session, some seconds old perhaps: a query for each."""
    slots = asyncio.Semaphore(READ_AT_ONCE)

    async def read_head(session: str) -> Entry | None:
        async with slots:
            return await services.journal.head(session, newest=False)

    return dict(zip(names, await asyncio.gather(*map(read_head, names)), strict=True))


async def find_changed(
    services: Services, state: str, after: ListPlace | None, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """A page of the sessions in a state by last change, the newest first, and where the next is.

    A page looks at so many documents at most, and may therefore be short, or empty, without being
    the last.
    """
    need = STATES[state] if state else None
    places, is_more = await services.journal.changed(need, after, LOOKED_MAX)
    shown = places[:limit]
    heads = await read_heads(services, [one.key for one in shown])
    listed = [
        {"session": one.key} | summarise_head(head)
        for one in shown
        # An older entry of a session that was on a page before, or what is over by now.
        if (head := heads[one.key]) is not None
        and (after is None or (head.written_at or 0.0) <= after.since)
        and is_in_state(head, state)
    ]
    return listed, encode_place(shown[-1]) if shown and (is_more or len(places) > limit) else None


def is_in_state(head: Entry, state: str) -> bool:
    """Return whether a session is in a state, by its newest entry; without one each is."""
    return {
        "": True,
        "halted": head.halt is not None,
        "working": head.status is Status.WORKING,
        "parked": bool(head.parked),
    }[state]


@routes.add(
    "faults",
    "GET faults",
    Right.LOOK,
    "What needs attention in any session, the newest first, page by page.",
    {200: "A page, and where the next one begins.", **REFUSED},
    {
        "kind": {**TEXT, "description": f"some of {', '.join(StandstillKind)}, with commas"},
        "cause": {**TEXT, "description": "a cause as GET /api/causes names it"},
        "limit": LIMIT,
        "after": TEXT,
    },
)
async def list_standstills(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """List the standstills of any session, the newest first, page by page.

    `kind` asks for some kinds only, `cause` for one cause of them, `limit` for so many at once, and
    `after` goes on where an earlier answer ended.
    """
    require_request(request, frozenset({"kind", "cause", "limit", "after"}))
    listed, after = await read_standstills(services, request.params)
    return respond({"standstills": listed, "after": after})


async def read_standstills(
    services: Services, parameters: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str | None]:
    """A page of standstills, and where the next begins; raises InvalidMessage or Unavailable."""
    cause = parameters.get("cause")
    page = await services.standstills.find(
        read_kinds(parameters),
        causes={cause} if cause else None,
        after=read_place(parameters.get("after")),
        limit=read_limit(parameters),
    )
    listed = [describe_standstill(one) for one in page.standstills]
    return listed, encode_place(page.after) if page.after else None


def read_kinds(parameters: Mapping[str, str]) -> frozenset[StandstillKind]:
    """The kinds asked for, comma separated, or all; raises InvalidMessage."""
    names = parameters.get("kind")
    try:
        wanted = [StandstillKind(name) for name in names.split(",")] if names else StandstillKind
    except ValueError:
        raise InvalidMessage(f"kind {names!r} is not among {', '.join(StandstillKind)}") from None
    return frozenset(wanted)


def read_limit(parameters: Mapping[str, str]) -> int:
    """Return how many are asked for at once; raises InvalidMessage."""
    return read_whole(parameters, "limit", STANDSTILLS_MAX, least=1, default=STANDSTILLS_MAX)


def encode_place(place: ListPlace) -> str:
    """A place in the list as callers hand it back: text that a URL may hold."""
    return urlsafe_b64encode(f"{place.since!r} {place.key}".encode()).decode()


def read_place(after: str | None) -> ListPlace | None:
    """The place that an earlier answer named; raises InvalidMessage."""
    if after is None:
        return None
    try:
        since, key = b64decode(after, altchars="-_", validate=True).decode().split(" ", 1)
        place = ListPlace(float(since), key)
    except ValueError:
        raise InvalidMessage("after is not what an earlier answer said") from None
    if not isfinite(place.since):
        raise InvalidMessage("after is not what an earlier answer said")
    return place


@routes.add(
    "resolve",
    "POST sessions/{session}/resolution",
    Right.RESOLVE,
    "Carry out a person's decision about what needs attention.",
    {
        200: "The entry that records it.",
        **REFUSED,
        404: "There is no such session.",
        409: "It needs no attention any more.",
    },
)
async def carry_out(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Carry out a decision: `{"action": ..., "who": ..., "why": ...}`, and what the action needs.

    200 with the entry that records it; its status is `faulted` when the message failed again. 409
    when what it is about needs no attention any more.
    """
    session = read_name(request, SESSION)
    require_text("session", session)
    decision = ResolutionRequest(
        **read_decision(ResolutionBody, request.get_body(), principal_of(services, request))
    )
    return respond(await decide_and_describe(services, session, decision))


async def decide_and_describe(
    services: Services, session: str, decision: ResolutionRequest
) -> dict[str, Any]:
    """Carry out a decision and say what came of it; raises as `Resolver` does."""
    result = await services.resolver.decide(session, decision)
    if isinstance(result, Entry):
        return {"session": session, "entry": describe_entry(result)}
    if isinstance(result, OutputsLeft):
        return {"session": session, **asdict(result)}
    regions = dict.fromkeys(region for one in result for region in one.outbox.regions)
    missing = [missed for one in result for missed in describe_parts(one)]
    return {"session": session, "pending": sorted(regions), "missing": missing}
