"""HTTP for sagas: start one, read it, send it an event, cancel it, list them.

Every change is in the saga's journal before the response; Durable Functions is only notified.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from pydantic import BaseModel, ConfigDict

from functions.http.descriptions import format_moment, format_seconds
from functions.http.operate import LIMIT, LOOKED_MAX, encode_place, read_limit, read_place
from functions.http.requests import (
    SAGA,
    SESSION,
    path_to,
    read_decision,
    read_name,
    require_request,
)
from functions.http.responses import ERROR_HELP, respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes, principal_of
from functions.triggers.saga_instances import ensure_instance, notify_instance, try_now
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage
from shared.domain.overview import SagaCount, is_overdue
from shared.domain.saga.plan import CANCELLED, NAME_PATTERN, SagaState, Wait, traceparent_of
from shared.domain.saga.record import ListedSaga, SagaRecord, foresee
from shared.domain.saga.walk import StartedSaga
from shared.domain.spending import count_spending
from shared.domain.standstill import ListPlace
from shared.domain.wire import TRACE_HEADER, read_traceparent
from shared.engine.build import Services
from shared.engine.sagas.sagas import ENDED, RecordedSaga, SagaResponse, Sagas, StepAct

# What journals say: one that compensates is `running` there, until it has ended.
RECORDED_STATES = tuple(state for state in SagaState if state is not SagaState.COMPENSATING)
# What sagas are asked for by: their state, or what is counted of those that are running.
LISTED_STATES = tuple(dict.fromkeys([*map(str, RECORDED_STATES), *map(str, SagaCount)]))
LIST_PARAMETERS = frozenset({"state", "kind", "prefix", "order", "after", "limit"})


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
    key = read_name(request, SAGA, frozenset({"type"}))
    traceparent = read_traceparent(request.headers.get(TRACE_HEADER))
    response, state = await start_with_instance(
        services, client, key, request.params.get("type", ""), request.get_body(), traceparent
    )
    if not response.is_accepted:
        return respond(describe_refused_change(response), 409)
    document = {"key": key, "state": state, "links": link_saga(key)}
    return respond(document, 202, {"Location": f"/api/{link_saga(key)['self']}"})


async def start_with_instance(
    services: Services,
    client: df.DurableFunctionsClient,
    key: str,
    kind: str,
    body: bytes,
    traceparent: str | None = None,
) -> tuple[SagaResponse, SagaState | None]:
    """Start a saga and its instance here; the state it is in. Raises as `Sagas.start` does."""
    sagas = Sagas(services.consumer)
    with sagas.worker.span("start saga", traceparent, saga=key):
        response = await sagas.start(key, kind, body)
    if not response.is_accepted:
        return response, None
    found = await sagas.load(key)
    if not isinstance(found, StartedSaga):
        return response, found
    await try_now(key, ensure_instance(services, client, found, 0.0))
    return response, SagaState.RUNNING


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
    return respond(describe_saga(key, record, await sagas.read_history(key, record)))


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

    Of a body `{"who": ..., "why": ...}` is recorded who decided it and why; no other is read.
    """
    key, decided = read_name(request, SAGA), read_person(services, request)
    response = await send_event(services, client, key, request.route_params["event"], **decided)
    return respond_changed(key, response)


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
    """202 when the saga will turn back; 409 when there is no way back.

    Of a body `{"who": ..., "why": ...}` is recorded who decided it and why; no other is read.
    """
    key, decided = read_name(request, SAGA), read_person(services, request)
    response = await turn_back(services, client, key, **decided)
    return respond_changed(key, response)


@routes.add(
    "list_sagas",
    "GET sagas",
    Right.LOOK,
    "Sagas by key or last change, page by page, as their journals have them.",
    {200: "A page, where the next one begins, its request units.", **REFUSED},
    {
        "state": {"type": "string", "enum": list(LISTED_STATES)},
        "kind": TEXT,
        "prefix": TEXT,
        "order": {"enum": ["key", "changed"]},
        "limit": LIMIT,
        "after": TEXT,
    },
)
async def list_over_http(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Sagas by key, page by page, the same in every region: what their journals say.

    `state` and `kind` ask for those of one, `prefix` for those whose keys begin with it, `limit`
    for so many at once, and `after` goes on where a page ended. With `order=changed` those that
    changed last come first. A page costs one search, and no journal is read.
    """
    require_request(request, LIST_PARAMETERS)
    with count_spending() as spending:
        listed, after = await find_sagas(services, request.params)
    units = round(spending.request_units, 2)
    return respond({"sagas": listed, "after": after, "request_units": units})


async def find_sagas(
    services: Services, parameters: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str | None]:
    """A page of sagas, and where the next one begins; raises InvalidMessage or Unavailable.

    What no index tells is looked for among LOOKED_MAX sagas, so a page may be short, or empty,
    without being the last.
    """
    state, kind, limit = read_state(parameters), parameters.get("kind", ""), read_limit(parameters)
    prefix, after = (parameters.get(name, "") for name in ("prefix", "after"))
    order = parameters.get("order", "")
    if order not in ("", "key", "changed"):
        raise InvalidMessage("order is key or changed")
    is_by_change = order == "changed"
    is_by_due = state == SagaCount.OVERDUE and not is_by_change
    now, late_seconds = services.worker.clock.today(), services.worker.policy.standstill_seconds

    def is_wanted(saga: ListedSaga) -> bool:
        is_of_state = {
            "": True,
            SagaCount.WAITING: saga.waits is not None,
            SagaCount.OVERDUE: is_overdue(saga.due, now, late_seconds),
        }.get(state, saga.state == state)
        return is_of_state and kind in ("", saga.kind)

    def place_of(saga: ListedSaga) -> str:
        if not (is_by_change or is_by_due):
            return saga.key
        at = saga.changed if is_by_change else saga.due
        return encode_place(ListPlace(at or 0.0, saga.key))

    is_searched = kind or state == SagaCount.WAITING or (is_by_change and state)
    most = LOOKED_MAX if is_searched else limit
    # One more is asked for: whether there is a next page is known without another search.
    if is_by_change or is_by_due:
        if prefix:
            raise InvalidMessage("sagas by last change, or overdue, are not asked for by prefix")
        until = now - late_seconds if is_by_due else None
        place = read_place(after or None)
        looked = await services.journal.sagas_by_time(until, place, most + 1, by_due=is_by_due)
    else:
        recorded = SagaState.RUNNING if state in [*SagaCount] else state
        found = SagaState(recorded) if recorded else None
        looked = await services.journal.sagas(found, prefix, after, limit=most + 1)
    wanted = [one for one in looked[:most] if is_wanted(one)]
    listed = [
        {
            "key": one.key,
            "kind": one.kind,
            "state": one.state,
            "waits": one.waits,
            "started": one.started,
            "changed": format_seconds(one.changed),
            "due": format_moment(one.due),
            "overdue": is_overdue(one.due, now, late_seconds),
            "links": {"self": path_to(SAGA, one.key)},
        }
        for one in wanted[:limit]
    ]
    if len(wanted) > limit:
        return listed, place_of(wanted[limit - 1])
    return listed, place_of(looked[most - 1]) if len(looked) > most else None


class DecidedBody(BaseModel):
    """The person who decides about a saga, and why; no other field is looked at."""

    model_config = ConfigDict(strict=True)

    who: str | None = None
    why: str


def read_person(services: Services, request: func.HttpRequest) -> dict[str, Any]:
    """The person who decided and why, if the body says so; InvalidBody for one of the two alone."""
    try:
        given = json.loads(request.get_body())
    except (ValueError, RecursionError):
        return {}
    if not isinstance(given, dict) or not given.keys() & DecidedBody.model_fields.keys():
        return {}
    return read_decision(DecidedBody, request.get_body(), principal_of(services, request))


async def send_event(
    services: Services, client: df.DurableFunctionsClient, key: str, event: str, **decided: str
) -> SagaResponse:
    """Keep an event for a saga, and notify its instance; raises as `Sagas.add_event` does.

    It is notified in any case: the instance here may have missed a change by the other region.
    """
    if event == CANCELLED or not re.fullmatch(NAME_PATTERN, event):
        raise InvalidMessage(f"{event!r} is no event that can be raised")
    response = await Sagas(services.consumer).add_event(key, event, **decided)
    await try_now(key, notify_instance(client, key))
    return response


async def turn_back(
    services: Services, client: df.DurableFunctionsClient, key: str, **decided: str
) -> SagaResponse:
    """Make a saga turn back, and notify its instance; raises as `Sagas.cancel` does."""
    response = await Sagas(services.consumer).cancel(key, **decided)
    await try_now(key, notify_instance(client, key))
    return response


def respond_changed(key: str, response: SagaResponse) -> func.HttpResponse:
    if not response.is_accepted:
        return respond(describe_refused_change(response), 409)
    return respond({"key": key, "links": link_saga(key)}, 202)


def describe_refused_change(response: SagaResponse) -> dict[str, Any]:
    """A saga refused a change: problem details, type SagaRefused."""
    name = "SagaRefused"
    details = {"type": name, "status": 409, "detail": response.reason}
    return details | {"help": ERROR_HELP.format(name=name)}


def describe_saga(key: str, record: SagaRecord, history: RecordedSaga) -> dict[str, Any]:
    """A saga as JSON: where it stands, and every step with its outcome and its entries."""
    steps = record.plan.steps if record.plan else ()
    waits = record.plan.waits if record.plan else ()
    _, due = foresee(record)
    return {
        "key": key,
        "kind": record.kind,
        "state": record.state,
        "started": record.at,
        "ended": format_moment(history.moments.get(ENDED)),
        "due": format_moment(due),
        "turns_back": history.turns_back,
        "reason": record.reason,
        "events": list(record.events),
        "steps": [
            {
                "name": step.name,
                "outcome": history.outcome(record, step.name),
                "session": path_to(SESSION, step.do.session),
                "done": describe_act(history.done.get(step.name)),
                "undone": describe_act(history.undone.get(step.name)),
            }
            for step in steps
        ],
        "waits": [describe_wait(wait, wait.decision(record.events), history) for wait in waits],
        "trace": traceparent_of(key).split("-")[1],
        "links": link_saga(key),
    }


def describe_act(act: StepAct | None) -> dict[str, Any] | None:
    """The outcome of a command, with the position and time of its entry; None for nothing yet."""
    if act is None:
        return None
    return {"outcome": act.outcome, "position": act.position, "at": format_moment(act.at)}


def describe_wait(wait: Wait, decision: str | None, history: RecordedSaga) -> dict[str, Any]:
    return {
        "name": wait.name,
        "decision": decision,
        "at": format_moment(history.moments.get(decision or "")),
        "onward": list(wait.onward),
        "back": list(wait.back),
    }


def link_saga(key: str) -> dict[str, str]:
    """Return where a saga is read and changed, below `/api/`."""
    return {
        "self": path_to(SAGA, key),
        "event": path_to(SAGA, key, "/events/{event}"),
        "cancel": path_to(SAGA, key, "/cancel"),
    }


def read_state(parameters: Mapping[str, str]) -> str:
    """The state asked for, or none; raises InvalidMessage for one that is not listed."""
    wanted = parameters.get("state", "")
    if wanted not in ("", *LISTED_STATES):
        known = ", ".join(LISTED_STATES)
        raise InvalidMessage(f"no journal of a saga says {wanted!r}; known: {known}")
    return wanted
