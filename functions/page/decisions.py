"""Decisions by the operations page: shown first, then carried out, and told where they are kept.

A decision is the same as over JSON: it is about an entry by its position, so that of two people who
press at once only one has an effect, and it is recorded with who and why. A form that was carried
out leads to a page that only looks, so that loading it again decides nothing.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import azure.functions as func
from pydantic import BaseModel, ConfigDict, ValidationError

from functions.http.bulk import describe_bulk, make_bulk
from functions.http.operate import STANDSTILLS_MAX, ResolutionBody
from functions.http.requests import read_decision, require_request
from functions.http.routes import HttpRoutes, principal_of
from functions.page.view import HEADERS, link, render, show_problems
from shared.domain.access import Principal, Right
from shared.domain.bulk import BulkDecision, BulkMember, BulkState
from shared.domain.errors import InvalidBody, InvalidMessage
from shared.domain.json_text import keep_json, write_object
from shared.domain.message import require_text
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.standstill import StandstillKind
from shared.domain.values import summarise
from shared.engine.build import Services
from shared.engine.operate.bulk import PIECE_SECONDS, require_bulk

ONCE = frozenset({"action", "who", "why", "to", "type", "body", "confirmed", "id"})
# What a form says with a decision that has a body, which is about one message.
WITH_BODY: dict[str, tuple[str, ...]] = {"edit": ("type", "body"), "happened": ("body",)}
# Those that are listed, and how often a browser asks how far one has come, in seconds.
DECISIONS_SHOWN, REFRESH_SECONDS = 50, 2
routes = HttpRoutes(show_problems)


class Choice(BaseModel):
    """The choice of a person: a session, and the verbs about what needs attention in it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    session: str
    verbs: list[dict[str, Any]]


class Everything(BaseModel):
    """The choice of everything of a kind that has one general cause."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str
    cause: str


@dataclass(frozen=True, slots=True)
class ChosenVerb:
    session: str
    request: ResolutionRequest


@routes.add("page_decision", "POST operate/decision", Right.RESOLVE)
async def answer_form(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Show what a form would do, or do it where it says `confirmed`, and lead to what came of it.

    The same form again does nothing more. Raises InvalidBody and InvalidMessage.
    """
    fields = read_fields(request, ONCE, frozenset({"what", "all"}))
    principal = principal_of(services, request)
    action = fields.get("action", [""])[0]
    is_confirmed = fields.get("confirmed") == ["yes"]
    said = {name: values[0] for name, values in fields.items() if name in ONCE}
    if action in WITH_BODY:
        return await answer_one(services, request, fields, said, is_confirmed=is_confirmed)
    wanted = read_bulk(fields, principal)
    if is_confirmed:
        decision = await services.bulk.begin(wanted)
        return lead_to(request, "/decisions", id=decision.id)
    about = len(wanted.members)
    if wanted.kind is not None:
        counted = (await services.standstills.causes({wanted.kind})).causes
        about = sum(one.count for one in counted if one.cause in (wanted.causes or ()))
    # What identifies this decision, however often its form is sent.
    said |= {"who": wanted.who, "id": str(time.time_ns())}
    return render(
        request,
        "preview.html",
        wanted=wanted,
        about=about,
        said=said,
        chosen={name: fields.get(name, []) for name in ("what", "all")},
        replaced=None,
    )


async def answer_one(
    services: Services,
    request: func.HttpRequest,
    fields: Mapping[str, list[str]],
    said: dict[str, str],
    *,
    is_confirmed: bool,
) -> func.HttpResponse:
    """Show or carry out a decision with a body about one; what is no JSON stays in its form."""
    chosen = list(dict.fromkeys(fields.get("what", [])))
    if len(chosen) != 1 or "all" in fields:
        raise InvalidMessage(f"{said['action']} is for one message at a time")
    principal = principal_of(services, request)
    try:
        one = read_choice(chosen[0], said["action"], fields, principal)
    except InvalidBody as error:
        if "body" not in said:
            raise
        who = principal.name if principal else ""
        return render(
            request, "edit.html", 400, wrong=str(error), choice=chosen[0], said=said, who=who
        )
    if is_confirmed:
        await services.resolver.decide(one.session, one.request)
        return lead_to(request, "/session", session=one.session)
    replaced = None
    if one.request.action is ResolutionAction.EDIT:
        entry = await services.journal.entry(one.session, one.request.at or 0)
        message = entry.message if entry else None
        replaced = message.body.decode(errors="replace") if message else ""
    return render(
        request,
        "preview.html",
        wanted=BulkDecision(
            "", said["action"], one.request.who, one.request.why, members=(make_member(one),)
        ),
        about=1,
        said=said | {"who": one.request.who},
        chosen={"what": chosen, "all": []},
        replaced=replaced,
    )


def lead_to(request: func.HttpRequest, page: str, **parameters: Any) -> func.HttpResponse:
    """An answer to a form that has a browser ask for a page, which may be loaded again."""
    to = link(request, page, **parameters)
    return func.HttpResponse(status_code=303, headers={**HEADERS, "Location": to})


@routes.add("page_decisions", "GET operate/decisions", Right.LOOK)
async def show_decisions(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Show what came of a decision so far, or list the decisions of the last month."""
    require_request(request, frozenset({"id"}))
    wanted = request.params.get("id", "")
    if not wanted:
        newest = await services.bulk.store.newest(DECISIONS_SHOWN)
        return render(request, "decisions.html", decisions=[describe_bulk(one) for one in newest])
    decision = await services.bulk.read(wanted)
    principal = principal_of(services, request)
    is_running = decision.state is BulkState.RUNNING
    return render(
        request,
        "decision.html",
        refresh=REFRESH_SECONDS if is_running else 0,
        one=describe_bulk(decision),
        decided=decision.decided,
        is_running=is_running,
        who=principal.name if principal else "",
    )


@routes.add("page_decisions_change", "POST operate/decisions", Right.RESOLVE)
async def answer_decisions_form(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Go on with a bulk decision at once, or end it where the form says who and why."""
    fields = read_fields(request, frozenset({"id", "who", "why"}))
    said = {name: values[0] for name, values in fields.items()}
    principal = principal_of(services, request)
    wanted = said.get("id", "")
    if "why" in said:
        who = principal.name if principal else said.get("who", "")
        await services.bulk.cancel(wanted, who, said["why"])
    else:
        await services.bulk.go_on(wanted, PIECE_SECONDS)
    return lead_to(request, "/decisions", id=wanted)


def read_fields(
    request: func.HttpRequest, once: frozenset[str], many: frozenset[str] = frozenset()
) -> Mapping[str, list[str]]:
    """The fields of a form; raises InvalidBody."""
    require_request(request, frozenset())
    try:
        fields = parse_qs(
            request.get_body().decode(),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
        )
    except ValueError as error:
        raise InvalidBody(f"this is no form: {error}") from error
    if unknown := sorted(fields.keys() - once - many):
        raise InvalidBody(f"unknown field {unknown[0]!r}")
    if repeated := sorted(name for name in once & fields.keys() if len(fields[name]) > 1):
        raise InvalidBody(f"field {repeated[0]!r} is given twice")
    return fields


def read_bulk(fields: Mapping[str, list[str]], principal: Principal | None) -> BulkDecision:
    """Return what is to be decided, each once; raises InvalidBody or InvalidMessage."""
    action = fields.get("action", [""])[0]
    chosen = list(dict.fromkeys(fields.get("what", [])))
    said: dict[str, Any] = {
        name: fields.get(name, [""])[0] for name in ("id", "action", "who", "why", "to")
    }
    if principal is not None:
        said["who"] = principal.name
    said |= {"to": said["to"] if action == ResolutionAction.REDIRECT else None, "causes": None}
    if every := fields.get("all"):
        try:
            choice = Everything.model_validate_json(every[0])
            said |= {"kind": StandstillKind(choice.kind), "causes": [choice.cause]}
        except ValueError as error:
            raise InvalidBody(f"all: {error}") from error
    else:
        if not 1 <= len(chosen) <= STANDSTILLS_MAX:
            raise InvalidMessage(f"mark at least one, and at most {STANDSTILLS_MAX}")
        read = [read_choice(text, action, fields, principal) for text in chosen]
        said["members"] = tuple(map(make_member, read))
    wanted = make_bulk(**said)
    require_bulk(wanted)
    return wanted


def read_choice(
    text: str, action: str, fields: Mapping[str, list[str]], principal: Principal | None
) -> ChosenVerb:
    """The decision about one choice, read as one that came as JSON is."""
    try:
        choice = Choice.model_validate_json(text)
    except ValidationError as error:
        raise InvalidBody(summarise(error)) from error
    require_text("session", choice.session)
    verbs = [verb for verb in choice.verbs if verb.get("action") == action]
    if not verbs:
        raise InvalidMessage(f"{action!r} does not end what needs attention in {choice.session!r}")
    taken = (WITH_BODY | {"redirect": ("to",)}).get(action, ())
    given = {name: values[0] for name, values in fields.items() if name in ("who", "why", *taken)}
    said: dict[str, Any] = verbs[0] | {name: value for name, value in given.items() if value}
    try:
        if "body" in said:
            said["body"] = keep_json(said["body"])
        document = write_object({"who": "", "why": ""} | said)
    except ValueError as error:
        raise InvalidBody(f"body: {error}") from error
    return ChosenVerb(
        choice.session,
        ResolutionRequest(**read_decision(ResolutionBody, document.encode(), principal)),
    )


def make_member(chosen: ChosenVerb) -> BulkMember:
    """Return what was chosen, without who decides, why, and what an edit says."""
    names = ("at", "group", "number", "queue", "step")
    said = {name: getattr(chosen.request, name) for name in names}
    verb = {"action": chosen.request.action.value} | {
        k: v for k, v in said.items() if v is not None
    }
    return BulkMember(chosen.session, verb)
