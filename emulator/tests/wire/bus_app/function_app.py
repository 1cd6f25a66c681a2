"""An app for the host's tests: the Service Bus triggers beside the one of the sample app."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, List  # noqa: UP035 - see below

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
seen: dict[str, list[Any]] = {
    kind: []
    for kind in (
        *("plain", "news", "heaps", "batches", "dead", "deadnews", "deadbatches"),
        *("tales", "text", "raw", "raws"),
    )
}


def note_of(message: func.ServiceBusMessage) -> dict[str, Any]:
    """What a message was like when it came."""
    return {
        "body": json.loads(message.get_body()),
        "message_id": message.message_id,
        "session_id": message.session_id,
        "correlation_id": message.correlation_id,
        "delivery_count": message.delivery_count,
        "sequence_number": message.sequence_number,
        "properties": message.application_properties,
    }


async def handle(kind: str, messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - what the worker indexes
    """Note messages; the first body may ask for a pause or a file, any to fail the first times."""
    began = time.monotonic()
    notes = [note_of(message) for message in messages]
    await asyncio.sleep(notes[0]["body"].get("pause", 0))
    until = notes[0]["body"].get("until")
    # What another process writes can only be asked for.
    while until and not Path(until).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)
    seen[kind].append({"messages": notes, "began": began, "ended": time.monotonic()})
    wish = "failures" if not kind.startswith("dead") else "failuresWhenDead"
    if any(note["delivery_count"] <= note["body"].get(wish, 0) for note in notes):
        raise RuntimeError("asked to fail")


@app.service_bus_queue_trigger(arg_name="message", queue_name="plain", connection="ServiceBus")
async def plain(message: func.ServiceBusMessage) -> None:
    """A queue without sessions."""
    await handle("plain", [message])


@app.service_bus_topic_trigger(
    arg_name="message", topic_name="news", subscription_name="all", connection="ServiceBus"
)
async def news(message: func.ServiceBusMessage) -> None:
    """A subscription."""
    await handle("news", [message])


@app.service_bus_topic_trigger(
    arg_name="message",
    topic_name="tales",
    subscription_name="told",
    connection="ServiceBus",
    is_sessions_enabled=True,
)
async def tales(message: func.ServiceBusMessage) -> None:
    """A subscription with sessions."""
    await handle("tales", [message])


@app.service_bus_queue_trigger(
    arg_name="messages", queue_name="heaps", connection="ServiceBus", cardinality="many"
)
async def heaps(messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - what the worker indexes
    """A queue without sessions, many at a time."""
    await handle("heaps", messages)


@app.service_bus_queue_trigger(
    arg_name="messages",
    queue_name="batches",
    connection="ServiceBus",
    cardinality="many",
    is_sessions_enabled=True,
)
async def batches(messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - what the worker indexes
    """A queue with sessions, many of one session at a time."""
    await handle("batches", messages)


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="plain/$DeadLetterQueue", connection="ServiceBus"
)
async def dead(message: func.ServiceBusMessage) -> None:
    """What the queue without sessions gave up."""
    await handle("dead", [message])


@app.service_bus_topic_trigger(
    arg_name="message",
    topic_name="news",
    subscription_name="all/$DeadLetterQueue",
    connection="ServiceBus",
)
async def dead_news(message: func.ServiceBusMessage) -> None:
    """What the subscription gave up."""
    await handle("deadnews", [message])


@app.service_bus_queue_trigger(
    arg_name="messages",
    queue_name="batches/$DeadLetterQueue",
    connection="ServiceBus",
    cardinality="many",
)
async def dead_batches(messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - as above
    """What the queue with sessions gave up: its dead letters are not in sessions."""
    await handle("deadbatches", messages)


@app.service_bus_queue_trigger(arg_name="message", queue_name="text", connection="ServiceBus")
async def text(message: func.ServiceBusMessage) -> None:
    """Bodies handed over as text."""
    seen["text"].append([message.get_body().hex()])


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="raw", connection="ServiceBus", data_type=func.DataType.BINARY
)
async def raw(message: func.ServiceBusMessage) -> None:
    """Bodies handed over as bytes."""
    seen["raw"].append([message.get_body().hex()])


@app.service_bus_queue_trigger(
    arg_name="messages",
    queue_name="raws",
    connection="ServiceBus",
    cardinality="many",
    data_type=func.DataType.BINARY,
)
async def raws(messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - as above
    """Bodies handed over as bytes, many at a time."""
    seen["raws"].append([message.get_body().hex() for message in messages])


@app.route("seen/{kind:alpha}", methods=["GET"])
def tell(req: func.HttpRequest) -> func.HttpResponse:
    """Tell what was seen so far."""
    return func.HttpResponse(json.dumps(seen[req.route_params["kind"]]))


@app.route("forget", methods=["POST"])
def forget(req: func.HttpRequest) -> str:
    """Forget what was seen."""
    for notes in seen.values():
        notes.clear()
    return "forgotten"
