"""An app for the host's tests: change feeds under retry policies, and a timer that runs rarely."""

import json
from collections import Counter
from typing import Any

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
seen: dict[str, list[Any]] = {"patient": [], "hasty": [], "timers": []}
runs: Counter[str] = Counter()
FEED: dict[str, Any] = {
    "connection": "Cosmos",
    "database_name": "sample",
    "container_name": "things",
    "create_lease_container_if_not_exists": True,
    "feed_poll_delay": 50,
    "lease_acquire_interval": 200,
    "lease_renew_interval": 200,
    "lease_expiration_interval": 3000,
    "max_items_per_invocation": 1,
    "start_from_beginning": True,
}


def handle(kind: str, documents: func.DocumentList, context: func.Context) -> None:
    """Note a run, and fail as often as the document asks for."""
    document = dict(documents[0])
    run = f"{kind} {document['id']}"
    runs[run] += 1
    retry = context.retry_context
    seen[kind].append([document["id"], retry.retry_count, retry.max_retry_count])
    if runs[run] <= document.get("failures", 0):
        raise RuntimeError("asked to fail")


@app.retry(strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:01")
@app.cosmos_db_trigger(arg_name="documents", lease_container_prefix="patient", **FEED)
def patient(documents: func.DocumentList, context: func.Context) -> None:
    """Try for ever."""
    handle("patient", documents, context)


@app.retry(
    strategy="exponential_backoff",
    max_retry_count="2",
    minimum_interval="00:00:00",
    maximum_interval="00:00:01",
)
@app.cosmos_db_trigger(arg_name="documents", lease_container_prefix="hasty", **FEED)
def hasty(documents: func.DocumentList, context: func.Context) -> None:
    """Try three times in all."""
    handle("hasty", documents, context)


@app.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *")
def yearly(timer: func.TimerRequest) -> None:
    """Note a run."""
    seen["timers"].append(timer.to_dict())


@app.route("seen/{kind:alpha}", methods=["GET"])
def tell(req: func.HttpRequest) -> func.HttpResponse:
    """Tell what was seen so far."""
    return func.HttpResponse(json.dumps(seen[req.route_params["kind"]]))
