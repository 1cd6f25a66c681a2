"""HTTP for whoever follows sessions: what changed in one or in all, and a session's state.

Changes come as server-sent events, in answers that are whole: a browser's EventSource comes again
by itself after each of them, and names the last position that it was told. Why an answer does not
stay open is told in docs/adr/0085-a-watcher-comes-again-for-each-answer.md.
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import azure.functions as func

from functions.http.descriptions import describe_change, describe_entry
from functions.http.requests import SESSION, read_name, read_whole, require_request
from functions.http.responses import respond
from functions.http.routes import REFUSED, HttpRoutes
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage, UnknownSession
from shared.domain.journal import Status
from shared.domain.message import require_text
from shared.domain.next_entry import changed_position
from shared.domain.resolution import POSITION_MAX
from shared.domain.spending import count_spending
from shared.engine.build import Services
from shared.engine.operate.watch import BEFORE_ALL, Changes

WAIT_SECONDS, WAIT_SECONDS_MAX = 10, 20
# When a watcher comes again. What is written meanwhile is told in one answer.
RETRY_MILLISECONDS = 1_000
# An answer ends behind the change with which it is so long.
ANSWER_CHARACTERS_MAX = 500_000
# A look at all sessions tells so many changes. No time is later than this.
TAILED_MAX, SECONDS_MAX = 200, 2**40
# Which state a session without one has.
NO_STATE = "none"
routes = HttpRoutes()


@routes.add(
    "changes",
    "GET sessions/{session}/changes",
    Right.LOOK,
    "What follows a position of a session, as server-sent events, as soon as there is something.",
    {
        200: "Events, or none within the time. Their ids are positions: come again with the last.",
        **REFUSED,
        429: "Too many watchers wait here.",
    },
    {
        "after": {
            "type": "integer",
            "minimum": 0,
            "description": "a position; else from the oldest",
        },
        "wait": {"type": "integer", "minimum": 0, "maximum": WAIT_SECONDS_MAX},
        "entries": {"const": "whole", "description": "with bodies and states"},
    },
)
async def tell_changes(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """The entries after a position that have ended, in order, as `id` and `data` of an event each.

    `Last-Event-ID` says which position a watcher was told last, and counts before `after`. An event
    `removed` tells of the oldest entry left where compaction removed what should follow, and
    `rewound` of the newest one where the journal ends before the position.
    """
    session = read_name(request, SESSION, frozenset({"after", "wait", "entries"}))
    require_text("session", session)
    entries = request.params.get("entries")
    if entries not in (None, "whole"):
        raise InvalidMessage("entries is whole, or left out")
    last = request.headers.get("Last-Event-ID") or request.params.get("after") or ""
    after = read_whole({"after": last}, "after", POSITION_MAX, default=BEFORE_ALL)
    wait = read_whole(request.params, "wait", WAIT_SECONDS_MAX, default=WAIT_SECONDS)
    changes = await services.watch.changes(session, after, wait)
    text = f"retry: {RETRY_MILLISECONDS}\n\n"
    for event in write_events(changes, is_whole=entries is not None):
        text += event
        if len(text) >= ANSWER_CHARACTERS_MAX:
            break
    headers = {"Cache-Control": "no-store"}
    return func.HttpResponse(text, mimetype="text/event-stream", headers=headers)


@routes.add(
    "tail",
    "GET changes",
    Right.LOOK,
    "What was written of all sessions since a time, the oldest first.",
    {200: "The changes, until when they reach, and the request units of the look.", **REFUSED},
    {
        "since": {"type": "integer", "minimum": 0, "description": "in seconds since 1970"},
        "limit": {"type": "integer", "minimum": 1, "maximum": TAILED_MAX},
    },
)
async def tell_tail(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """The entries of all sessions that ended and were written at `since` or later.

    `until` is when the newest of them was written, or where to begin where no `since` is given.
    What a look does not show yet, because a part of the store is some seconds behind, a later one
    does that begins as much before `until`: the caller passes over what it has seen. An entry that
    is acknowledged or decided about is written again. One query.
    """
    require_request(request, frozenset({"since", "limit"}))
    limit = read_whole(request.params, "limit", TAILED_MAX, least=1, default=TAILED_MAX)
    with count_spending() as spending:
        if "since" in request.params:
            since: float = read_whole(request.params, "since", SECONDS_MAX)
            found = await services.journal.entries_since(since, limit)
            until = found[-1].written_at if found else since
        else:
            found, until = [], await services.journal.time()
    changes = [
        {"session": one.entry.session} | describe_change(one.entry, one.written_at)
        for one in found
        if one.entry.status is not Status.WORKING
    ]
    return respond(
        {
            "changes": changes,
            "until": int(until),
            "more": len(found) == limit,
            "request_units": round(spending.request_units, 2),
        }
    )


def write_events(changes: Changes, *, is_whole: bool) -> Iterator[str]:
    """Yield the events of an answer, in order."""
    if changes.oldest is not None:
        yield write_event(changes.oldest - 1, {"oldest": changes.oldest}, "removed")
    if changes.newest is not None:
        yield write_event(changes.newest, {"newest": changes.newest}, "rewound")
    for one in changes.entries:
        change = describe_change(one.entry, one.written_at)
        whole = {"entry": describe_entry(one.entry)} if is_whole else {}
        yield write_event(one.entry.position, change | whole)


def write_event(position: int, data: dict[str, Any], name: str = "") -> str:
    """One event; without a name it is what an EventSource gives to `onmessage`."""
    named = f"event: {name}\n" if name else ""
    return f"id: {position}\n{named}data: {json.dumps(data)}\n\n"


@routes.add(
    "state",
    "GET sessions/{session}/state",
    Right.LOOK,
    "The state of a session, with the position at which it was written as its ETag.",
    {
        200: "The state, its position, and its model.",
        304: "It is the one of If-None-Match.",
        **REFUSED,
        404: "There is nothing of the session.",
    },
)
async def tell_state(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """The state after every entry that ended before the request, whatever has begun since.

    A claim, a fault and parked messages leave the state as it is; after an erasure it is empty.
    """
    session = read_name(request, SESSION)
    require_text("session", session)
    head = await services.journal.head(session)
    if head is None:
        raise UnknownSession(f"there is nothing of session {session!r}")
    position = changed_position(head)
    # An entry of an older release does not tell the whole state that it names from a change of it.
    mark = "" if head.change is None else "+"
    tag = f'"{NO_STATE if position is None else position}{mark}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    known = request.headers.get("If-None-Match") or ""
    if {"*", tag} & {one.strip().removeprefix("W/") for one in known.split(",")}:
        return func.HttpResponse(status_code=304, headers=headers)
    held = await services.worker.input_after(head)
    described = {
        "session": session,
        "position": position,
        "model": asdict(held.model) if held.model else None,
        "state": dict(held.state),
    }
    return respond(described, headers=headers)
