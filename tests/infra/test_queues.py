"""The queues in Azure are the queues on one machine."""

import pytest

from tests.infra.parity import changed, local_config, queue_differences, region_of, section

REGIONS = ("east", "west")


@pytest.mark.parametrize("region", REGIONS)
def test_queues_in_azure_equal_the_local_queues(region: str) -> None:
    assert queue_differences(region_of(region), local_config()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("requiresSession: true", "requiresSession: false", "requiresSession is False in Azure"),
        ("lockDuration: 'PT30S'", "lockDuration: 'PT5M'", "lockDuration is 'PT5M' in Azure"),
        ("maxDeliveryCount: 750", "maxDeliveryCount: 10", "maxDeliveryCount is 10 in Azure"),
        ("defaultMessageTimeToLive: 'P14D'", "", "defaultMessageTimeToLive is None in Azure"),
        ("name: queueName", "name: 'other'", "queue other is in one place only"),
    ],
)
def test_a_queue_that_differs_is_named(old: str, new: str, said: str) -> None:
    differences = queue_differences(changed(region_of("east"), old, new), local_config())

    assert any(said in sentence for sentence in differences), differences


@pytest.mark.parametrize("region", REGIONS)
def test_a_namespace_is_premium_so_that_no_neighbour_delays_a_session(region: str) -> None:
    sku = region_of(region).resource("namespace")["sku"]

    assert sku == {"name": "Premium", "tier": "Premium", "capacity": 1}


@pytest.mark.parametrize("name", ["queue", "outputQueue", "errorQueue"])
def test_a_queue_takes_what_comes_while_an_app_is_away_for_long(name: str) -> None:
    properties = section(region_of("east").resource(name), "properties")

    # The most of Premium: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
    assert properties["maxSizeInMegabytes"] == 80 * 1024


@pytest.mark.parametrize("region", REGIONS)
def test_all_queues_belong_to_the_namespace_of_their_region(region: str) -> None:
    template = region_of(region)

    parents = [template.resource(name)["parent"] for name in ("queue", "outputQueue", "errorQueue")]

    assert parents == [template.value("namespace")] * 3
