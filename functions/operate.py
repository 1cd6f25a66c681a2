"""HTTP for operators: health, what a session's journal says, faults and their resolution."""

import json
from typing import Any

import azure.functions as func
from pydantic import BaseModel, ConfigDict, ValidationError

from functions.descriptions import describe_entry
from functions.responses import respond, respond_problem
from shared.domain.errors import InvalidBody, LockstepError
from shared.domain.journal import Entry
from shared.engine.build import Services
from shared.engine.handle.handle import summarise
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.ports import SessionNeed

FAULTS_MAX = 100


class ResolutionBody(BaseModel):
    """What an operator sends to resolve a fault."""

    model_config = ConfigDict(extra="forbid")

    action: ResolutionAction
    who: str
    why: str
    body: Any = None
    at: int | None = None


def build_operate_blueprint(services: Services) -> func.Blueprint:
    bp = func.Blueprint()

    @bp.route(
        route="health",
        methods=["GET"],
        auth_level=func.AuthLevel.ANONYMOUS,
        trigger_arg_name="request",
    )
    async def health(request: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001
        return await report_health(services)

    @bp.route(
        route="sessions/{session}",
        methods=["GET"],
        auth_level=func.AuthLevel.FUNCTION,
        trigger_arg_name="request",
    )
    async def session(request: func.HttpRequest) -> func.HttpResponse:
        return await show_session(services, request.route_params["session"])

    @bp.route(
        route="faults",
        methods=["GET"],
        auth_level=func.AuthLevel.FUNCTION,
        trigger_arg_name="request",
    )
    async def faults(request: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001
        return await list_faults(services)

    @bp.route(
        route="sessions/{session}/resolution",
        methods=["POST"],
        auth_level=func.AuthLevel.FUNCTION,
        trigger_arg_name="request",
    )
    async def resolve(request: func.HttpRequest) -> func.HttpResponse:
        return await resolve_fault(services, request)

    return bp


async def report_health(services: Services) -> func.HttpResponse:
    """200 when the journal can be read from this region, 503 when it cannot."""
    try:
        await services.journal.head("health")
    except LockstepError as error:
        return respond_problem(error)
    return respond({"region": services.region, "journal": "readable"})


async def show_session(services: Services, session: str) -> func.HttpResponse:
    """The newest entry of a session: its state, its cursors and what is still pending."""
    try:
        head = await services.journal.head(session)
    except LockstepError as error:
        return respond_problem(error)
    if head is None:
        return respond({"session": session, "head": None}, 404)
    return respond({"session": session, "head": describe_entry(head)})


async def list_faults(services: Services) -> func.HttpResponse:
    """What a person should look at, by session: the fault that stops it, outputs no queue took."""
    try:
        sessions = await services.journal.sessions(SessionNeed.RESOLUTION, limit=FAULTS_MAX)
        found = [await describe_faults(services, session) for session in sessions]
    except LockstepError as error:
        return respond_problem(error)
    return respond({"faults": [fault for fault in found if fault]})


async def describe_faults(services: Services, session: str) -> dict[str, Any] | None:
    """What is wrong with a session, or None where everything was resolved."""
    head = await services.journal.head(session)
    if head is None:
        return None
    entries = await services.journal.faulted_entries(session)
    halting = [e for e in entries if head.halt is not None and e.position == head.halt.at]
    refused = [e for e in entries if e.outbox.refused]
    if not halting and not refused:
        return None
    return {
        "session": session,
        "parked": sum(head.parked.values()),
        "fault": describe_entry(halting[0]) if halting else None,
        "refused": [describe_refused(entry) for entry in refused],
    }


def describe_refused(entry: Entry) -> dict[str, Any]:
    """The outputs of an entry that no queue took, by id, with the reason."""
    return {"position": entry.position, "outputs": dict(entry.outbox.refused)}


async def resolve_fault(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Body: `{"action": "retry" | "edit" | "skip", "who": ..., "why": ..., "body": {...}}`.

    With `"at"`, the position of a fault, it is about that fault only. 200 with the entry that
    records the resolution; its status is `faulted` when the message failed again. 409 when the
    session is not halted, or by another fault.
    """
    session = request.route_params.get("session", "")
    try:
        entry = await services.resolver.resolve(session, read_resolution(request.get_body()))
    except LockstepError as error:
        return respond_problem(error)
    return respond({"session": session, "entry": describe_entry(entry)})


def read_resolution(body: bytes) -> ResolutionRequest:
    """A person's decision from JSON; raises InvalidBody or InvalidMessage."""
    try:
        asked = ResolutionBody.model_validate_json(body)
    except ValidationError as error:
        raise InvalidBody(summarise(error)) from error
    corrected = json.dumps(asked.body).encode() if asked.body is not None else None
    return ResolutionRequest(asked.action, asked.who, asked.why, corrected, asked.at)
