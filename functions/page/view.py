"""The rendering of the operations page: templates, links, and what they are given."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import azure.functions as func
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_environment
from markupsafe import Markup

from functions.http.requests import HOST_PARAMETERS
from functions.http.responses import describe_problem, retry_headers
from functions.http.routes import Answer
from shared.domain.errors import LockstepError
from shared.domain.moments import describe_due, describe_time, parse_seconds
from shared.domain.spending import CURRENT, count_spending
from shared.domain.standstill import URGENCY
from shared.engine.build import Services

ROUTE = "/operate"
# What every page links to, in order.
PAGES = (
    ("", "Overview"),
    ("/faults", "Needs attention"),
    ("/regions", "Regions"),
    ("/sessions", "Sessions"),
    ("/find", "Find"),
    ("/errors", "Error queue"),
    ("/sagas", "Sagas"),
    ("/decisions", "Decisions"),
)
# Nothing is loaded or run, nothing is kept, and no address (it may hold a key) is told elsewhere.
# With no-referrer a browser would say of a form here that it is of no origin at all.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "Strict-Transport-Security": "max-age=31536000",
    "X-Content-Type-Options": "nosniff",
}


@cache
def load_templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["json"] = write_json
    templates.filters["moment"] = lambda one: show_time(describe_time, parse_seconds(one))
    templates.filters["deadline"] = lambda one: show_time(describe_due, parse_seconds(one))
    templates.filters["instant"] = partial(show_time, describe_time)
    templates.filters["docs"] = show_place
    templates.globals |= {"docs_url": "", "pages": PAGES, "has_sagas": True}
    return templates


def adapt_pages(docs_url: str, *, has_sagas: bool) -> None:
    """Let the pages of this process link to the documentation's site, and to each other."""
    shown = [one for one in PAGES if has_sagas or one[0] != "/sagas"]
    load_templates().globals |= {
        "docs_url": docs_url.rstrip("/"),
        "pages": shown,
        "has_sagas": has_sagas,
    }


def show_time(describe: Callable[[float, float], str], seconds: float) -> Markup:
    """A time in both ways; a line may end between them, and nowhere within the second one."""
    elapsed, _, clock = describe(seconds, time.time()).partition(", ")
    return Markup('{}, <span class="clock">{}</span>').format(elapsed, clock)


@pass_environment
def show_place(templates: Environment, place: str) -> Markup:
    """A place of the documentation in a checkout, with a link to it where it is served."""
    address = templates.globals["docs_url"]
    if not address:
        return Markup("<code>{}</code>").format(place)
    page, _, paragraph = place.removeprefix("docs/").partition("#")
    target = f"{address}/{page.removesuffix('.md')}.html#{paragraph}"
    return Markup('<a href="{}">{}</a>').format(target, place)


def write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def render(
    request: func.HttpRequest,
    template: str,
    status: int = 200,
    *,
    refresh: int = 0,
    refresh_to: str = "",
    **shown: Any,
) -> func.HttpResponse:
    """A page; its links carry the key on where the request had it in its query.

    With `refresh` a browser asks for it again after so many seconds, or for `refresh_to`.
    """
    spending = CURRENT.get()
    units = f"{spending.request_units:.1f}" if spending else None
    values = {
        "units": units,
        "link": partial(link, request),
        "keys": keys_of(request),
        "current": urlsplit(request.url).path.partition(ROUTE)[2],
        "who": "",
        **shown,
    }
    text = load_templates().get_template(template).render(values)
    again = f"{refresh}; url={refresh_to}" if refresh_to else str(refresh)
    headers = HEADERS | ({"Refresh": again} if refresh else {})
    return func.HttpResponse(text, status_code=status, mimetype="text/html", headers=headers)


def show_problems(answer: Answer) -> Answer:
    """The same, but that an error is a page, with the status that JSON would have."""

    @wraps(answer)
    async def show(
        services: Services, request: func.HttpRequest, *client: Any
    ) -> func.HttpResponse:
        with count_spending():
            try:
                return await answer(services, request, *client)
            except LockstepError as error:
                problem = describe_problem(error)
                response = render(request, "problem.html", problem["status"], problem=problem)
                response.headers.update(retry_headers(error))
                return response

    return show


def link(request: func.HttpRequest, page: str = "", **parameters: Any) -> str:
    """The path of another of these pages, wherever the host has put the routes."""
    prefix = urlsplit(request.url).path.partition(ROUTE)[0]
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    query = urlencode(given | keys_of(request))
    return f"{prefix}{ROUTE}{page}" + (f"?{query}" if query else "")


def keys_of(request: func.HttpRequest) -> dict[str, str]:
    """The key of a request, where it had it in its query."""
    return {name: request.params[name] for name in HOST_PARAMETERS & request.params.keys()}


def group_by_cause(listed: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return standstills by their cause, with the verbs that all of one cause have in common.

    What stops a session comes first. `choice` is what a form sends of each: its session, and the
    verbs about it; `all` is what it sends of everything with this cause.
    """
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for one in listed:
        actions = [verb["action"] for verb in one["verbs"]]
        cause = one["general_cause"]
        every = write_json({"kind": one["kind"], "cause": cause})
        empty = {"kind": one["kind"], "cause": one["cause"], "actions": actions, "all": every}
        empty["members"] = []
        group = groups.setdefault((one["kind"], cause), empty)
        if one["cause"] != group["cause"]:
            group["cause"] = cause
        choice = write_json({"session": one["session"], "verbs": one["verbs"]})
        group["members"].append({**one, "choice": choice})
    return sorted(groups.values(), key=lambda one: URGENCY.index(one["kind"]))


def compare_states(before: Any, after: Any, path: str = "") -> list[tuple[str, str, str]]:
    """Each field that differs, with its JSON before and after; empty where it is absent."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return [] if before == after else [(path, write_json(before), write_json(after))]
    changes: list[tuple[str, str, str]] = []
    for name in sorted(before.keys() | after.keys()):
        inner = f"{path}.{name}" if path else name
        if name not in before:
            changes.append((inner, "", write_json(after[name])))
        elif name not in after:
            changes.append((inner, write_json(before[name]), ""))
        else:
            changes += compare_states(before[name], after[name], inner)
    return changes
