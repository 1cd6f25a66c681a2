"""What a Cosmos DB trigger binding may say."""

from datetime import UTC, datetime
from typing import Any

import pytest

from local.functions_host.config.functions import Binding
from local.functions_host.config.settings import Unsupported
from local.functions_host.triggers.cosmos import (
    check_binding,
    feed_options,
    feed_start,
    preferred_locations,
)


def binding(**properties: Any) -> Binding:
    return Binding("follow", "cosmosDBTrigger", "documents", "IN", properties)


def test_the_leases_of_a_feed_last_a_minute_unless_the_trigger_says_otherwise() -> None:
    usual = feed_options(binding())
    own = feed_options(
        binding(leaseExpirationInterval=15000, leaseRenewInterval=5000, leaseAcquireInterval=3000)
    )

    assert (usual.expiration_interval, usual.renew_interval, usual.acquire_interval) == (60, 17, 13)
    assert (own.expiration_interval, own.renew_interval, own.acquire_interval) == (15, 5, 3)


def test_a_feed_starts_now_by_default() -> None:
    assert feed_start(binding()) == "Now"
    assert feed_start(binding(startFromBeginning="true")) == "Beginning"


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00"])
def test_a_feed_may_start_at_a_time(text: str) -> None:
    assert feed_start(binding(startFromTime=text)) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "properties",
    [
        {"startFromTime": "yesterday"},
        {"startFromTime": "2026-01-02T03:04:05Z", "startFromBeginning": True},
    ],
)
def test_a_start_that_makes_no_sense_is_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="function follow: cosmosDBTrigger: startFrom"):
        feed_start(binding(**properties))


def test_preferred_locations_are_a_list_in_a_text() -> None:
    assert preferred_locations(binding(preferredLocations="East US, West US")) == [
        "East US",
        "West US",
    ]
    assert preferred_locations(binding()) == []


def test_only_the_latest_version_is_followed() -> None:
    check_binding(binding(changeFeedMode="LatestVersion"))

    with pytest.raises(Unsupported, match="AllVersionsAndDeletes"):
        check_binding(binding(changeFeedMode="AllVersionsAndDeletes"))
