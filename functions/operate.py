"""HTTP for operators: health, what a session's journal says, faults and their resolution."""

import json
from typing import Any

import azure.functions as func
from pydantic import BaseModel, ConfigDict, ValidationError

from functions.problem import answer, problem
from shared.domain.documents import entry_document
from shared.domain.errors import InvalidBody, LockstepError
from shared.domain.journal import Entry
from shared.domain.running import summary
from shared.ports import Sought
from shared.usecases.resolve import Action, Decision
from shared.usecases.services import Services

FAULTS_MAX = 100


class ResolutionRequest(BaseModel):
    """What an operator sends to resolve a fault."""

    model_config = ConfigDict(extra="forbid")

    action: Action
    who: str
    why: str
    body: Any = None
    at: int | None = None


def blueprint(services: Services) -> func.Blueprint:
    """Health, sessions, faults and resolutions."""
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
        return problem(error)
    return answer({"region": services.region, "journal": "readable"})


async def show_session(services: Services, session: str) -> func.HttpResponse:
    """The newest entry of a session: its state, its cursors and what is still owed."""
    try:
        head = await services.journal.head(session)
    except LockstepError as error:
        return problem(error)
    if head is None:
        return answer({"session": session, "head": None}, 404)
    return answer({"session": session, "head": entry_document(head)})


async def list_faults(services: Services) -> func.HttpResponse:
    """What a person should look at, by session: the fault that stops it, outputs no queue took."""
    try:
        sessions = await services.journal.sessions(Sought.FAULTED, limit=FAULTS_MAX)
        found = [await faults_of(services, session) for session in sessions]
    except LockstepError as error:
        return problem(error)
    return answer({"faults": [fault for fault in found if fault]})


async def faults_of(services: Services, session: str) -> dict[str, Any] | None:
    """What is wrong with a session, or None where everything was resolved."""
    head = await services.journal.head(session)
    if head is None:
        return None
    entries = await services.journal.faults_of(session)
    halting = [e for e in entries if head.halt is not None and e.position == head.halt.at]
    refused = [e for e in entries if e.outbox.refused]
    if not halting and not refused:
        return None
    return {
        "session": session,
        "parked": sum(head.parked.values()),
        "fault": entry_document(halting[0]) if halting else None,
        "refused": [refused_outputs(entry) for entry in refused],
    }


def refused_outputs(entry: Entry) -> dict[str, Any]:
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
        entry = await services.resolver.resolve(session, decision_of(request.get_body()))
    except LockstepError as error:
        return problem(error)
    return answer({"session": session, "entry": entry_document(entry)})


def decision_of(body: bytes) -> Decision:
    """A person's decision from JSON; raises InvalidBody or InvalidMessage."""
    try:
        asked = ResolutionRequest.model_validate_json(body)
    except ValidationError as error:
        raise InvalidBody(summary(error)) from error
    corrected = json.dumps(asked.body).encode() if asked.body is not None else None
    return Decision(asked.action, asked.who, asked.why, corrected, asked.at)
