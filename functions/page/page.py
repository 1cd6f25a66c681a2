"""The operations page: what needs attention, sessions and sagas as HTML, and decisions about them.

It shows what the JSON routes say and decides by the same verbs. It needs no script and loads
nothing from elsewhere.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import azure.functions as func

from functions.http.bulk import describe_causes
from functions.http.descriptions import describe_entry
from functions.http.operate import (
    LOOKED_MAX,
    SESSION_PARAMETERS,
    STATES,
    find_session,
    find_sessions,
    read_standstills,
)
from functions.http.requests import read_whole, require_request
from functions.http.routes import HttpRoutes, principal_of
from functions.http.sagas import (
    LISTED_STATES,
    describe_refused_change,
    describe_saga,
    find_sagas,
    send_event,
    start_with_instance,
    turn_back,
)
from functions.page.decisions import read_fields
from functions.page.saga_picture import WIDTH, draw_parts
from functions.page.view import HEADERS, compare_states, group_by_cause, link, render, show_problems
from shared.domain.access import Right
from shared.domain.errors import OutcomeUnknown
from shared.domain.journal import Entry
from shared.domain.message import require_text
from shared.domain.next_entry import changed_position
from shared.domain.overview import is_overdue
from shared.domain.resolution import POSITION_MAX
from shared.domain.saga.plan import CANCELLED
from shared.domain.saga.record import foresee, kinds_of
from shared.domain.standstill import StandstillKind
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas

# Of each so many are on one page.
STANDSTILLS_SHOWN = 25
SESSIONS_SHOWN = 25
ENTRIES_SHOWN = 20
SAGAS_SHOWN = 50
# How long a page that follows its session waits for a change before it is shown as it is.
FOLLOW_SECONDS = 60.0


routes = HttpRoutes(show_problems)
# Of an app that has sagas.
saga_routes = HttpRoutes(show_problems)


@routes.add("page_faults", "GET operate/faults", Right.LOOK)
async def show_faults(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """A page of what needs attention, grouped by cause, and all causes where there are more."""
    require_request(request, frozenset({"kind", "cause", "after", "limit"}))
    limit = request.params.get("limit", "")
    # Each costs a look at its session, and all of a cause can be decided about without a list.
    asked = {**request.params, "limit": limit or str(STANDSTILLS_SHOWN)}
    listed, after = await read_standstills(services, asked)
    kinds = {"kind": request.params.get("kind", "")}
    is_first = not request.params.get("after")
    counted = await describe_causes(services, kinds) if after and is_first else None
    return render(
        request,
        "faults.html",
        groups=group_by_cause(listed),
        counted=counted,
        count=len(listed),
        after=after,
        kinds=list(StandstillKind),
        kind=request.params.get("kind", ""),
        cause=request.params.get("cause", ""),
        limit=limit,
        who=name_caller(services, request),
    )


@routes.add("page_sessions", "GET operate/sessions", Right.LOOK)
async def show_sessions(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """A page of the sessions whose names begin with `prefix`, or of those that changed last."""
    require_request(request, SESSION_PARAMETERS - {"limit"})
    asked = {name: request.params.get(name, "") for name in ("prefix", "after", "order", "state")}
    listed, following = await find_sessions(services, asked | {"limit": str(SESSIONS_SHOWN)})
    return render(
        request,
        "sessions.html",
        sessions=listed,
        following=following,
        states=[*STATES],
        looked_max=LOOKED_MAX,
        **asked,
    )


@routes.add("page_session", "GET operate/session", Right.LOOK)
async def show_timeline(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """A session's state, what needs attention in it, and its newest entries before a position.

    With `follow`, a position that the browser has shown, the page waits for what follows it; with
    `now` it does not. In both cases it has the browser ask for what follows this page.
    """
    require_request(request, frozenset({"session", "before", "follow"}))
    before = read_whole(request.params, "before", POSITION_MAX + 1)
    name, follow = (request.params.get(one, "").strip() for one in ("session", "follow"))
    if follow not in ("", "now"):
        require_text("session", name)
        known = read_whole(request.params, "follow", POSITION_MAX)
        await services.watch.changes(name, known, FOLLOW_SECONDS)
    head, session = await find_session(services, name)
    groups = group_by_cause(session.pop("standstills"))
    top = min(head.position + 1, before or POSITION_MAX + 1) if head else 0
    bottom = max(0, top - ENTRIES_SHOWN)
    # The entry below the page is read, too: the lowest one shown is compared with it.
    lowest = max(0, bottom - 1)
    stored = top and await services.journal.oldest_entries(name, top - lowest, lowest)
    entries = {one.entry.position: one.entry for one in stored or () if one.entry.position < top}
    positions = [position for position in reversed(entries) if position >= bottom]
    changes = await find_changes(services, entries, positions)
    shown = [
        describe_entry(entries[position]) | {"changes": changes[position]} for position in positions
    ]
    is_followed = head is not None and follow != ""
    following = link(request, "/session", session=name, follow=head.position if head else None)
    return render(
        request,
        "session.html",
        200 if head or groups else 404,
        refresh=1 if is_followed else 0,
        refresh_to=following,
        is_followed=is_followed,
        **session,
        who=name_caller(services, request),
        groups=groups,
        entries=shown,
        compacted=top - bottom - len(shown),
        before=bottom,
    )


async def find_changes(
    services: Services, entries: Mapping[int, Entry], positions: Iterable[int]
) -> dict[int, list[tuple[str, str, str]] | None]:
    """Return what each entry changed in the state; None if what was before it is compacted away.

    States that do not lie in their entries are read side by side.
    """
    made = {
        position
        for position in positions
        if entries[position].state is not None or changed_position(entries[position]) == position
    }
    needed = sorted({one for position in made for one in (position - 1, position)} & {*entries})

    async def read_state(position: int) -> Mapping[str, Any] | None:
        try:
            return (await services.worker.input_after(entries[position])).state
        except OutcomeUnknown:
            return None

    read = dict(zip(needed, await asyncio.gather(*map(read_state, needed)), strict=True))
    states: dict[int, Mapping[str, Any] | None] = {-1: {}} | read

    def compare(position: int) -> list[tuple[str, str, str]] | None:
        before, after = states.get(position - 1), states[position]
        return None if before is None or after is None else compare_states(before, after)

    return {position: compare(position) if position in made else [] for position in positions}


@saga_routes.add("page_saga", "GET operate/saga", Right.LOOK)
async def show_saga_steps(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Show the state of a saga, with every step and wait."""
    require_request(request, frozenset({"key"}))
    key = request.params.get("key", "").strip()
    require_text("key", key)
    sagas = Sagas(services.consumer)
    record = await sagas.read_record(key)
    if record is None:
        return render(request, "saga.html", 404, key=key, saga=None, ended=False)
    history = await sagas.read_history(key, record)
    return render(
        request,
        "saga.html",
        key=key,
        saga=describe_saga(key, record, history),
        ended=record.state.is_end,
        is_overdue=is_overdue(
            foresee(record)[1],
            services.worker.clock.today(),
            services.worker.policy.standstill_seconds,
        ),
        is_bad=record.state.needs_a_person,
        parts=draw_parts(record, history),
        width=WIDTH,
        who=name_caller(services, request),
    )


@saga_routes.add("page_saga_change", "POST operate/saga", Right.SEND)
async def answer_saga_form(
    services: Services, request: func.HttpRequest, client: Any
) -> func.HttpResponse:
    """Start a saga, send it an event or cancel it, as a form says, and lead to its page.

    The event `cancelled` cancels it. Sent again a form changes nothing. A refusal is a page of its
    own. Raises InvalidBody, InvalidMessage, and NotAllowed for a form on another site's page.
    """
    given = read_fields(request, frozenset({"key", "kind", "body", "event", "who", "why"}))
    fields = {name: values[0] for name, values in given.items()}
    key, event = fields.get("key", "").strip(), fields.get("event", "")
    if "kind" in fields:
        body = fields.get("body", "").encode()
        response, _ = await start_with_instance(services, client, key, fields["kind"], body)
    else:
        who = name_caller(services, request) or fields.get("who", "")
        decided = {"who": who, "why": fields.get("why", "")}
        if event == CANCELLED:
            response = await turn_back(services, client, key, **decided)
        else:
            response = await send_event(services, client, key, event, **decided)
    if not response.is_accepted:
        return render(request, "problem.html", 409, problem=describe_refused_change(response))
    to = link(request, "/saga", key=key)
    return func.HttpResponse(status_code=303, headers={**HEADERS, "Location": to})


@saga_routes.add("page_sagas", "GET operate/sagas", Right.LOOK)
async def show_sagas(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """A page of the sagas in a state and of a kind, by key or by last change."""
    names = ("state", "kind", "prefix", "order", "after")
    require_request(request, frozenset(names))
    asked = {name: request.params.get(name, "") for name in names}
    listed, following = await find_sagas(services, asked | {"limit": str(SAGAS_SHOWN)})
    return render(
        request,
        "sagas.html",
        sagas=listed,
        following=following,
        states=LISTED_STATES,
        looked_max=LOOKED_MAX,
        kinds=sorted(kinds_of(services.handlers)),
        **asked,
    )


def name_caller(services: Services, request: func.HttpRequest) -> str:
    """Return who will have decided what is decided here; empty where the caller says so."""
    principal = principal_of(services, request)
    return principal.name if principal else ""
