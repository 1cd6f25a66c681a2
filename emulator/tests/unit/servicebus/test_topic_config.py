"""Topics, subscriptions and rules in the emulator's Config.json."""

from typing import Any

import pytest

from local.servicebus.config import (
    InvalidConfig,
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
    parse_namespaces,
)
from local.servicebus.rules import (
    MATCH_ALL,
    CorrelationFilter,
    SubscriptionRule,
    SystemProperty,
    TrueFilter,
)


def declaring(
    topic: dict[str, Any] | None = None,
    subscription: dict[str, Any] | None = None,
    *rules: dict[str, Any],
) -> dict[str, Any]:
    one = {"Name": "delays", "Properties": subscription or {}, "Rules": list(rules)}
    entry = {"Name": "flights", "Properties": topic or {}, "Subscriptions": [one]}
    return {"Namespaces": [{"Name": "east", "Topics": [entry]}]}


def rule(**properties: Any) -> dict[str, Any]:
    return {"Name": "r", "Properties": properties}


def test_a_topic_is_read_with_its_subscriptions_as_queues_of_their_whole_path() -> None:
    topic = {
        "DefaultMessageTimeToLive": "PT1H",
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": "PT30S",
    }
    subscription = {"RequiresSession": True, "LockDuration": "PT30S", "MaxDeliveryCount": 3}

    (namespace,) = parse_namespaces(declaring(topic, subscription))

    queue = QueueConfig("flights/Subscriptions/delays", True, 30.0, 3)
    assert namespace.topics == (
        TopicConfig("flights", (SubscriptionConfig(queue, MATCH_ALL),), 3600.0, 30.0),
    )


def test_rules_are_read_and_take_the_place_of_the_rule_that_takes_everything() -> None:
    correlation = {"Label": "departed", "CorrelationId": "", "Properties": {"gate": 7}}

    (namespace,) = parse_namespaces(
        declaring(
            {},
            {},
            {
                "Name": "departures",
                "Properties": {"FilterType": "Correlation", "CorrelationFilter": correlation},
            },
            {
                "Name": "all",
                "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}},
            },
        )
    )

    assert namespace.topics[0].subscriptions[0].rules == (
        SubscriptionRule(
            "departures", CorrelationFilter({SystemProperty.LABEL: "departed"}, {"gate": 7})
        ),
        SubscriptionRule("all", TrueFilter()),
    )


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "gate > 7"}}, "gate > 7"),
        ({"FilterType": "Boolean"}, "Boolean"),
        ({"FilterType": "Correlation", "CorrelationFilter": {"Colour": "blue"}}, "Colour"),
        ({"FilterType": "Correlation", "CorrelationFilter": {}}, "name a property"),
        ({"FilterType": "Correlation", "CorrelationFilter": {"To": 7}}, "To"),
        ({"FilterType": "Correlation", "Action": {"SqlExpression": "SET x = 1"}}, "Action"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_by_name(
    properties: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"flights/Subscriptions/delays.*'r'.*{named}"):
        parse_namespaces(declaring({}, {}, rule(**properties)))


@pytest.mark.parametrize(
    ("topic", "subscription", "named"),
    [
        ({"RequiresSession": True}, {}, "'flights'.*RequiresSession"),
        ({}, {"RequiresDuplicateDetection": True}, "delays.*RequiresDuplicateDetection"),
        ({}, {"ForwardTo": "elsewhere"}, "delays.*ForwardTo 'elsewhere' names no queue"),
        ({}, {"ForwardTo": "flights"}, "delays.*ForwardTo 'flights' leads back"),
        ({}, {"ForwardTo": "flights/Subscriptions/delays"}, "delays.*names no queue or topic"),
    ],
)
def test_a_property_that_does_not_belong_there_is_refused_by_name(
    topic: dict[str, Any], subscription: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidConfig, match=named):
        parse_namespaces(declaring(topic, subscription))
