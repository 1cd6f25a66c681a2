"""The views for who knows an id: what was found of it, and the way of a message as a picture."""

from typing import Any

import azure.functions as func

from functions.http.find import UNITS, UNITS_MAX, find_named, find_way
from functions.http.requests import require_request
from functions.http.routes import HttpRoutes
from functions.page.sequence import draw_sequence
from functions.page.view import link, render, show_problems
from shared.domain.access import Right
from shared.engine.build import Services

# Entries on one page.
ENTRIES_SHOWN = 50

routes = HttpRoutes(show_problems)


@routes.add("page_find", "GET operate/find", Right.LOOK)
async def show_found(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """A page of what has an id: entries by their messages, and sessions and sagas by prefix."""
    names = ("id", "session", "units")
    require_request(request, frozenset(names))
    asked = {name: request.params.get(name, "").strip() for name in names}
    found: dict[str, Any] | None = None
    if asked["id"]:
        found = await find_named(services, asked | {"limit": str(ENTRIES_SHOWN)})
    allowed = int(asked.pop("units") or UNITS)
    more = min(10 * allowed, UNITS_MAX)
    return render(request, "find.html", found=found, allowed=allowed, more=more, **asked)


@routes.add("page_follow", "GET operate/follow", Right.LOOK)
async def show_way(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """A page of the way of an entry's message over sessions, as a picture and as a list."""
    require_request(request, frozenset({"session", "position", "units"}))
    found = await find_way(services, request.params)
    allowed = found.pop("units")

    def link_hop(session: str, position: int) -> str:
        place = link(request, "/session", session=session, before=position + 1)
        return f"{place}#position-{position}"

    return render(
        request,
        "follow.html",
        link_hop=link_hop,
        picture=draw_sequence(found["hops"], (found["session"], found["position"]), link_hop),
        more=min(10 * allowed, UNITS_MAX),
        allowed=allowed,
        **found,
    )
