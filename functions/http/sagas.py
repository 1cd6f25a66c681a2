"""HTTP for sagas: start one, read it, send it an event, cancel it, list those of this region.

Every change is in the saga's journal before the response; Durable Functions is only notified.
"""

import re
from collections.abc import Mapping
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask.client import OrchestrationQuery, OrchestrationState, OrchestrationStatus

from functions.http.access import add_route
from functions.http.requests import SAGA, SESSION, path_to, read_name, require_request
from functions.http.responses import ERROR_HELP, respond, respond_problem
from functions.triggers.saga_instances import (
    ORCHESTRATOR,
    ensure_instance,
    notify_instance,
    try_now,
)
from functions.triggers.sagas import with_client
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.saga.plan import CANCELLED, NAME_PATTERN, SagaState, Step
from shared.domain.saga.record import SagaRecord
from shared.domain.saga.walk import StartedSaga
from shared.domain.wire import TRACE_HEADER, read_traceparent
from shared.engine.build import Services
from shared.engine.sagas.sagas import SagaResponse, Sagas

LISTED_MAX = 1_000


def build_saga_routes(services: Services) -> func.Blueprint:
    """Below `/api/sagas`, all with a function key."""
    bp = func.Blueprint()
    sagas = Sagas(services.commands)

    @add_route(bp, services, "POST", "sagas/{key}", Right.SEND, with_client(bp))
    async def start_saga(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await start_saga_over_http(sagas, client, request)

    @add_route(bp, services, "GET", "sagas/{key}", Right.LOOK)
    async def show_saga(request: func.HttpRequest) -> func.HttpResponse:
        return await describe_saga_over_http(sagas, request)

    @add_route(bp, services, "POST", "sagas/{key}/events/{event}", Right.SEND, with_client(bp))
    async def tell_saga(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await add_event_over_http(sagas, client, request)

    @add_route(bp, services, "POST", "sagas/{key}/cancel", Right.SEND, with_client(bp))
    async def cancel_saga(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await cancel_over_http(sagas, client, request)

    @add_route(bp, services, "GET", "sagas", Right.LOOK, with_client(bp))
    async def list_sagas(request: func.HttpRequest, client: Any) -> func.HttpResponse:
        return await list_over_http(client, request)

    return bp


async def start_saga_over_http(
    sagas: Sagas, client: df.DurableFunctionsClient, request: func.HttpRequest
) -> func.HttpResponse:
    """202 when the saga has started, now or before; `type` in the query is its kind.

    Starting it again changes nothing; other content under the same key is a 409.
    """
    try:
        key = read_name(request, SAGA, frozenset({"type"}))
        with sagas.worker.span(
            "start saga", read_traceparent(request.headers.get(TRACE_HEADER)), saga=key
        ):
            response = await sagas.start(key, request.params.get("type", ""), request.get_body())
        if not response.is_accepted:
            return respond_refused(response)
        found = await sagas.load(key)
    except LockstepError as error:
        return respond_problem(error)
    if isinstance(found, StartedSaga):
        await try_now(key, ensure_instance(client, found, 0.0))
    state = SagaState.RUNNING if isinstance(found, StartedSaga) else found
    document = {"key": key, "state": state, "links": link_saga(key)}
    return respond(document, 202, {"Location": f"/api/{link_saga(key)['self']}"})


async def describe_saga_over_http(sagas: Sagas, request: func.HttpRequest) -> func.HttpResponse:
    """Answer what the journals of a saga and of its steps say; 404 for an unknown saga."""
    try:
        key = read_name(request, SAGA)
        record = await sagas.read_record(key)
        if record is None:
            return respond({"key": key, "state": None}, 404)
        outcomes = await sagas.read_outcomes(key, record)
    except LockstepError as error:
        return respond_problem(error)
    return respond(describe_saga(key, record, outcomes))


async def add_event_over_http(
    sagas: Sagas, client: df.DurableFunctionsClient, request: func.HttpRequest
) -> func.HttpResponse:
    """202 when the event is kept, even if the saga starts only later; 409 when it is too late.

    The body is not read.
    """
    try:
        key = read_name(request, SAGA)
        event = request.route_params["event"]
        if event == CANCELLED or not re.fullmatch(NAME_PATTERN, event):
            raise InvalidMessage(f"{event!r} is no event that can be raised")
        response = await sagas.add_event(key, event)
    except LockstepError as error:
        return respond_problem(error)
    return await respond_changed(client, key, response)


async def cancel_over_http(
    sagas: Sagas, client: df.DurableFunctionsClient, request: func.HttpRequest
) -> func.HttpResponse:
    """202 when the saga will turn back; 409 when there is no way back. The body is not read."""
    try:
        key = read_name(request, SAGA)
        response = await sagas.cancel(key)
    except LockstepError as error:
        return respond_problem(error)
    return await respond_changed(client, key, response)


async def list_over_http(
    client: df.DurableFunctionsClient, request: func.HttpRequest
) -> func.HttpResponse:
    """The sagas that this region's task hub knows, all or those in the `state` asked for."""
    try:
        require_request(request, frozenset({"state"}))
        wanted = read_state(request.params)
    except LockstepError as error:
        return respond_problem(error)
    return respond({"sagas": await find_sagas(client, wanted)})


async def find_sagas(
    client: df.DurableFunctionsClient, wanted: SagaState | None
) -> list[dict[str, Any]]:
    """The sagas that this region's task hub knows, by key; at most LISTED_MAX."""
    query = OrchestrationQuery(
        runtime_status=runtime_statuses(wanted),
        max_instance_count=LISTED_MAX,
        fetch_inputs_and_outputs=True,
    )
    found = [describe_instance(one) for one in await client.get_all_orchestration_states(query)]
    sagas = [one for one in found if one and wanted in (None, one["state"])]
    return sorted(sagas, key=lambda saga: str(saga["key"]))


async def respond_changed(
    client: df.DurableFunctionsClient, key: str, response: SagaResponse
) -> func.HttpResponse:
    """Notify the saga's instance, or say why the change was refused.

    It is notified in any case: the instance here may have missed a change by the other region.
    """
    await try_now(key, notify_instance(client, key))
    if not response.is_accepted:
        return respond_refused(response)
    return respond({"key": key, "links": link_saga(key)}, 202)


def respond_refused(response: SagaResponse) -> func.HttpResponse:
    """A saga refused a change: problem details, type SagaRefused."""
    name = "SagaRefused"
    details = {"type": name, "status": 409, "detail": response.reason}
    return respond(details | {"help": ERROR_HELP.format(name=name)}, 409)


def describe_saga(key: str, record: SagaRecord, outcomes: Mapping[str, str]) -> dict[str, Any]:
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
        "steps": [describe_step(step, outcomes.get(step.name)) for step in steps],
        "waits": [{"name": wait.name, "decision": wait.decision(record.events)} for wait in waits],
        "links": link_saga(key),
    }


def describe_step(step: Step, outcome: str | None) -> dict[str, Any]:
    return {"name": step.name, "outcome": outcome, "session": path_to(SESSION, step.do.session)}


def link_saga(key: str) -> dict[str, str]:
    """Return where a saga is read and changed, below `/api/`."""
    return {
        "self": path_to(SAGA, key),
        "event": path_to(SAGA, key, "/events/{event}"),
        "cancel": path_to(SAGA, key, "/cancel"),
    }


def describe_instance(state: OrchestrationState) -> dict[str, Any] | None:
    """An instance as one line of the list; None for other orchestrations."""
    if state.name != ORCHESTRATOR:
        return None
    key = (state.get_input() or {}).get("saga", {}).get("key")
    return {"key": key, "state": state.get_custom_status(), "instance": state.instance_id}


def read_state(parameters: Mapping[str, str]) -> SagaState | None:
    """The state asked for; raises InvalidMessage for one that there is not."""
    wanted = parameters.get("state")
    try:
        return SagaState(wanted) if wanted else None
    except ValueError:
        known = ", ".join(SagaState)
        raise InvalidMessage(f"no saga is {wanted!r}; known: {known}") from None


def runtime_statuses(state: SagaState | None) -> list[OrchestrationStatus] | None:
    """The runtime statuses that instances of sagas in a state may have; None for any."""
    if state is None:
        return None
    under_way = [OrchestrationStatus.PENDING, OrchestrationStatus.RUNNING]
    # The last turn of an instance says where the saga stands before the instance is over.
    return [OrchestrationStatus.COMPLETED, *under_way] if state.is_end else under_way
