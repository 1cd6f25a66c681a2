"""A host that cannot honour an app ends with status 1, a reason, and nothing on stdout."""

import json
from pathlib import Path
from typing import Any

import pytest

from local.testing.patience import read_to_end
from wire.functions_host_process import start

pytestmark = pytest.mark.wire

DURABLE = """
import azure.durable_functions as df
app = df.DFApp()
@app.orchestration_trigger(context_name="context")
def saga(context):
    return None
"""
SETTLING = """
import azure.functions as func
app = func.FunctionApp()
@app.service_bus_queue_trigger(
    arg_name="m", queue_name="q", connection="ServiceBus", auto_complete_messages=False
)
def settle(m: func.ServiceBusMessage) -> None: ...
"""
MISSING_SETTING = """
import azure.functions as func
app = func.FunctionApp()
@app.timer_trigger(arg_name="t", schedule="%NO_SUCH_SETTING%")
def tick(t: func.TimerRequest) -> None: ...
"""
OUTPUT = """
import azure.functions as func
app = func.FunctionApp()
@app.timer_trigger(arg_name="t", schedule="0 * * * * *")
@app.cosmos_db_output(arg_name="o", database_name="d", container_name="c", connection="Cosmos")
def write(t: func.TimerRequest, o: func.Out[func.Document]) -> None: ...
"""
LEASES_AT_HOME = """
import azure.functions as func
app = func.FunctionApp()
@app.cosmos_db_trigger(
    arg_name="d", database_name="d", container_name="c", connection="Cosmos",
    lease_container_name="c",
)
def follow(d: func.DocumentList) -> None: ...
"""
PLAIN: dict[str, Any] = {"version": "2.0"}


def refusal(tmp_path: Path, app: str, limits: dict[str, Any], **settings: str) -> str:
    """Start an app that must be refused; return what the host logged."""
    (tmp_path / "function_app.py").write_text(app)
    (tmp_path / "host.json").write_text(json.dumps(limits))
    process = start(tmp_path, tmp_path / "host.log", settings)
    stdout, _ = read_to_end(process, seconds=110)
    assert (process.returncode, stdout) == (1, "")
    lines = (tmp_path / "host.log").read_text().splitlines()
    return str(json.loads(lines[-1])["message"])


@pytest.mark.parametrize(
    ("app", "limits", "named"),
    [
        (DURABLE, PLAIN, "function BuiltIn__HttpActivity: activityTrigger"),
        (SETTLING, PLAIN, "function settle: serviceBusTrigger: autoCompleteMessages"),
        (MISSING_SETTING, PLAIN, "function tick: the app setting NO_SUCH_SETTING"),
        (OUTPUT, PLAIN, "function write: cosmosDB"),
        (LEASES_AT_HOME, PLAIN, "function follow: cosmosDBTrigger: the lease container"),
        ("import nothing_like_this", PLAIN, "nothing_like_this"),
        (DURABLE, {**PLAIN, "watchDirectories": []}, "watchDirectories"),
    ],
)
def test_the_reason_names_function_and_cause(
    tmp_path: Path, app: str, limits: dict[str, Any], named: str
) -> None:
    assert named in refusal(tmp_path, app, limits)


@pytest.mark.parametrize("cost", ["fast", "-1", "1e9", "nan"])
def test_a_cost_of_invocations_that_is_no_time_is_refused(tmp_path: Path, cost: str) -> None:
    reason = refusal(tmp_path, OUTPUT, PLAIN, LOCAL_HOST_INVOCATION_MS=cost)

    assert reason == f"the app setting LOCAL_HOST_INVOCATION_MS must be milliseconds, not {cost!r}"
