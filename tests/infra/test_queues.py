"""The queues in Azure are the queues on one machine, and topics feed the input queue of each."""

from local.servicebus.config import parse_namespace
from tests.infra.parity import azure_queues, last, local_config, local_queues
from tests.infra.snapshots import Resources, app_settings, of_type, read_snapshot, regions_of

# A queue on one machine has no size of its own. In Azure it has the most of Premium:
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
SIZE = {"maxSizeInMegabytes": 80 * 1024}


def test_queues_in_azure_equal_the_local_queues_and_take_what_comes_for_long(
    resources: Resources,
) -> None:
    wanted = {name: found | SIZE for name, found in local_queues("east", local_config()).items()}
    for region in regions_of(resources):
        assert azure_queues(resources, region) == wanted


def test_neighbours_of_a_namespace_delay_no_session(resources: Resources) -> None:
    for namespace in of_type(resources, "Microsoft.ServiceBus/namespaces"):
        assert namespace["sku"] == {"name": "Premium", "tier": "Premium", "capacity": 1}


def test_each_topic_has_a_subscription_that_feeds_the_input_queue_in_order() -> None:
    resources = read_snapshot("everything")
    kind = "Microsoft.ServiceBus/namespaces/topics"
    for region in regions_of(resources):
        (topic,) = of_type(resources, kind, region)
        (feed,) = of_type(resources, f"{kind}/subscriptions", region)

        assert topic["properties"]["supportOrdering"] is True
        # By this name the app finds what the queue did not take.
        assert feed["name"] == f"{topic['name']}/lockstep"
        assert feed["properties"]["forwardTo"] == "lockstep"
        assert app_settings(resources, region)["LOCKSTEP_INPUT_TOPICS"] == last(topic["name"])
        # On one machine they would be the same.
        properties = {key[0].upper() + key[1:]: it for key, it in feed["properties"].items()}
        declared = {
            "Name": region,
            "Queues": [{"Name": "lockstep", "Properties": {"RequiresSession": True}}],
            "Topics": [
                {
                    "Name": last(topic["name"]),
                    "Subscriptions": [{"Name": "lockstep", "Properties": properties}],
                }
            ],
        }
        (orders,) = parse_namespace(declared).topics
        assert orders.subscriptions[0].queue.forward_to == "lockstep"


def test_without_a_topic_there_is_none() -> None:
    assert not [one for one in read_snapshot() if "/topics" in one["type"]]
    assert app_settings(read_snapshot(), "east")["LOCKSTEP_INPUT_TOPICS"] == ""
