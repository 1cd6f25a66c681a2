"""HTTP ingest: accept a message, number it and publish it to both regions."""

import azure.functions as func

from functions.problem import answer, problem
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.handling import parse_body
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.usecases.services import Services

PRODUCER = ProducerOptions(producer_group_id="http")


def blueprint(services: Services) -> func.Blueprint:
    """`POST /api/sessions/{session}/messages`."""
    bp = func.Blueprint()

    @bp.route(
        route="sessions/{session}/messages",
        methods=["POST"],
        auth_level=func.AuthLevel.FUNCTION,
        trigger_arg_name="request",
    )
    async def ingest(request: func.HttpRequest) -> func.HttpResponse:
        return await accept(services, request)

    return bp


async def accept(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """202 when the message is safe, which is before it is processed; problem details otherwise.

    `Idempotency-Key` names the message: sending the same again changes nothing, other content under
    the same key is a 409. `type` in the query string names the handler.
    """
    try:
        message = checked(services, request)
        draft = Draft(message.id, message.type, message.body)
        published = await services.producer.publish(message.session, [draft], PRODUCER)
    except LockstepError as error:
        return problem(error)
    number = published.messages[0].number
    location = f"sessions/{message.session}"
    return answer(
        {"id": message.id, "sequence": number.sequence if number else None, "see": location}, 202
    )


def checked(services: Services, request: func.HttpRequest) -> Message:
    """The request as a message that its handler will be able to read; raises CallerError."""
    key = request.headers.get("Idempotency-Key")
    if not key:
        raise InvalidMessage("header Idempotency-Key is missing")
    message = Message(
        id=key,
        session=request.route_params.get("session", ""),
        type=request.params.get("type", ""),
        body=request.get_body(),
    )
    parse_body(services.handlers.of(message.type), message)
    return message
