"""HTTP for sagas: start one, look at it, tell it of an event, cancel it, list those of this region.

What is said to a saga is in its journal before the answer; Durable Functions is only woken.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import azure.durable_functions as df
import azure.functions as func
from durabletask.client import OrchestrationQuery, OrchestrationState, OrchestrationStatus

from functions.problem import answer, problem
from functions.saga_instances import ORCHESTRATOR, ensure, left_to_the_feed, wake
from functions.sagas import with_client
from shared.domain.errors import InvalidMessage, LockstepError, TooLarge
from shared.domain.message import BODY_BYTES_MAX
from shared.domain.saga import CANCELLED, NAME_PATTERN, State, Step
from shared.domain.saga_record import Record
from shared.domain.saga_walk import Started
from shared.usecases.saga_book import Heard, SagaBook, Told
from shared.usecases.services import Services

# `code` and `clientId` are how the Functions host takes a key.
HOST_PARAMETERS = frozenset({"code", "clientId"})
LISTED_MAX = 1_000
FUNCTION = func.AuthLevel.FUNCTION


def blueprint(services: Services) -> func.Blueprint:
    """Below `/api/sagas`, all with a function key."""
    bp = func.Blueprint()
    book = SagaBook.of(services)

    @bp.route(
        route="sagas/{key}", methods=["POST"], auth_level=FUNCTION, trigger_arg_name="request"
    )
    @with_client(bp)
    async def start_saga(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await start(book, client, request)

    @bp.route(route="sagas/{key}", methods=["GET"], auth_level=FUNCTION, trigger_arg_name="request")
    async def show_saga(request: func.HttpRequest) -> func.HttpResponse:
        return await show(book, request.route_params["key"])

    @bp.route(
        route="sagas/{key}/events/{event}",
        methods=["POST"],
        auth_level=FUNCTION,
        trigger_arg_name="request",
    )
    @with_client(bp)
    async def tell_saga(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await tell(book, client, request)

    @bp.route(
        route="sagas/{key}/cancel",
        methods=["POST"],
        auth_level=FUNCTION,
        trigger_arg_name="request",
    )
    @with_client(bp)
    async def cancel_saga(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await cancel(book, client, request.route_params["key"])

    @bp.route(route="sagas", methods=["GET"], auth_level=FUNCTION, trigger_arg_name="request")
    @with_client(bp)
    async def list_sagas(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await listing(client, request)

    return bp


async def start(
    book: SagaBook, client: df.DurableFunctionsClient, request: func.HttpRequest
) -> func.HttpResponse:
    """202 when the saga has started, now or before; `type` in the query is its kind.

    Starting it again changes nothing; other content under the same key is a 409.
    """
    key = request.route_params["key"]
    try:
        check(request, frozenset({"type"}))
        told = await book.start(key, request.params.get("type", ""), request.get_body())
        if told.heard is Heard.REFUSED:
            return refused(told)
        found = await book.look(key)
    except LockstepError as error:
        return problem(error)
    if isinstance(found, Started):
        await left_to_the_feed(key, ensure(client, found, 0.0))
    state = State.RUNNING if isinstance(found, Started) else found
    document = {"key": key, "state": state, "links": links(key)}
    return answer(document, 202, {"Location": f"/api/{links(key)['self']}"})


async def show(book: SagaBook, key: str) -> func.HttpResponse:
    """What the saga's journal and those of its steps say; 404 where nobody has heard of it."""
    try:
        record = await book.record(key)
        if record is None:
            return answer({"key": key, "state": None}, 404)
        outcomes = await book.outcomes(key, record)
    except LockstepError as error:
        return problem(error)
    return answer(described(key, record, outcomes))


async def tell(
    book: SagaBook, client: df.DurableFunctionsClient, request: func.HttpRequest
) -> func.HttpResponse:
    """202 when the event is kept, be it that the saga starts only later; 409 when it is too late.

    The body is not read.
    """
    key, event = request.route_params["key"], request.route_params["event"]
    try:
        check(request, frozenset())
        told = await book.hear(key, event_name(event))
    except LockstepError as error:
        return problem(error)
    return await concluded(client, key, told)


async def cancel(book: SagaBook, client: df.DurableFunctionsClient, key: str) -> func.HttpResponse:
    """202 when the saga will turn back; 409 when there is no way back."""
    try:
        told = await book.cancel(key)
    except LockstepError as error:
        return problem(error)
    return await concluded(client, key, told)


async def listing(
    client: df.DurableFunctionsClient, request: func.HttpRequest
) -> func.HttpResponse:
    """The sagas that this region's task hub knows, all or those in the `state` asked for."""
    try:
        check(request, frozenset({"state"}))
        wanted = state_in(request.params)
    except LockstepError as error:
        return problem(error)
    query = OrchestrationQuery(
        runtime_status=statuses_of(wanted),
        max_instance_count=LISTED_MAX,
        fetch_inputs_and_outputs=True,
    )
    found = [listed(one) for one in await client.get_all_orchestration_states(query)]
    sagas = [one for one in found if one and wanted in (None, one["state"])]
    return answer({"sagas": sorted(sagas, key=lambda saga: str(saga["key"]))})


async def concluded(client: df.DurableFunctionsClient, key: str, told: Told) -> func.HttpResponse:
    """Wake the saga, or say why it took no notice.

    It is woken in any case: the instance here may have missed what the other region did.
    """
    await left_to_the_feed(key, wake(client, key))
    if told.heard is Heard.REFUSED:
        return refused(told)
    return answer({"key": key, "links": links(key)}, 202)


def refused(told: Told) -> func.HttpResponse:
    """A saga took no notice: problem details, type SagaRefused."""
    details = {"type": "SagaRefused", "status": 409, "detail": told.reason}
    return answer(details, 409)


def described(key: str, record: Record, outcomes: Mapping[str, str]) -> dict[str, Any]:
    """A saga as JSON: where it stands, and every step with its outcome."""
    steps = record.plan.steps if record.plan else ()
    waits = record.plan.waits if record.plan else ()
    return {
        "key": key,
        "kind": record.kind,
        "state": record.state,
        "started": record.at,
        "reason": record.reason,
        "events": list(record.events),
        "steps": [described_step(step, outcomes.get(step.name)) for step in steps],
        "waits": [{"name": wait.name, "decision": wait.decision(record.events)} for wait in waits],
        "links": links(key),
    }


def described_step(step: Step, outcome: str | None) -> dict[str, Any]:
    """A step as JSON."""
    session = quote(step.do.session, safe="")
    return {"name": step.name, "outcome": outcome, "session": f"sessions/{session}"}


def links(key: str) -> dict[str, str]:
    """Where a saga is looked at and told something, below `/api/`."""
    path = f"sagas/{quote(key, safe='')}"
    return {"self": path, "event": f"{path}/events/{{event}}", "cancel": f"{path}/cancel"}


def listed(state: OrchestrationState) -> dict[str, Any] | None:
    """An instance as one line of the list; None for other orchestrations."""
    if state.name != ORCHESTRATOR:
        return None
    key = (state.get_input() or {}).get("saga", {}).get("key")
    return {"key": key, "state": state.get_custom_status(), "instance": state.instance_id}


def state_in(parameters: Mapping[str, str]) -> State | None:
    """The state asked for; raises InvalidMessage for one that there is not."""
    wanted = parameters.get("state")
    try:
        return State(wanted) if wanted else None
    except ValueError:
        known = ", ".join(State)
        raise InvalidMessage(f"no saga is {wanted!r}; known: {known}") from None


def statuses_of(state: State | None) -> list[OrchestrationStatus] | None:
    """What Durable Functions calls the instances of sagas in a state; None for any."""
    if state is None:
        return None
    under_way = [OrchestrationStatus.PENDING, OrchestrationStatus.RUNNING]
    # The last turn of an instance says where the saga stands before the instance is over.
    return [OrchestrationStatus.COMPLETED, *under_way] if state.is_end else under_way


def event_name(event: str) -> str:
    """An event that outsiders may raise; raises InvalidMessage."""
    if event == CANCELLED or not re.fullmatch(NAME_PATTERN, event):
        raise InvalidMessage(f"{event!r} is no event that can be raised")
    return event


def check(request: func.HttpRequest, parameters: frozenset[str]) -> None:
    """Raise InvalidMessage for a parameter nobody knows, TooLarge for a body that is."""
    unknown = sorted(request.params.keys() - parameters - HOST_PARAMETERS)
    if unknown:
        raise InvalidMessage(f"unknown query parameter {unknown[0]!r}")
    size = len(request.get_body())
    if size > BODY_BYTES_MAX:
        raise TooLarge(f"the body has {size} bytes, over {BODY_BYTES_MAX}")
