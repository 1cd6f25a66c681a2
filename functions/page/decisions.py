"""Decisions by the operations page: shown first, then carried out one after another.

A decision is the same as over JSON: it is about an entry by its position, so that of two people who
press at once only one has an effect, and it is recorded with who and why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import azure.functions as func
from pydantic import BaseModel, ConfigDict, ValidationError

from functions.http.operate import STANDSTILLS_MAX, ResolutionBody, decide_and_describe
from functions.http.requests import read_decision, require_request
from functions.http.routes import HttpRoutes, principal_of
from functions.page.view import render, show_problems
from shared.domain.access import Principal, Right
from shared.domain.errors import InvalidBody, InvalidMessage, LockstepError
from shared.domain.json_text import keep_json, write_object
from shared.domain.message import require_text
from shared.domain.reports import shorten
from shared.domain.values import summarise
from shared.engine.build import Services
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest

# Decisions of one form are begun at least so far apart: what was parked is processed by each, and
# the queues that it sends to belong to others, too.
PACE_SECONDS = 0.1
# No further decision of a form is begun after so long: a person waits for the page.
CARRY_OUT_SECONDS = 60.0
ONCE = frozenset({"action", "who", "why", "to", "type", "body", "confirmed"})
routes = HttpRoutes(show_problems)


class Choice(BaseModel):
    """The choice of a person: a session, and the verbs about what needs attention in it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    session: str
    verbs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ChosenVerb:
    session: str
    request: ResolutionRequest


@routes.add("page_decision", "POST operate/decision", Right.RESOLVE)
async def answer_form(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Show what a form would do, or do it where it says `confirmed`.

    Raises InvalidBody and InvalidMessage.
    """
    fields = read_fields(request, ONCE, frozenset({"what"}))
    principal = principal_of(services, request)
    decisions = read_decisions(fields, principal)
    if fields.get("confirmed") == ["yes"]:
        outcomes = await carry_out_all(services, decisions)
        return render(request, "outcomes.html", outcomes=outcomes)
    said = {name: values[0] for name, values in fields.items() if name in ONCE}
    said["who"] = decisions[0].request.who
    replaced = await read_replaced(services, decisions)
    return render(
        request,
        "preview.html",
        decisions=decisions,
        said=said,
        choices=fields["what"],
        replaced=replaced,
    )


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


def read_decisions(
    fields: Mapping[str, list[str]], principal: Principal | None
) -> list[ChosenVerb]:
    """Return what is to be decided, each once; raises InvalidBody or InvalidMessage."""
    chosen = list(dict.fromkeys(fields.get("what", [])))
    action = fields.get("action", [""])[0]
    if not 1 <= len(chosen) <= STANDSTILLS_MAX:
        raise InvalidMessage(f"mark at least one, and at most {STANDSTILLS_MAX}")
    if action == ResolutionAction.EDIT and len(chosen) > 1:
        raise InvalidMessage("one message is edited at a time")
    return [read_choice(text, action, fields, principal) for text in chosen]


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
    taken = {"edit": ("type", "body"), "redirect": ("to",)}.get(action, ())
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


async def read_replaced(services: Services, decisions: list[ChosenVerb]) -> str | None:
    """The body that an edit replaces, as it is in the journal."""
    one = decisions[0]
    if one.request.action is not ResolutionAction.EDIT or one.request.at is None:
        return None
    entry = await services.journal.entry(one.session, one.request.at)
    return entry.message.body.decode(errors="replace") if entry and entry.message else None


async def carry_out_all(services: Services, decisions: list[ChosenVerb]) -> list[dict[str, Any]]:
    """Return the result of each decision, in order; one that fails does not stop the others."""
    until = services.worker.clock.now() + CARRY_OUT_SECONDS
    outcomes: list[dict[str, Any]] = []
    for number, one in enumerate(decisions):
        if number:
            await services.worker.clock.sleep(PACE_SECONDS)
        outcome: dict[str, Any] = {"session": one.session, "action": one.request.action.value}
        if services.worker.clock.now() >= until:
            outcome |= {"done": False, "text": "not begun: time was up; it still needs attention"}
        else:
            try:
                outcome |= describe_outcome(
                    await decide_and_describe(services, one.session, one.request)
                )
            except LockstepError as error:
                text = f"{type(error).__name__}: {shorten(str(error))}"
                outcome |= {"done": False, "text": text}
        outcomes.append(outcome)
    return outcomes


def describe_outcome(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return in a sentence what the answer to a decision means."""
    if entry := document.get("entry"):
        text = f"recorded at position {entry['position']}, which is {entry['status']}"
        reason = f": {entry['reason']}" if entry.get("reason") else ""
        return {"done": entry["status"] != "faulted", "text": text + reason}
    left = document.get("pending") or document.get("blocked")
    if left:
        return {"done": False, "text": f"still missing in {' and '.join(left)}"}
    return {"done": True, "text": "nothing is left"}
