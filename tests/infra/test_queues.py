"""The queues in Azure are the queues on one machine, and topics feed the input queue of each."""

import pytest

from local.servicebus.config import parse_namespace
from tests.infra.parity import (
    app_settings,
    azure_queues,
    deployment,
    local_config,
    local_queues,
    region_of,
)

# A queue on one machine has no size of its own. In Azure it has the most of Premium:
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
SIZE = {"maxSizeInMegabytes": 80 * 1024}


@pytest.mark.parametrize("region", ["east", "west"])
def test_queues_in_azure_equal_the_local_queues_and_take_what_comes_for_long(region: str) -> None:
    local = local_queues(region, local_config())

    assert azure_queues(region_of(region)) == {name: found | SIZE for name, found in local.items()}


@pytest.mark.parametrize("region", ["east", "west"])
def test_all_queues_belong_to_a_namespace_whose_neighbours_delay_no_session(region: str) -> None:
    template = region_of(region)
    parents = [template.resource(name)["parent"] for name in ("queue", "outputQueue", "errorQueue")]

    assert parents == [template.value("namespace")] * 3
    sku = template.resource("namespace")["sku"]
    assert sku == {"name": "Premium", "tier": "Premium", "capacity": 1}


@pytest.mark.parametrize("region", ["east", "west"])
def test_each_topic_has_a_subscription_that_feeds_the_input_queue_in_order(region: str) -> None:
    template = region_of(region, deployment(inputTopics=["orders", "payments"]))
    topics = [topic.body for topic in template.resources("topics")]
    feeds = [feed.body for feed in template.resources("feeds")]

    assert [topic["name"] for topic in topics] == ["orders", "payments"]
    assert [topic["properties"]["supportOrdering"] for topic in topics] == [True, True]
    # By this name the app finds what the queue did not take.
    assert [feed["name"] for feed in feeds] == ["lockstep", "lockstep"]
    assert [feed["parent"].body["name"] for feed in feeds] == ["orders", "payments"]
    assert [feed["properties"]["forwardTo"] for feed in feeds] == ["lockstep", "lockstep"]
    assert app_settings(template)["LOCKSTEP_INPUT_TOPICS"] == "orders,payments"
    # On one machine they would be the same.
    declared = {
        "Name": region,
        "Queues": [{"Name": "lockstep", "Properties": {"RequiresSession": True}}],
        "Topics": [
            {
                "Name": topic["name"],
                "Subscriptions": [
                    {
                        "Name": feed["name"],
                        "Properties": {
                            key[0].upper() + key[1:]: value
                            for key, value in feed["properties"].items()
                        },
                    }
                ],
            }
            for topic, feed in zip(topics, feeds, strict=True)
        ],
    }
    (orders, _) = parse_namespace(declared).topics
    assert orders.subscriptions[0].queue.forward_to == "lockstep"


def test_without_a_topic_there_is_none() -> None:
    template = region_of("east")

    assert template.resources("topics", "feeds") == []
    assert app_settings(template)["LOCKSTEP_INPUT_TOPICS"] == ""
