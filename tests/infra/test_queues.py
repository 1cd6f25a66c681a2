"""The queues in Azure are the queues on one machine, and topics feed the input queue of each."""

from local.servicebus.config import parse_namespace
from shared.domain.message import BODY_BYTES_MAX_BY_SKU
from tests.infra.parity import azure_queues, last, local_config, local_queues
from tests.infra.snapshots import Resources, app_settings, of_type, read_snapshot, regions_of

# A queue on one machine has no size of its own. In Azure it has the most that its sku allows:
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
SIZES = {"Standard": 5 * 1024, "Premium": 80 * 1024}


def sku_of(resources: Resources) -> str:
    return "Premium" if resources.name == "everything" else "Standard"


def test_queues_in_azure_equal_the_local_queues_and_take_what_comes_for_long(
    resources: Resources,
) -> None:
    size = {"maxSizeInMegabytes": SIZES[sku_of(resources)]}
    wanted = {name: found | size for name, found in local_queues("east", local_config()).items()}
    for region in regions_of(resources):
        assert azure_queues(resources, region) == wanted


def test_the_sku_decides_what_a_namespace_and_its_queues_have(resources: Resources) -> None:
    sku = sku_of(resources)
    is_premium = sku == "Premium"
    for namespace in of_type(resources, "Microsoft.ServiceBus/namespaces"):
        assert namespace["sku"] == {
            "name": sku,
            "tier": sku,
            **({"capacity": 1} if is_premium else {}),
        }
        assert ("premiumMessagingPartitions" in namespace["properties"]) == is_premium
    for topic in of_type(resources, "Microsoft.ServiceBus/namespaces/topics"):
        assert topic["properties"]["maxSizeInMegabytes"] == SIZES[sku]
    for region in regions_of(resources):
        assert app_settings(resources, region)["LOCKSTEP_SERVICE_BUS_SKU"] == sku
    assert BODY_BYTES_MAX_BY_SKU.keys() == SIZES.keys()
    # Three quarters of a queue, and of none that is smaller.
    alerts = of_type(resources, "Microsoft.Insights/metricAlerts")
    criteria = [one for alert in alerts for one in alert["properties"]["criteria"].get("allOf", [])]
    full = {one["threshold"] for one in criteria if one["metricName"] == "Size"}
    assert full == ({SIZES[sku] * 2**20 * 3 // 4} if alerts else set())


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
