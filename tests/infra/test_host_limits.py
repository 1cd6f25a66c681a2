"""host.json and the app's plan: the limits that order and quiet rest on."""

import re
import runpy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from packaging.version import Version

from cli.folders import PREVIEW_BUNDLE, STABLE_BUNDLE
from functions.app import build_app
from functions.handlers import orders
from functions.triggers.receive import PAUSE_SECONDS_MAX, pause_seconds
from shared.engine.build import Services
from shared.engine.operate.watch import WATCHERS_MAX
from shared.settings import CALLS_SETTING, IN_HAND, RECEIVES_MAX, SESSIONS_SETTING
from tests.infra.parity import ROOT, local_config, local_queues
from tests.infra.snapshots import (
    INFRA,
    Resources,
    load,
    of_type,
    only,
    read_snapshot,
    regions_of,
)
from tests.world import World

HOST = load(ROOT / "host.json")
SERVICE_BUS = HOST["extensions"]["serviceBus"]


def duration(clock: str) -> timedelta:
    hours, minutes, seconds = map(float, clock.split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def test_the_host_takes_many_sessions_at_once_and_nothing_before_it_can_be_handled() -> None:
    calls, sessions = (
        SERVICE_BUS[f"maxConcurrent{one}"] for one in ("CallsPerSession", "Sessions")
    )
    idle = duration(SERVICE_BUS["sessionIdleTimeout"])

    assert 1 < calls < 100  # they share the writes of their session
    assert {SESSIONS_SETTING: str(sessions), CALLS_SETTING: str(calls)} == IN_HAND
    assert SERVICE_BUS["prefetchCount"] == 0
    assert SERVICE_BUS["autoCompleteMessages"] is True
    assert timedelta(0) < idle <= timedelta(seconds=5), "a drained session is let go"


def test_no_more_instances_can_be_asked_for_than_a_queue_takes_receives_of() -> None:
    sessions, calls = map(int, IN_HAND.values())
    source = (INFRA / "region.bicep").read_text(encoding="utf-8")
    (most,) = map(int, re.findall(r"@maxValue\((\d+)\)\nparam instancesMax", source))
    by_hook = runpy.run_path(str(INFRA / "hooks.py"))["RECEIVES_MAX"]

    assert most * sessions * calls <= RECEIVES_MAX == by_hook < (most + 1) * sessions * calls
    created = read_snapshot()
    plans = [
        one["properties"]["functionAppConfig"]["scaleAndConcurrency"]["maximumInstanceCount"]
        for one in of_type(created, "Microsoft.Web/sites")
    ]
    told = [
        one["properties"]["LOCKSTEP_INSTANCES_MAX"]
        for one in of_type(created, "Microsoft.Web/sites/config")
        if one["name"].endswith("/appsettings")
    ]
    assert told == [str(plan) for plan in plans] == ["40", "40"]


@pytest.mark.parametrize(
    ("bundle", "id_", "first"),
    [
        (HOST["extensionBundle"], PREVIEW_BUNDLE, "4.45.0"),
        (STABLE_BUNDLE, PREVIEW_BUNDLE.removesuffix(".Preview"), "4.38.0"),
    ],
)
def test_a_bundle_is_one_version_and_no_older_than_the_first_one_supported(
    bundle: dict[str, str], id_: str, first: str
) -> None:
    least, below = map(Version, bundle["version"].strip("[)").split(", "))

    assert bundle["id"] == id_
    assert Version(first) <= least
    assert below.release == (*least.release[:2], least.micro + 1)


def test_the_host_says_nothing_of_each_message() -> None:
    """What it says at its own level is 18 records a message, paid for by the gigabyte."""
    levels = HOST["logging"]["logLevel"]

    per_message = ("Function", "Azure.Core", "Azure.Messaging.ServiceBus")
    assert {levels[one] for one in per_message} == {"Warning"}
    assert levels["Microsoft.Azure.WebJobs.ServiceBus"] == "Warning"


def test_a_session_lock_is_renewed_for_as_long_as_a_function_may_run() -> None:
    assert duration(SERVICE_BUS["maxAutoLockRenewalDuration"]) >= duration(HOST["functionTimeout"])


def test_the_deliveries_of_a_message_outlast_a_day_without_the_journal() -> None:
    for region in ("east", "west"):
        count = local_queues(region, local_config())["lockstep"]["maxDeliveryCount"]
        assert isinstance(count, int)
        pauses = sum(pause_seconds(delivery) for delivery in range(1, count + 1))
        assert timedelta(hours=24) <= timedelta(seconds=pauses) < timedelta(hours=25)


def test_a_pause_leaves_the_function_most_of_its_time() -> None:
    assert timedelta(seconds=2 * PAUSE_SECONDS_MAX) < duration(HOST["functionTimeout"])


def session_triggers() -> set[str]:
    """Names of the functions that the app hangs on a session queue."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "functions").rglob("*.py")]
    trigger = re.compile(r"is_sessions_enabled=True.*?def (\w+)", re.DOTALL)
    return {name for source in sources for name in trigger.findall(source)}


def warm(resources: Resources, region: str) -> dict[str, int]:
    app = only(resources, "Microsoft.Web/sites", region)["properties"]
    groups = app["functionAppConfig"]["scaleAndConcurrency"]["alwaysReady"]
    return {group["name"]: group["instanceCount"] for group in groups}


def feeds(ledgers: Services | None = None) -> dict[str, int]:
    """The groups of the functions that follow a change feed."""
    app = build_app(replace(World(handlers=orders.handlers).east, external_ledgers=ledgers))
    found: list[Any] = app.get_functions()
    kinds = {one.get_function_name(): one.get_trigger().type for one in found}
    return {f"function:{name}": 1 for name, kind in kinds.items() if kind == "cosmosDBTrigger"}


# Where nothing works but the sweep, something is found and told all the same.
ALWAYS = {"function:sweep": 1}


def test_session_trigger_http_and_sagas_are_kept_warm(resources: Resources) -> None:
    """Flex Consumption scales each of them on its own."""
    triggers = {f"function:{name}": 1 for name in session_triggers()}

    # An app without sagas has none to keep warm.
    sagas = {} if resources.name == "other" else {"durable": 1}
    for region in regions_of(resources):
        assert warm(resources, region) == triggers | {"http": 1} | sagas | ALWAYS


@pytest.mark.parametrize("ledgers", [False, True])
def test_each_feed_that_there_is_can_be_kept_warm(ledgers: bool) -> None:
    """By default none is, so that no snapshot names it."""
    source = (INFRA / "region.bicep").read_text(encoding="utf-8")
    named = dict(re.findall(r"name: '(function:\w+)', instanceCount: (.*[wW]armFeeds) ", source))
    only_with = {name for name, count in named.items() if "empty(ledgersName) ? 0" in count}
    of_sagas = {name for name, count in named.items() if "durableBackend == 'none' ? 0" in count}

    assert of_sagas == {"function:begin_sagas"}

    assert feeds(World().east if ledgers else None) == {
        name: 1 for name in named if ledgers or name not in only_with
    }


def test_watchers_that_wait_leave_half_of_the_calls_of_an_instance_to_others() -> None:
    config = only(read_snapshot(), "Microsoft.Web/sites", "east")["properties"]["functionAppConfig"]
    calls = config["scaleAndConcurrency"]["triggers"]["http"]["perInstanceConcurrency"]

    assert calls / 2 >= WATCHERS_MAX


def test_the_app_runs_python_3_13_on_flex_consumption(resources: Resources) -> None:
    for plan in of_type(resources, "Microsoft.Web/serverfarms"):
        assert plan["sku"] == {"name": "FC1", "tier": "FlexConsumption"}
        assert plan["properties"]["reserved"] is True
    for app in of_type(resources, "Microsoft.Web/sites"):
        assert app["kind"] == "functionapp,linux"
        runtime = app["properties"]["functionAppConfig"]["runtime"]
        assert runtime == {"name": "python", "version": "3.13"}
