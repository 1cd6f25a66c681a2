"""Errors that these files once had, planted in what a deployment creates: each is found."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.infra import (
    test_access,
    test_alerts,
    test_app_settings,
    test_bicep_files,
    test_host_limits,
    test_journal,
    test_queues,
    test_switches,
    test_what_azure_refuses,
)
from tests.infra.snapshots import Resources, read_snapshot

type Change = Callable[[Any], object]


def let(path: str, value: object) -> Change:
    """Set one property of a resource, by the names and positions on the way to it."""

    def change(resource: Any) -> None:
        *way, name = (int(one) if one.isdigit() else one for one in path.split("/"))
        for step in way:
            resource = resource[step]
        assert resource[name] != value
        resource[name] = value

    return change


def groups(app: Any) -> Any:
    return app["properties"]["functionAppConfig"]["scaleAndConcurrency"]["alwaysReady"]


RULE = "Microsoft.Insights/metricAlerts"
CONDITION = "properties/criteria/allOf/0"
ACCOUNT = "Microsoft.DocumentDB/databaseAccounts"
ERRORS: dict[str, tuple[str, str, Change, Callable[[Resources], None]]] = {
    "nothing looks while a region is idle": (
        "Microsoft.Web/sites",
        "func-lockstep-west",
        lambda app: groups(app).remove({"name": "function:sweep", "instanceCount": 1}),
        test_host_limits.test_session_trigger_http_and_sagas_are_kept_warm,
    ),
    "the host is told a sampler that it does not know": (
        "Microsoft.Web/sites/config",
        "func-lockstep-east",
        let("properties/OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        test_app_settings.test_spans_are_sampled_on_either_side_and_a_workspace_has_a_cap,
    ),
    "telemetry has no cap": (
        "Microsoft.OperationalInsights/workspaces",
        "log-lockstep-west",
        let("properties/workspaceCapping", {"dailyQuotaGb": -1}),
        test_app_settings.test_spans_are_sampled_on_either_side_and_a_workspace_has_a_cap,
    ),
    "a region is asked for its health from its own location": (
        "Microsoft.Insights/webtests",
        "health-lockstep-west-by-east",
        let("location", "westus3"),
        test_alerts.test_a_region_is_watched_by_every_other_one,
    ),
    "what tells of a region mails by what lies in it": (
        RULE,
        "alert-lockstep-east-down-west",
        lambda rule: rule["properties"].update(actions=[{"actionGroupId": "ag-lockstep-west"}]),
        test_alerts.test_a_region_is_watched_by_every_other_one,
    ),
    "dead letters of outputs are seen by nobody": (
        RULE,
        "alert-lockstep-east-count-3",
        let(f"{CONDITION}/dimensions/0/values", ["lockstep", "lockstep-errors"]),
        test_alerts.test_each_queue_and_its_dead_letters_are_watched,
    ),
    "the second report mails nobody": (
        RULE,
        "alert-lockstep-west-count-2",
        let("properties/autoMitigate", True),
        test_alerts.test_every_new_report_is_told_and_dead_letters_until_they_are_gone,
    ),
    "requests that the journal refuses are seen by nobody": (
        RULE,
        "alert-lockstep-east-count-9",
        let(f"{CONDITION}/metricName", "DataUsage"),
        test_alerts.test_the_journal_and_azure_are_told_of_by_the_first_region,
    ),
    "an alarm is about an instance too many": (
        RULE,
        "alert-lockstep-east-count-8",
        let(f"{CONDITION}/threshold", 40),
        test_alerts.test_an_app_at_its_limit_is_told_of,
    ),
    "an alert asks for a metric that nobody writes": (
        "Microsoft.Insights/scheduledQueryRules",
        "alert-lockstep-east-0",
        let(f"{CONDITION}/query", 'AppMetrics | where Name == "lockstep.region.gone"'),
        test_alerts.test_alerts_ask_for_metrics_that_exist,
    ),
    "an alert is off": (
        "Microsoft.Insights/scheduledQueryRules",
        "alert-lockstep-west-1",
        let("properties/enabled", False),
        test_alerts.test_every_rule_is_on_and_mails_each_address,
    ),
    "leases are throttled at what all regions share": (
        f"{ACCOUNT}/sqlDatabases/containers",
        "leases",
        let("properties/options", {"autoscaleSettings": {"maxThroughput": 400}}),
        test_journal.test_what_nobody_uses_of_a_container_is_scaled_away,
    ),
    "another primary moves the account": (
        ACCOUNT,
        "",
        let("location", "westus3"),
        test_what_azure_refuses.test_no_order_of_locations_moves_the_account_itself,
    ),
    "a fail-over forgets": (
        ACCOUNT,
        "",
        let("properties/consistencyPolicy", {"defaultConsistencyLevel": "BoundedStaleness"}),
        test_journal.test_the_account_is_strong_with_a_single_write_region_that_fails_over,
    ),
    "two locations stop all writes when one is lost": (
        ACCOUNT,
        "",
        lambda account: account["properties"]["locations"].pop(),
        test_journal.test_the_account_lives_in_three_regions_in_order_and_in_all_that_process,
    ),
    "the journal is deleted with all else": (
        "Microsoft.Authorization/locks",
        "",
        let("properties/level", "ReadOnly"),
        test_journal.test_the_journal_is_backed_up_all_the_time_and_locked_unless_that_is_switched_off,
    ),
    "a key opens the storage": (
        "Microsoft.Storage/storageAccounts",
        "steast",
        let("properties/allowSharedKeyAccess", True),
        test_access.test_no_key_opens_anything_and_nothing_is_below_tls_1_2,
    ),
    "an app may more than it needs": (
        "Microsoft.Authorization/roleAssignments",
        "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
        lambda given: given["properties"].update(
            roleDefinitionId=given["properties"]["roleDefinitionId"].replace(
                "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0", "090c5cfd-751d-490a-894a-3ce6f1109419"
            )
        ),
        test_access.test_an_identity_holds_these_roles_and_no_other,
    ),
    "regions share a storage account": (
        "Microsoft.Web/sites/config",
        "func-lockstep-west",
        lambda config: config["properties"].update(
            {
                name: value.replace("stwest", "steast")
                for name, value in config["properties"].items()
                if name.startswith("AzureWebJobsStorage__")
            }
        ),
        test_switches.test_each_region_has_a_storage_account_of_its_own_over_zones,
    ),
    "a queue takes too few deliveries": (
        "Microsoft.ServiceBus/namespaces/queues",
        "/lockstep",
        let("properties/maxDeliveryCount", 10),
        test_queues.test_queues_in_azure_equal_the_local_queues_and_take_what_comes_for_long,
    ),
    "a setting of the code is missing": (
        "Microsoft.Web/sites/config",
        "func-lockstep-west",
        lambda config: config["properties"].pop("LOCKSTEP_SPAN_RATIO"),
        test_app_settings.test_settings_in_azure_are_the_settings_the_code_declares,
    ),
    "the namespace is open beside a private network": (
        "Microsoft.ServiceBus/namespaces",
        "lockstep-east",
        let("properties/publicNetworkAccess", "SecuredByPerimeter"),
        test_switches.test_queues_journal_and_storage_are_open_to_networks_unless_there_is_a_private_one,
    ),
    "a resource is of a preview": (
        "Microsoft.Web/sites",
        "func-lockstep-east",
        let("apiVersion", "2026-01-01-preview"),
        test_bicep_files.test_no_resource_is_of_a_preview,
    ),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_that_is_planted_is_found(error: str) -> None:
    kind, name, change, find = ERRORS[error]
    planted = deepcopy(read_snapshot())
    find(planted)

    (resource, *_) = (one for one in planted if one["type"] == kind and name in one["name"])
    change(resource)

    with pytest.raises((AssertionError, ValueError)):
        find(planted)
