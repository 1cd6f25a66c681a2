"""An app for the host's tests: every trigger once, and what it saw to be asked for over HTTP."""

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)
blueprint = func.Blueprint()
seen: dict[str, list[Any]] = {"messages": [], "documents": [], "timers": [], "manual": []}
poisoned: dict[str, int] = {}


@app.service_bus_queue_trigger(
    arg_name="message",
    queue_name="%SAMPLE_QUEUE%",
    connection="ServiceBus",
    is_sessions_enabled=True,
    cardinality="one",
)
async def receive(message: func.ServiceBusMessage) -> None:
    """Note a message; its body may ask for a pause, a file, or to fail the first times."""
    body = json.loads(message.get_body())
    # In the log, which outlives the process.
    print(f"begins {message.message_id} at delivery {message.delivery_count}")  # noqa: T201
    note = {
        "body": body,
        "message_id": message.message_id,
        "session_id": message.session_id,
        "delivery_count": message.delivery_count,
        "sequence_number": message.sequence_number,
        "lock_token": message.lock_token,
        "enqueued": str(message.enqueued_time_utc),
        "properties": message.application_properties,
        "metadata": sorted(message.metadata or {}),
        "began": time.monotonic(),
    }
    if message.delivery_count == 1 or not body.get("once"):
        await asyncio.sleep(body.get("pause", 0))
        # What another process writes can only be asked for.
        while "until" in body and not Path(body["until"]).exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)
    seen["messages"].append({**note, "ended": time.monotonic()})
    if message.delivery_count <= body.get("failures", 0):
        raise RuntimeError(f"asked to fail at delivery {message.delivery_count}")


@app.cosmos_db_trigger(
    arg_name="documents",
    connection="Cosmos",
    database_name="sample",
    container_name="things",
    lease_container_name="leases",
    lease_container_prefix="%SAMPLE_PREFIX%",
    create_lease_container_if_not_exists=True,
    feed_poll_delay=100,
    lease_acquire_interval=300,
    lease_renew_interval=500,
    lease_expiration_interval=4000,
    max_items_per_invocation=3,
    start_from_beginning=True,  # type: ignore[arg-type]
)
def follow(documents: func.DocumentList) -> None:
    """Note a batch of changes, and fail if one of them asks for it."""
    seen["documents"].append([dict(document) for document in documents])
    if any(document.get("poison") for document in documents):
        raise RuntimeError("a poisoned document")


@app.timer_trigger(arg_name="timer", schedule="%SAMPLE_SCHEDULE%", run_on_startup=True)
def tick(timer: func.TimerRequest) -> None:
    """Note a tick."""
    seen["timers"].append(timer.to_dict())


@app.generic_trigger(arg_name="text", type="manualTrigger")
def by_hand(text: str) -> None:
    """Note what the admin endpoint handed in; printing must not reach stdout."""
    print("printed by the app")  # noqa: T201 - what the test looks for
    logging.warning("said by the app")
    seen["manual"].append(text)


@app.route("seen/{kind:alpha}", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
def tell(req: func.HttpRequest) -> func.HttpResponse:
    """Tell what was seen so far."""
    return func.HttpResponse(
        json.dumps(seen[req.route_params["kind"]]), mimetype="application/json"
    )


@blueprint.route("items/{id:int}", methods=["POST", "PUT"])
async def item(req: func.HttpRequest) -> func.HttpResponse:
    """Give back the request: method, route, query and body."""
    answer = func.HttpResponse(req.get_body(), status_code=201, mimetype="application/x-echo")
    answer.headers["x-id"] = req.route_params["id"]
    answer.headers["x-method"] = req.method
    answer.headers["x-color"] = req.params.get("color", "none")
    return answer


@blueprint.route("items/special", auth_level=func.AuthLevel.ANONYMOUS)
def special(req: func.HttpRequest) -> str:
    """A literal route beside one with a parameter; a text is a whole response."""
    return "special"


@blueprint.route("broken", auth_level=func.AuthLevel.ANONYMOUS)
def broken(req: func.HttpRequest) -> func.HttpResponse:
    """Fail."""
    raise ValueError("broken on purpose")


@blueprint.route("slow/{seconds}", auth_level=func.AuthLevel.ADMIN)
async def slow(req: func.HttpRequest) -> func.HttpResponse:
    """Take as long as asked."""
    await asyncio.sleep(float(req.route_params["seconds"]))
    return func.HttpResponse(b"\x00\xff")


class Panic(BaseException):
    """Raised by native code, for instance, past every `except Exception`."""


@blueprint.route("end/{how}", auth_level=func.AuthLevel.ANONYMOUS)
async def end(req: func.HttpRequest) -> func.HttpResponse:
    """Do what no function should do."""
    match req.route_params["how"]:
        case "exit":
            sys.exit(3)
        case "abort":
            os._exit(3)
        case "panic":
            raise Panic
        case "cancel":
            raise asyncio.CancelledError
        case how:
            return func.HttpResponse(f"{how} is no way to end", status_code=400)


@blueprint.route("blocked", auth_level=func.AuthLevel.ANONYMOUS)
async def blocked(req: func.HttpRequest) -> str:
    """Block the event loop far longer than the function timeout."""
    time.sleep(120)  # noqa: ASYNC251 - what is wrong with it is the point
    return "never"


@blueprint.route("stuck", auth_level=func.AuthLevel.ANONYMOUS)
def stuck(req: func.HttpRequest) -> str:
    """Block a thread far longer than the function timeout."""
    time.sleep(60)
    return "at last"


@blueprint.route("disabled", auth_level=func.AuthLevel.ANONYMOUS)
def disabled(req: func.HttpRequest) -> str:
    """Switched off by a setting in the tests that ask for it."""
    return "all the same"


app.register_functions(blueprint)
