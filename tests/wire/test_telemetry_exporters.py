"""Our spans and measures leave the process: to Application Insights, and not for ever."""

import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from werkzeug import Request, Response

from local.cloud import Cloud
from local.testing.patience import run_patiently
from proof.testbed.serving import serving
from tests.docs.pages import ROOT
from tests.programs import run_python

pytestmark = pytest.mark.wire

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
# A process of its own, since OpenTelemetry has one provider in each.
PROGRAM = f"""
from opentelemetry import metrics, trace
from shared.domain.measures import EFFECTS
from shared.settings import Settings
from shared.wiring import listen
import os

telemetry = listen(Settings.read(os.environ))
with telemetry.span("receive", "00-{TRACE}-{PARENT}-01", session="alice"):
    telemetry.add(EFFECTS, 3)
# Nobody marked this one.
with telemetry.span("receive", None, session="bob"):
    pass
trace.get_tracer_provider().force_flush()
metrics.get_meter_provider().force_flush()
"""
# The way of a message over the real adapters, and of one that its session stops at.
PERSON = "ada-byron"
PROCESSING = f"""
import asyncio
import os
from dataclasses import replace
from functions.triggers.receive import receive_message
from opentelemetry import trace
from shared.settings import Settings
from shared.wiring import Adapters, connect, listen
from tests.deliveries import delivery_of
from tests.world import handlers, message

async def run() -> None:
    settings = Settings.read(os.environ)
    adapters = Adapters.of(settings, listen(settings))
    services = connect(settings, handlers, adapters)
    for number, kind in ((1, "account.add"), (0, "account.add"), (2, "account.burn")):
        sent = message(number, session="{PERSON}", kind=kind, group="{PERSON}")
        sent = replace(sent, id=f"{PERSON}-{{number}}")
        await receive_message(services, delivery_of(sent))
    await adapters.close()
    trace.get_tracer_provider().force_flush()

asyncio.run(run())
"""


@pytest.fixture
def component() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The connection string of a component, and what it was sent."""
    items: list[dict[str, Any]] = []

    def receive(request: Request) -> Response:
        body = request.get_data()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        found = json.loads(body)
        items.extend(found)
        count = len(found)
        answer = {"itemsReceived": count, "itemsAccepted": count, "errors": []}
        return Response(json.dumps(answer), mimetype="application/json")

    with serving(receive) as url:
        key = "00000000-0000-0000-0000-000000000001"
        yield f"InstrumentationKey={key};IngestionEndpoint={url}/;LiveEndpoint={url}/", items


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_collector_that_is_silent_or_gone_keeps_no_process_from_ending(is_silent: bool) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if is_silent:
            listening.listen()
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        program = f"""
from shared.adapters.telemetry import connect_telemetry

telemetry = connect_telemetry("east", {endpoint!r}, "", 1.0)
for _ in range(2000):
    with telemetry.span("receive", None):
        pass
"""
        # The SDK alone waits for over half a minute.
        ended = run_patiently([sys.executable, "-c", program], seconds=20, cwd=ROOT)

    assert ended.returncode == 0, ended.stderr


def test_a_span_and_a_measure_arrive_with_the_message_s_trace(
    component: tuple[str, list[dict[str, Any]]],
) -> None:
    connection, items = component
    settings = {
        "LOCKSTEP_REGION": "east",
        "LOCKSTEP_REGIONS": "east",
        "ServiceBus_east": "Endpoint=sb://east/",
        "Cosmos": "AccountEndpoint=https://journal/",
        "APPLICATIONINSIGHTS_CONNECTION_STRING": connection,
        # What the exporter tells its makers of itself.
        "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
        "APPLICATIONINSIGHTS_SDKSTATS_DISABLED": "true",
        "LOCKSTEP_SPAN_RATIO": "0",
        # As in Azure, for the host: the app's SDK would warn of it, and send everything.
        "OTEL_TRACES_SAMPLER": "microsoft.fixed_percentage",
        "OTEL_TRACES_SAMPLER_ARG": "1",
    }

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, **settings},
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )

    assert "sampler" not in ended.stderr
    (request,) = (one for one in items if one["data"]["baseType"] == "RequestData")
    assert request["tags"]["ai.operation.id"] == TRACE
    assert request["tags"]["ai.operation.parentId"] == PARENT
    # What KQL calls substring(hash_sha256("alice"), 0, 16), as docs/telemetry.md says.
    session = request["data"]["baseData"]["properties"]["lockstep.session"]
    assert session == sha256(b"alice").hexdigest()[:16]
    measured = [m for one in items for m in one["data"]["baseData"].get("metrics", [])]
    assert {"name": "lockstep.effects", "value": 3} in [
        {"name": one["name"], "value": one["value"]} for one in measured
    ]


def test_no_span_of_ours_or_of_an_sdk_names_who_a_message_is_about(
    component: tuple[str, list[dict[str, Any]]], cloud: Cloud
) -> None:
    connection, items = component
    settings = {
        "LOCKSTEP_REGION": "east",
        "LOCKSTEP_REGIONS": ",".join(cloud.namespaces),
        "Cosmos": cloud.cosmos.connection_string,
        **{f"ServiceBus_{name}": one.connection_string for name, one in cloud.namespaces.items()},
        "APPLICATIONINSIGHTS_CONNECTION_STRING": connection,
        "LOCKSTEP_SPAN_RATIO": "1",
        "LOCKSTEP_GAP_WAIT_SECONDS": "0",
    }

    run_python(PROCESSING, **settings)

    kinds = [one["data"]["baseType"] for one in items]
    sent = json.dumps(items)
    digest = sha256(PERSON.encode()).hexdigest()[:16]
    assert kinds.count("RequestData") >= 3
    # Requests to Cosmos DB, with the paths of documents, and sends to Service Bus.
    assert kinds.count("RemoteDependencyData") > 20
    assert "/colls/journal/docs" in sent
    assert digest in sent
    assert PERSON not in sent
