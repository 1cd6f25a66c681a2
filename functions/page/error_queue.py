"""The error queue on the operations page: read without taking anything, and ended once."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import azure.functions as func

from functions.http.error_queue import DismissBody, RepeatBody, find_errors, send_and_describe
from functions.http.requests import read_decision, require_request
from functions.http.routes import HttpRoutes, principal_of
from functions.page.decisions import read_fields
from functions.page.view import render, show_problems
from shared.domain.access import Right
from shared.domain.errors import InvalidBody, InvalidMessage, LockstepError
from shared.domain.json_text import keep_json, write_object
from shared.domain.reports import FAULT_TYPE
from shared.engine.build import Services
from shared.engine.operate.error_queue import RepeatRequest

ERRORS_SHOWN = 20
FIELDS = frozenset(RepeatBody.model_fields)
routes = HttpRoutes(show_problems)


@routes.add("page_errors", "GET operate/errors", Right.LOOK)
async def show_errors(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """A page of open reports, or where that is asked for of what the region's queue holds."""
    require_request(request, frozenset({"session", "after", "above", "show"}))
    asked = {name: request.params.get(name, "") for name in ("session", "after", "above", "show")}
    asked["show"] = asked["show"] or "open"
    found = await find_errors(services, asked | {"limit": str(ERRORS_SHOWN)})
    principal = principal_of(services, request)
    return render(
        request,
        "errors.html",
        errors=found["errors"],
        following=found["next"],
        complete=found["complete"],
        session=asked["session"],
        above=asked["above"],
        show=asked["show"],
        counts=found["counts"],
        region=services.region,
        who=principal.name if principal else "",
        fault_type=FAULT_TYPE,
    )


@routes.add("page_again", "POST operate/again", Right.RESOLVE)
async def answer_error_form(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Show what would be sent again, or send it where the form says `confirmed`."""
    given = read_fields(request, FIELDS | {"confirmed"})
    fields = {name: values[0] for name, values in given.items()}
    asked = read_error_form(fields, services, request)
    if fields.get("confirmed") == "yes":
        sent = await send_and_describe(services, asked)
        return render(request, "sent.html", sent=sent, asked=asked)
    message = await services.errors.preview(asked)
    said = {name: value for name, value in fields.items() if name in FIELDS}
    return render(
        request, "again.html", message=message, said=said | {"who": asked.who}, asked=asked
    )


@routes.add("page_dismiss", "POST operate/dismissal", Right.RESOLVE)
async def answer_dismissal(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Dismiss the report of a form; what the form says beside who and why is not looked at."""
    given = read_fields(request, FIELDS)
    named = DismissBody.model_fields.keys() & given.keys()
    asked = read_error_form({name: given[name][0] for name in named}, services, request)
    await services.errors.dismiss(asked)
    return render(request, "dismissed.html", asked=asked)


@routes.add("page_reports", "POST operate/reports", Right.RESOLVE)
async def answer_reports_form(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Send again or dismiss every report of a form, as it is; one that fails stops no other.

    Sent once more, the form changes nothing.
    """
    fields = read_fields(request, frozenset({"action", "who", "why"}), frozenset({"what"}))
    chosen, action = list(dict.fromkeys(fields.get("what", []))), fields.get("action", [""])[0]
    if not 1 <= len(chosen) <= ERRORS_SHOWN or action not in ("again", "dismiss"):
        raise InvalidMessage(f"name from 1 to {ERRORS_SHOWN} reports, to send again or to dismiss")
    person = {name: fields.get(name, [""])[0] for name in ("who", "why")}

    async def decide(text: str) -> dict[str, Any]:
        named = dict(parse_qsl(text))
        asked = read_error_form(named | person, services, request)
        try:
            if action == "dismiss":
                await services.errors.dismiss(asked)
            else:
                await send_and_describe(services, asked)
        except LockstepError as error:
            said = f"{type(error).__name__}: {error}"
            return {"session": asked.session, "is_done": False, "text": said}
        return {"session": asked.session, "is_done": True, "text": ""}

    outcomes = await asyncio.gather(*map(decide, chosen))
    return render(request, "reports.html", outcomes=outcomes, action=action)


def read_error_form(
    fields: Mapping[str, str], services: Services, request: func.HttpRequest
) -> RepeatRequest:
    """The form as the JSON that it stands for; raises InvalidBody."""
    said: dict[str, Any] = {
        name: value for name, value in fields.items() if name in FIELDS and value
    }
    try:
        said["sequence"] = int(said.get("sequence", ""))
        if "body" in said:
            said["body"] = keep_json(said["body"])
        document = write_object({"why": "", "who": ""} | said)
    except ValueError as error:
        raise InvalidBody(f"body or sequence: {error}") from error
    principal = principal_of(services, request)
    return RepeatRequest(**read_decision(RepeatBody, document.encode(), principal))
