"""HTTP for sagas: start one, read it, send it an event, cancel it, list those of this region.

Every change is in the saga's journal before the response; Durable Functions is only notified.
"""

import re
from collections.abc import Mapping
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask.client import OrchestrationQuery, OrchestrationState, OrchestrationStatus

from functions.http.requests import SAGA, SESSION, path_to, read_name, require_request
from functions.http.responses import ERROR_HELP, respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes
from functions.triggers.saga_instances import (
    ORCHESTRATOR,
    ensure_instance,
    notify_instance,
    try_now,
)
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage
from shared.domain.saga.plan import CANCELLED, NAME_PATTERN, SagaState, Step
from shared.domain.saga.record import SagaRecord
from shared.domain.saga.walk import StartedSaga
from shared.domain.wire import TRACE_HEADER, read_traceparent
from shared.engine.build import Services
from shared.engine.sagas.sagas import SagaResponse, Sagas

LISTED_MAX = 1_000


routes = HttpRoutes()


@routes.add(
    "start_saga",
    "POST sagas/{key}",
    Right.SEND,
    "Start a saga; to start it again changes nothing.",
    {202: "It has started, now or before.", **REFUSED, 409: "Other content, or refused."},
    {"type": TEXT},
)
async def start_saga_over_http(
    services: Services, request: func.HttpRequest, client: df.DurableFunctionsClient
) -> func.HttpResponse:
    """202 when the saga has started, now or before; `type` in the query is its kind.

    Starting it again changes nothing; other content under the same key is a 409.
    """
    sagas = Sagas(services.consumer)
    key = read_name(request, SAGA, frozenset({"type"}))
    traceparent = read_traceparent(request.headers.get(TRACE_HEADER))
    with sagas.worker.span("start saga", traceparent, saga=key):
        response = await sagas.start(key, request.params.get("type", ""), request.get_body())
    if not response.is_accepted:
        return respond_refused(response)
    found = await sagas.load(key)
    if isinstance(found, StartedSaga):
        await try_now(key, ensure_instance(services, client, found, 0.0))
    state = SagaState.RUNNING if isinstance(found, StartedSaga) else found
    document = {"key": key, "state": state, "links": link_saga(key)}
    return respond(document, 202, {"Location": f"/api/{link_saga(key)['self']}"})


@routes.add(
    "show_saga",
    "GET sagas/{key}",
    Right.LOOK,
    "A saga: where it stands, with its steps and waits.",
    {200: "The saga.", **REFUSED, 404: "There is no such saga."},
)
async def describe_saga_over_http(
    services: Services, request: func.HttpRequest
) -> func.HttpResponse:
    """Answer what the journals of a saga and of its steps say; 404 for an unknown saga."""
    sagas, key = Sagas(services.consumer), read_name(request, SAGA)
    record = await sagas.read_record(key)
    if record is None:
        return respond({"key": key, "state": None}, 404)
    return respond(describe_saga(key, record, await sagas.read_outcomes(key, record)))


@routes.add(
    "tell_saga",
    "POST sagas/{key}/events/{event}",
    Right.SEND,
    "Keep an event for a saga.",
    {202: "It is kept.", **REFUSED, 409: "It comes too late."},
)
async def add_event_over_http(
    services: Services, request: func.HttpRequest, client: df.DurableFunctionsClient
) -> func.HttpResponse:
    """202 when the event is kept, even if the saga starts only later; 409 when it is too late.

    The body is not read.
    """
    key = read_name(request, SAGA)
    event = request.route_params["event"]
    if event == CANCELLED or not re.fullmatch(NAME_PATTERN, event):
        raise InvalidMessage(f"{event!r} is no event that can be raised")
    response = await Sagas(services.consumer).add_event(key, event)
    return await respond_changed(client, key, response)


@routes.add(
    "cancel_saga",
    "POST sagas/{key}/cancel",
    Right.SEND,
    "Make a saga turn back.",
    {202: "It will.", **REFUSED, 409: "There is no way back."},
)
async def cancel_over_http(
    services: Services, request: func.HttpRequest, client: df.DurableFunctionsClient
) -> func.HttpResponse:
    """202 when the saga will turn back; 409 when there is no way back. The body is not read."""
    key = read_name(request, SAGA)
    response = await Sagas(services.consumer).cancel(key)
    return await respond_changed(client, key, response)


@routes.add(
    "list_sagas",
    "GET sagas",
    Right.LOOK,
    "The sagas that this region's task hub knows.",
    {200: "The sagas.", **REFUSED},
    {"state": {"type": "string", "enum": list(SagaState)}},
)
async def list_over_http(
    _: Services, request: func.HttpRequest, client: df.DurableFunctionsClient
) -> func.HttpResponse:
    """The sagas that this region's task hub knows, all or those in the `state` asked for."""
    require_request(request, frozenset({"state"}))
    return respond({"sagas": await find_sagas(client, read_state(request.params))})


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
