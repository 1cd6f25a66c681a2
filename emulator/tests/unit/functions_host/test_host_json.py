"""host.json is read whole or refused with the name of what is not honoured."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from local.functions_host.config.host_json import (
    DurableOptions,
    HostJson,
    ServiceBusOptions,
    SingletonOptions,
    load,
    parse,
)
from local.functions_host.config.settings import Unsupported


def test_an_empty_file_gives_the_defaults_of_the_real_host() -> None:
    assert parse({"version": "2.0"}) == HostJson(
        function_timeout_seconds=1800.0,
        route_prefix="api",
        service_bus=ServiceBusOptions(0, 300.0, 8, 60.0),
        log_levels={},
    )


def test_every_honoured_limit_is_read() -> None:
    host = parse(
        {
            "version": "2.0",
            "telemetryMode": "OpenTelemetry",
            "functionTimeout": "00:05:00",
            "singleton": {
                "listenerLockPeriod": "00:00:15",
                "listenerLockRecoveryPollingInterval": "00:02:00",
            },
            "logging": {
                "logLevel": {
                    "default": "Warning",
                    "Function.receive": "Debug",
                    "Azure.Messaging.ServiceBus": "Error",
                }
            },
            "extensions": {
                "http": {"routePrefix": "/v1/"},
                "serviceBus": {
                    "prefetchCount": 2,
                    "autoCompleteMessages": True,
                    "maxAutoLockRenewalDuration": "-00:00:00.0010000",
                    "maxConcurrentSessions": 32,
                    "maxConcurrentCallsPerSession": 16,
                    "sessionIdleTimeout": "00:00:01.5",
                    "maxConcurrentCalls": 7,
                    "minMessageBatchSize": 2,
                    "maxMessageBatchSize": 20,
                    "maxBatchWaitTime": "00:00:05",
                },
                "durableTask": {
                    "hubName": "hub",
                    "maxConcurrentOrchestratorFunctions": 3,
                    "maxConcurrentActivityFunctions": 4,
                    "maxConcurrentEntityFunctions": 5,
                    "storageProvider": {"type": "azureManaged"},
                },
            },
            "extensionBundle": {"id": "any", "version": "[4.*, 5.0.0)"},
        }
    )

    assert host == HostJson(
        function_timeout_seconds=300.0,
        route_prefix="v1",
        service_bus=ServiceBusOptions(2, math.inf, 32, 1.5, 7, 2, 20, 5.0, 16),
        durable=DurableOptions("hub", 0.0, 3, 4, 5),
        singleton=SingletonOptions(15.0, 120.0),
        log_levels={
            "default": logging.WARNING,
            "Function.receive": logging.DEBUG,
            "Azure.Messaging.ServiceBus": logging.ERROR,
        },
    )


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"concurrency": {}}, "concurrency"),
        ({"version": "1.0"}, "version"),
        ({"singleton": {"lockPeriod": "00:00:15"}}, "lockPeriod"),
        ({"singleton": {"listenerLockPeriod": "00:00:05"}}, "listenerLockPeriod"),
        ({"singleton": {"listenerLockPeriod": "00:02:00"}}, "listenerLockPeriod"),
        (
            {"singleton": {"listenerLockRecoveryPollingInterval": "-00:00:01"}},
            "listenerLockRecoveryPollingInterval",
        ),
        ({"functionTimeout": "5 minutes"}, "functionTimeout"),
        (
            {"extensions": {"durableTask": {"storageProvider": {"maxQueuePollingInterval": "5"}}}},
            "maxQueuePollingInterval",
        ),
        ({"telemetryMode": "Smoke"}, "telemetryMode"),
        ({"logging": {"fileLoggingMode": "always"}}, "fileLoggingMode"),
        ({"logging": {"logLevel": {"Functions": "Error"}}}, "Functions"),
        ({"logging": {"logLevel": {"default": "Loud"}}}, "Loud"),
        ({"extensions": {"queues": {}}}, "queues"),
        ({"extensions": {"http": {"routePrefix": 1}}}, "routePrefix"),
        ({"extensions": {"serviceBus": {"maxMessageBatchSize": 0}}}, "maxMessageBatchSize"),
        ({"extensions": {"serviceBus": {"autoCompleteMessages": False}}}, "autoCompleteMessages"),
        ({"extensions": {"serviceBus": {"maxConcurrentCallsPerSession": 0}}}, "CallsPerSession"),
        ({"extensions": {"serviceBus": {"minMessageBatchSize": 1001}}}, "minMessageBatchSize"),
        ({"extensions": {"serviceBus": {"clientRetryOptions": {}}}}, "clientRetryOptions"),
        ({"extensions": {"durableTask": {"tracing": {}}}}, "tracing"),
        ({"extensions": {"serviceBus": {"maxConcurrentSessions": 0}}}, "maxConcurrentSessions"),
        ({"extensions": {"serviceBus": {"prefetchCount": True}}}, "prefetchCount"),
        ({"extensions": []}, "extensions"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(part: dict[str, Any], named: str) -> None:
    with pytest.raises(Unsupported, match=named):
        parse({"version": "2.0", **part})


def test_a_missing_file_and_a_broken_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"no host\.json"):
        load(tmp_path, {})

    (tmp_path / "host.json").write_text("{")
    with pytest.raises(Unsupported, match="not JSON"):
        load(tmp_path, {})


def test_settings_overrule_the_file(tmp_path: Path) -> None:
    limits = {"version": "2.0", "extensions": {"serviceBus": {"maxConcurrentSessions": 4}}}
    (tmp_path / "host.json").write_text(json.dumps(limits))
    settings = {
        "AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentSessions": "9",
        "AzureFunctionsJobHost__extensions__serviceBus__autoCompleteMessages": "true",
        "AzureFunctionsJobHost__logging__logLevel__Function.take": "Warning",
        "Another__extensions__serviceBus": "5",
    }

    host = load(tmp_path, settings)

    assert host.service_bus.max_concurrent_sessions == 9
    assert host.log_levels == {"Function.take": logging.WARNING}


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("AzureFunctionsJobHost__extensions__queues__batchSize", "not honoured: queues"),
        ("AzureFunctionsJobHost__version__major", "version__major lies below a value"),
    ],
)
def test_a_setting_that_overrules_nothing_honoured_is_refused_by_name(
    tmp_path: Path, setting: str, named: str
) -> None:
    (tmp_path / "host.json").write_text('{"version": "2.0"}')

    with pytest.raises(Unsupported, match=named):
        load(tmp_path, {setting: "1"})
