"""The emulator's Config.json, read: what is kept, and what is refused by name."""

from typing import Any

import pytest

from local.servicebus.config import InvalidConfig, NamespaceConfig, QueueConfig, parse_namespaces


def declaring(**properties: Any) -> dict[str, Any]:
    queue = {"Name": "flights", "Properties": properties}
    return {"Namespaces": [{"Name": "east", "Queues": [queue]}]}


def test_a_queue_is_read_with_durations_in_seconds() -> None:
    properties = {
        "RequiresSession": True,
        "LockDuration": "PT1M30.5S",
        "MaxDeliveryCount": 2000,
        "DefaultMessageTimeToLive": "P14DT1H",
        "DeadLetteringOnMessageExpiration": True,
        "ForwardTo": "",
        "RequiresDuplicateDetection": False,
    }

    assert parse_namespaces(declaring(**properties)) == (
        NamespaceConfig(
            "east", (QueueConfig("flights", True, 90.5, 2000, 14 * 86400 + 3600, True),)
        ),
    )


def test_what_is_left_out_takes_the_service_s_defaults() -> None:
    (namespace,) = parse_namespaces(declaring())

    assert namespace.queues == (QueueConfig("flights", False, 60.0, 10, None, False),)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"LockDuration": "30 seconds"}, "30 seconds"),
        ({"LockDuration": "PT"}, "PT"),
        ({"LockDuration": "PT6M"}, "LockDuration"),
        ({"MaxDeliveryCount": 0}, "MaxDeliveryCount"),
        ({"MaxDeliveryCount": "10"}, "MaxDeliveryCount"),
        ({"RequiresSession": "yes"}, "RequiresSession"),
        (
            {
                "RequiresDuplicateDetection": True,
                "DuplicateDetectionHistoryTimeWindow": "PT5S",
            },
            "DuplicateDetectionHistoryTimeWindow.*PT5S",
        ),
        ({"ForwardTo": "other"}, "ForwardTo 'other' names no queue or topic of the namespace"),
        ({"ForwardTo": "flights"}, "ForwardTo 'flights' leads back to where it began"),
        ({"ForwardTo": "other", "RequiresSession": True}, "what requires sessions cannot forward"),
        ({"ForwardTo": 7}, "ForwardTo must be a name"),
        ({"ForwardDeadLetteredMessagesTo": "other"}, "ForwardDeadLetteredMessagesTo 'other'"),
        ({"Colour": "blue"}, "Colour"),
    ],
)
def test_a_property_that_cannot_be_kept_is_refused_by_name(
    properties: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"flights.*{named}"):
        parse_namespaces(declaring(**properties))


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (
            {
                "Namespaces": [
                    {"Name": "east", "Queues": [{"Name": "news"}], "Topics": [{"Name": "News"}]}
                ]
            },
            "News",
        ),
        ({"Namespaces": [{"Name": "east", "Relays": []}]}, "Relays"),
        ({"Namespaces": [{"Queues": []}]}, "Name"),
        ({"Namespaces": [{"Name": "east"}, {"Name": "East"}]}, "East"),
        ({"Plugins": []}, "Plugins"),
    ],
)
def test_a_kind_of_thing_that_is_not_kept_is_refused_by_name(
    document: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidConfig, match=named):
        parse_namespaces(document)
