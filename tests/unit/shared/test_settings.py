"""Settings are read once, checked, and named when they are wrong."""

import pytest

from shared.settings import (
    CALLS_SETTING,
    SESSIONS_SETTING,
    SETTINGS,
    Connection,
    InvalidSettings,
    Settings,
)

ENVIRONMENT = {
    "LOCKSTEP_REGION": "west",
    "LOCKSTEP_REGIONS": "east, west",
    "ServiceBus_east": "Endpoint=sb://east/",
    "ServiceBus_west__fullyQualifiedNamespace": "west.servicebus.windows.net",
    "ServiceBus_west__clientId": "1234",
    "Cosmos__accountEndpoint": "https://journal.documents.azure.com/",
}


def test_both_forms_of_connection_are_understood() -> None:
    settings = Settings.read(ENVIRONMENT)

    assert settings.regions == ("east", "west")
    assert settings.service_bus["east"] == Connection(connection_string="Endpoint=sb://east/")
    assert settings.service_bus["west"] == Connection(
        endpoint="west.servicebus.windows.net", client_id="1234"
    )
    assert settings.cosmos.endpoint == "https://journal.documents.azure.com/"
    assert settings.secondary_delay_seconds == 15


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("LOCKSTEP_REGION", "", "LOCKSTEP_REGION is not set"),
        ("LOCKSTEP_REGION", "north", "'north' is not among east, west"),
        ("ServiceBus_east", "", "neither ServiceBus_east nor"),
        ("Cosmos__accountEndpoint", "", "neither Cosmos nor Cosmos__accountEndpoint"),
        ("LOCKSTEP_GAP_WAIT_SECONDS", "soon", "GAP_WAIT_SECONDS is not a number"),
        ("LOCKSTEP_RECOVERY_LAG_SECONDS", "-1", "RECOVERY_LAG_SECONDS must be a finite"),
        ("LOCKSTEP_SECONDARY_DELAY_SECONDS", "inf", "DELAY_SECONDS must be a finite"),
        ("LOCKSTEP_PREFERENCE", "nearest", "PREFERENCE .*must be first or spread"),
        ("LOCKSTEP_PREFERENCE", "spread:east=1", "PREFERENCE .*for each of east, west"),
        ("LOCKSTEP_PREFERENCE", "spread:east=0,west=0", "one of them above 0"),
        ("LOCKSTEP_PREFERENCE", "first:east=1,west=1", "PREFERENCE must be first, spread, or"),
        ("LOCKSTEP_PREFERENCE", "spread:east=1,north=1", "'north=1' gives no region"),
        ("LOCKSTEP_PREFERENCE", "spread:east=1,west=-1", "'west=-1' gives no region"),
        ("LOCKSTEP_PREFERENCE", "spread:east=1,west=1,west=2", "'west=2' gives no region"),
        ("LOCKSTEP_UNNUMBERED_ORDER", "sorted", "ORDER .*must be any or arrival"),
        ("LOCKSTEP_UNNUMBERED_ORDER", "arrival", "ORDER .*set AzureFunctionsJobHost__"),
        ("LOCKSTEP_INSTANCES_MAX", "79", r"INSTANCES_MAX 79 with 8 .* 8 calls .* 5,000 receives"),
        (SESSIONS_SETTING, "16", "with 16 sessions and 8 calls .* are more than the 5,000"),
        (CALLS_SETTING, "many", "maxConcurrentCallsPerSession is not a number"),
        ("LOCKSTEP_SERVICE_BUS_SKU", "Basic", "SERVICE_BUS_SKU must be Standard or Premium"),
        ("LOCKSTEP_NOTICE_URL", "notices.example.org", "URL .*begin with http:// or https://"),
        ("LOCKSTEP_LEASE_SECONDS", "0", "LEASE_SECONDS .*from 1 on"),
        ("LOCKSTEP_REPLY_QUEUES", "out,lockstep-errors", "REPLY_QUEUES .*the app's own queue"),
        ("LOCKSTEP_WINDOW_DAYS", "week", "WINDOW_DAYS .*is not a number"),
        # It may not wait for longer than the recovery waits, nor be kept for less than its command.
        ("LOCKSTEP_ACKNOWLEDGE_SECONDS", "5", "ACKNOWLEDGE_SECONDS 5 must be less"),
        ("LOCKSTEP_RETENTION_DAYS", "6", "RETENTION_DAYS 6 must not be less"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str, complaint: str) -> None:
    with pytest.raises(InvalidSettings, match=complaint):
        Settings.read(ENVIRONMENT | {name: value})


def test_sessions_are_spread_by_weights() -> None:
    settings = Settings.read(ENVIRONMENT | {"LOCKSTEP_PREFERENCE": "spread: east=3, west=1"})

    assert (settings.affinity, settings.weights) == (True, {"east": 3.0, "west": 1.0})
    assert Settings.read(ENVIRONMENT | {"LOCKSTEP_PREFERENCE": "spread"}).weights == {}


SECRET = "c2VjcmV0"


def test_settings_print_no_secret() -> None:
    secrets = {
        "ServiceBus_east": f"Endpoint=sb://east/;SharedAccessKeyName=app;SharedAccessKey={SECRET}",
        "Cosmos": f"AccountEndpoint=https://journal/;AccountKey={SECRET};",
        "LOCKSTEP_NOTICE_URL": f"https://notices/?code={SECRET}",
    }

    settings = Settings.read(ENVIRONMENT | secrets)

    assert settings.cosmos.connection_string == secrets["Cosmos"]
    for shown in (settings, settings.cosmos, settings.service_bus, settings.service_bus["east"]):
        assert SECRET not in f"{shown!r} {shown}"
    with pytest.raises(InvalidSettings) as refused:
        Settings.read(ENVIRONMENT | {"LOCKSTEP_NOTICE_URL": f"notices/?code={SECRET}"})
    assert SECRET not in str(refused.value)


def test_every_setting_says_what_it_means() -> None:
    assert all(setting.meaning for setting in SETTINGS)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
