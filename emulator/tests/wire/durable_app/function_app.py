"""A Durable app for the host's tests: orchestrators, activities, an entity and a client."""

import asyncio
import json
import os
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from durabletask import task
from durabletask.entities import EntityContext, EntityInstanceId
from durabletask.task import OrchestrationContext

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)

stumbled: set[str] = set()

type Steps = Generator[Any, Any, Any]


@app.orchestration_trigger(context_name="context")
def chain(context: OrchestrationContext, text: str) -> Steps:
    """One step after the other."""
    for letter in "abc":
        text = yield context.call_activity("append", input={"text": text, "letter": letter})
    return text


@app.orchestration_trigger(context_name="context")
def fan_out(context: OrchestrationContext, width: int) -> Steps:
    """Many steps at once."""
    squares: list[int] = yield task.when_all(
        [context.call_activity("square", input=number) for number in range(width)]
    )
    return sum(squares)


@app.orchestration_trigger(context_name="context")
def approval(context: OrchestrationContext, _: None) -> Steps:
    """Wait for an event, and for a time after it."""
    approved = yield context.wait_for_external_event("approved")
    yield context.create_timer(timedelta(seconds=0.3))
    return approved


@app.orchestration_trigger(context_name="context")
def parent(context: OrchestrationContext, text: str) -> Steps:
    """Leave the work to another orchestrator."""
    done = yield context.call_sub_orchestrator("chain", input=text)
    return f"parent of {done}"


@app.orchestration_trigger(context_name="context")
def count(context: OrchestrationContext, key: str) -> Steps:
    """Call an entity twice."""
    counter = EntityInstanceId("counter", key)
    yield context.call_entity(counter, "add", 5)
    total = yield context.call_entity(counter, "add", 2)
    return total


@app.orchestration_trigger(context_name="context")
def patient(context: OrchestrationContext, seconds: float) -> Steps:
    """One step that takes its time."""
    return (yield context.call_activity("hold", input=seconds))


@app.orchestration_trigger(context_name="context")
def broken(context: OrchestrationContext, _: None) -> Steps:
    """A step that fails."""
    return (yield context.call_activity("fail"))


@app.orchestration_trigger(context_name="context")
def shaky(context: OrchestrationContext, key: str) -> Steps:
    """A step that fails the first time."""
    return (yield context.call_activity("stumble", input=key))


@app.orchestration_trigger(context_name="context")
def nap(context: OrchestrationContext, seconds: float) -> Steps:
    """Wait for a time; the output is by how much it was exceeded."""
    until = context.current_utc_datetime + timedelta(seconds=seconds)
    yield context.create_timer(until)
    return (context.current_utc_datetime - until).total_seconds()


@app.activity_trigger(input_name="work")
def append(work: Any) -> str:
    """Append a letter."""
    return f"{work['text']}{work['letter']}"


@app.activity_trigger(input_name="number")
async def square(number: int) -> int:
    """Square a number."""
    await asyncio.sleep(0.01)
    return number * number


@app.activity_trigger(input_name="seconds")
async def hold(seconds: float) -> int:
    """Tell on stderr that it began, take some time, and tell which process it was."""
    print(f"holding in {os.getpid()}")  # noqa: T201 - what the test looks for
    await asyncio.sleep(seconds)
    return os.getpid()


@app.activity_trigger(input_name="nothing")
def fail(nothing: None) -> None:
    """Fail."""
    raise ValueError("broken on purpose")


@app.activity_trigger(input_name="key")
def stumble(key: str) -> str:
    """Fail the first time a key is seen."""
    if key not in stumbled:
        stumbled.add(key)
        raise ValueError("stumbled")
    return f"{key} is done"


@app.entity_trigger(context_name="context")
def counter(context: EntityContext, amount: int) -> int:
    """A number that is added to."""
    total = int(context.get_state(int, 0)) + amount
    context.set_state(total)
    return total


@app.route("start/{name}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: Any) -> func.HttpResponse:
    """Start an orchestrator with the body as its input."""
    name = req.route_params["name"]
    body = req.get_body()
    value = json.loads(body) if body else None
    instance = await client.start_new(name, req.params.get("id"), value)
    answer: func.HttpResponse = client.create_check_status_response(req, instance)
    return answer


@app.route("status/{id}", methods=["GET"])
@app.durable_client_input(client_name="client")
async def status(req: func.HttpRequest, client: Any) -> func.HttpResponse:
    """Tell how an instance is."""
    found = await client.get_status(req.route_params["id"])
    return func.HttpResponse(json.dumps(found.to_json()), mimetype="application/json")


@app.route("raise/{id}/{name}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def raise_event(req: func.HttpRequest, client: Any) -> str:
    """Raise an event."""
    name = req.route_params["name"]
    await client.raise_event(req.route_params["id"], name, json.loads(req.get_body()))
    return "raised"


@app.route("terminate/{id}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def terminate(req: func.HttpRequest, client: Any) -> str:
    """Terminate an instance."""
    await client.terminate(req.route_params["id"], "not wanted")
    return "terminated"
