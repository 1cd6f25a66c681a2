"""host.json and the app's plan: the limits that order and quiet rest on."""

import ast
from collections.abc import Iterator
from datetime import timedelta

from packaging.version import Version

from functions.triggers.receive import PAUSE_SECONDS_MAX, pause_seconds
from tests.infra.evaluation import Template
from tests.infra.parity import ROOT, load, local_config, local_queues, region_of, section

HOST = load(ROOT / "host.json")
SERVICE_BUS = HOST["extensions"]["serviceBus"]
# "Service Bus quotas": concurrent receive requests on a queue.
RECEIVES_MAX = 5_000


def duration(clock: str) -> timedelta:
    hours, minutes, seconds = map(float, clock.split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def test_a_session_has_several_calls_which_share_its_writes() -> None:
    assert 1 < SERVICE_BUS["maxConcurrentCallsPerSession"] < 100


def test_the_bundle_is_no_older_than_the_first_one_supported() -> None:
    bundle = HOST["extensionBundle"]
    least, below = bundle["version"].strip("[)").split(", ")

    assert bundle["id"] == "Microsoft.Azure.Functions.ExtensionBundle.Preview"
    assert Version("4.45.0") <= Version(least) < Version(below) == Version("5.0.0")


def test_nothing_is_fetched_before_it_can_be_handled() -> None:
    assert SERVICE_BUS["prefetchCount"] == 0


def test_many_sessions_run_at_once() -> None:
    assert SERVICE_BUS["maxConcurrentSessions"] > 1


def test_an_instance_stays_below_the_receives_that_a_queue_takes_at_a_time() -> None:
    receives = SERVICE_BUS["maxConcurrentSessions"] * SERVICE_BUS["maxConcurrentCallsPerSession"]
    assert receives <= RECEIVES_MAX


def test_a_drained_session_is_let_go_within_seconds() -> None:
    assert timedelta(0) < duration(SERVICE_BUS["sessionIdleTimeout"]) <= timedelta(seconds=5)


def test_a_session_lock_is_renewed_for_as_long_as_a_function_may_run() -> None:
    assert duration(SERVICE_BUS["maxAutoLockRenewalDuration"]) >= duration(HOST["functionTimeout"])


def test_a_settled_message_is_completed_by_the_host() -> None:
    assert SERVICE_BUS["autoCompleteMessages"] is True


def test_the_deliveries_of_a_message_outlast_a_day_without_the_journal() -> None:
    for region in ("east", "west"):
        count = local_queues(region, local_config())["lockstep"]["maxDeliveryCount"]
        assert isinstance(count, int)
        pauses = sum(pause_seconds(delivery) for delivery in range(1, count + 1))
        assert timedelta(hours=24) <= timedelta(seconds=pauses) < timedelta(hours=25)


def test_a_pause_leaves_the_function_most_of_its_time() -> None:
    assert timedelta(seconds=2 * PAUSE_SECONDS_MAX) < duration(HOST["functionTimeout"])


def session_triggers() -> Iterator[str]:
    """Names of the functions that the app hangs on a session queue."""
    for path in (ROOT / "functions").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if "is_sessions_enabled=True" in decorators:
                    yield node.name


def warm(template: Template) -> dict[object, object]:
    config = section(template.resource("app"), "properties", "functionAppConfig")
    groups = section(config["scaleAndConcurrency"])["alwaysReady"]
    assert isinstance(groups, list)
    return {section(group)["name"]: section(group)["instanceCount"] for group in groups}


def test_session_trigger_http_and_sagas_are_kept_warm() -> None:
    """Flex Consumption scales each of them on its own."""
    triggers = {f"function:{name}": 1 for name in session_triggers()}

    assert warm(region_of("east")) == triggers | {"http": 1, "durable": 1}


def test_what_is_not_kept_warm_is_not_named() -> None:
    east = region_of("east")
    without = Template(east.bicep, {**east.arguments, "warmHttp": 0, "warmSagas": 0})

    assert warm(without) == {f"function:{name}": 1 for name in session_triggers()}


def test_the_app_runs_python_3_13_on_flex_consumption() -> None:
    template = region_of("west")
    app, plan = template.resource("app"), template.resource("plan")
    config = section(app, "properties", "functionAppConfig")

    assert plan["sku"] == {"name": "FC1", "tier": "FlexConsumption"}
    assert plan["properties"] == {"reserved": True, "zoneRedundant": False}
    assert app["kind"] == "functionapp,linux"
    assert config["runtime"] == {"name": "python", "version": "3.13"}
