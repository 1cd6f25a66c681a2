"""HTTP for operators: health, and what a session's journal says."""

import azure.functions as func

from functions.problem import answer, problem
from shared.domain.documents import entry_document
from shared.domain.errors import LockstepError
from shared.usecases.services import Services


def blueprint(services: Services) -> func.Blueprint:
    """`GET /api/health` and `GET /api/sessions/{session}`."""
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
